"""The policy graphs of the loop: what happens between two runs of the decoder, as small ONNX graphs of ai.onnx alone.

Every port, its type and its leading symbol `batch` are those that inference metadata prescribes. Rows are independent:
what a row gets does not depend on its place in the batch, nor on the rows beside it. A row *goes on* while it is
active and not done; for the others tokens, counters and lengths stay as they were.
"""

from collections.abc import Callable

import onnx_ir as ir

from cabochon.graph import Tracer
from cabochon.metadata.policies.driven import Driven
from cabochon.metadata.policies.media import no_features
from cabochon.metadata.policies.prompt import decoder_state_initializer, last_token_logits
from cabochon.metadata.policies.sampler import token_sampler
from cabochon.metadata.policies.state import (
    decoder_step_update,
    length_update,
    token_state_update,
    token_to_slot,
)
from cabochon.metadata.policies.termination import termination, termination_batch_initializer
from cabochon.metadata.ports import Ports

__all__ = ["POLICIES", "no_features", "policies"]

POLICIES: dict[str, Callable[[Tracer, Driven], None]] = {
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


def policies(ports: Ports, mask: str) -> dict[str, ir.Model]:
    """The graphs for a decoder, by the stem of their file: `token_sampler` is policies/token_sampler.onnx.

    `ports` are the decoder's; `mask` is its metadata property `cabochon.mask`. Raises GraphError where a port that the
    loop needs is missing, or for another mask.
    """
    decoder = Driven(ports, mask)
    return {name: _traced(name, write, decoder) for name, write in POLICIES.items()}


def _traced(name: str, write: Callable[[Tracer, Driven], None], decoder: Driven) -> ir.Model:
    g = Tracer(name, opset=23)
    write(g, decoder)
    return g.model({"cabochon.policy": name})
