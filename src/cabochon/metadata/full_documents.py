"""The documents of a full package: one pass, the loop around it, and that loop as the released runtime drives it."""

from collections.abc import Mapping
from dataclasses import replace

import onnx_ir as ir

from cabochon.metadata.addresses import Path
from cabochon.metadata.derive import decoder_document, rows
from cabochon.metadata.document import (
    Document,
    Input,
    Invoke,
    Part,
    Pipeline,
    Request,
    RuntimeRole,
    RuntimeRoleName,
)
from cabochon.metadata.full import Full
from cabochon.metadata.loop import loop_document
from cabochon.metadata.multimodal import ABSENT, multimodal
from cabochon.metadata.policies import no_features, policies
from cabochon.metadata.ports import Ports
from cabochon.metadata.walking import changed

__all__ = ["full_document", "full_loop", "full_policies", "served_full"]

_ENDS = "package.eos_ids"  # in the loop of v1, where the document says them; later versions have the runtime do so
_ASKED = "request.eos_ids"


def full_document(full: Full) -> Document:
    """One pass: the application feeds tokens, files, mask and caches, and gets logits and the grown caches."""
    return multimodal(decoder_document(full.decoder), full)


def full_loop(full: Full, policies: Mapping[str, Ports]) -> Document:
    """From prompt and files to tokens. `policies`: the ports of the graphs in policies/, by the stem of their file."""
    return multimodal(loop_document(full.decoder, policies), full)


def served_full(full: Full, policies: Mapping[str, Ports]) -> Document:
    """The loop as the released onnx-genai 0.1.0.dev6 takes it.

    The tokens that end an answer come from the runtime, as later versions of the format ask. Sound is left out: that
    runtime has one log-mel spectrogram, of 400 points and in Slaney's scale, refuses any other, and then the images of
    the same document too.
    """
    heard = replace(
        full, encoders={medium: each for medium, each in full.encoders.items() if medium != "audio"}
    )
    document = full_loop(heard, policies)
    assert document.pipeline is not None
    workflow = changed(document.pipeline.workflow, _asking)
    inputs = {name: given for name, given in workflow.inputs.items() if name != _ENDS}
    inputs[_ASKED] = _supplied("eos_token_ids", "end_tokens")
    inputs["request.eos_lengths"] = _supplied("eos_token_lengths")
    pipeline = Pipeline(workflow=workflow.model_copy(update={"inputs": inputs}))
    return document.model_copy(update={"pipeline": pipeline})


def _asking(path: Path, part: Part) -> Part:
    """The part with the tokens that end an answer under the other name."""
    if not isinstance(part, Invoke) or _ENDS not in part.inputs.values():
        return part
    inputs = {port: _ASKED if value == _ENDS else value for port, value in part.inputs.items()}
    return part.model_copy(update={"inputs": inputs})


def _supplied(role: RuntimeRoleName, *shape: str) -> Input:
    """What the runtime knows from the package."""
    return Input(contract=rows("int64", *shape), role=RuntimeRole(role=role), source=Request(), required=True)


def full_policies(full: Full) -> dict[str, ir.Model]:
    """The graphs of policies/ by the stem of their file: those of the loop, and what stands for an absent medium."""
    loop = policies(full.decoder.ports, full.decoder.properties["cabochon.mask"])
    return loop | {ABSENT: no_features(full.embedding.ports.outputs["inputs_embeds"])}
