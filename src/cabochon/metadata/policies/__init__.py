"""The policy graphs of the loop: what happens between two runs of the decoder, as small ONNX graphs of ai.onnx alone.

Every port, its type and its leading symbol `batch` are those that inference metadata prescribes. Rows are independent:
what a row gets does not depend on its place in the batch, nor on the rows beside it. A row *goes on* while it is
active and not done; for the others every state stays as it was.
"""

from collections.abc import Callable

import onnx_ir as ir

from cabochon.graph import Tracer
from cabochon.metadata.policies.decoder import Decoder
from cabochon.metadata.policies.prompt import decoder_state_initializer, last_token_logits
from cabochon.metadata.policies.sampler import token_sampler
from cabochon.metadata.policies.state import (
    decoder_step_update,
    length_update,
    token_state_update,
    token_to_slot,
)
from cabochon.metadata.policies.termination import termination, termination_batch_initializer

__all__ = ["POLICIES", "Decoder", "policies"]

POLICIES: dict[str, Callable[[Tracer, Decoder], None]] = {
    "token_sampler": token_sampler,
    "termination": termination,
    "termination_batch_initializer": termination_batch_initializer,
    "token_state_update": token_state_update,
    "token_to_slot": token_to_slot,
    "last_token_logits": last_token_logits,
    "cache_length_update": length_update,
    "generated_length_update": length_update,
    "decoder_state_initializer": decoder_state_initializer,
    "decoder_step_update": decoder_step_update,
}


def policies(decoder: Decoder) -> dict[str, ir.Model]:
    """The graphs for a decoder, by the stem of their file: `token_sampler` is policies/token_sampler.onnx.

    Raises GraphError for a decoder without the ports that a loop needs.
    """
    return {name: _traced(name, write, decoder) for name, write in POLICIES.items()}


def _traced(name: str, write: Callable[[Tracer, Decoder], None], decoder: Decoder) -> ir.Model:
    g = Tracer(name, opset=23)
    write(g, decoder)
    return g.model({"cabochon.policy": name})
