"""provenance.json: where a package comes from and what was done to it."""

import json
import platform
from collections.abc import Mapping
from typing import Any

from cabochon import __version__
from cabochon.checkpoint.fingerprint import fingerprint
from cabochon.package.contracts import fusions, hidden_tap, operators
from cabochon.package.facts import Facts, FullFacts, TextFacts, installed
from cabochon.package.how_stored import recipe, stored, used

__all__ = ["full_provenance", "provenance", "record", "source"]

_PROVIDERS = {
    "CPUExecutionProvider": "cpu",
    "CUDAExecutionProvider": "cuda",
    "WebGpuExecutionProvider": "webgpu",
}
_TOOLS = ("numpy", "ml_dtypes", "onnx", "onnx_ir", "protobuf")


def provenance(facts: TextFacts) -> str:
    """The text of provenance.json of a text package."""
    own = _decoding(facts, ["text-only"], facts.properties["cabochon.embed_scale"])
    return record({"target": source(facts)}, facts, own, facts.contracts)


def full_provenance(facts: FullFacts) -> str:
    """The text of provenance.json of a full package."""
    features = [
        name for name, found in (("vision", facts.config.vision), ("audio", facts.config.audio)) if found
    ]
    scale = facts.models["embedding"].metadata_props["cabochon.embed_scale"]
    own = _decoding(facts, ["text", *features], scale)
    return record({"target": source(facts)}, facts, own, facts.contracts)


def _decoding(facts: Facts[Any], features: list[str], scale: str) -> dict[str, Any]:
    tap = hidden_tap(facts.model)
    note = f"{tap} = hidden states after the final norm (the input of the head)" if tap else None
    return {
        "features": features,
        "outputs_note": note,
        "logits_to_keep": facts.logits_to_keep,
        "embed_scale": float(scale),
    }


def record(
    sources: Mapping[str, Any], facts: Facts[Any], own: Mapping[str, Any], contracts: Mapping[str, Any]
) -> str:
    """The text of a record. It holds neither time nor place, so that rebuilds are the same bytes.

    `sources` are those of the package's parts, `own` what only this kind of package states of its build.
    """
    said = {
        **sources,
        "build": _build(facts, own),
        "architecture_contracts": dict(contracts),
        "tensors": _tensors(facts),
        "files": {
            name: {"bytes": digest.nbytes, "sha256": digest.sha256} for name, digest in facts.digests.items()
        },
    }
    return json.dumps(said, indent=2, ensure_ascii=False) + "\n"


def source(facts: Facts[Any]) -> dict[str, Any]:
    """The checkpoint, and what says under which licence it is."""
    checkpoint = facts.checkpoint
    return {
        "id": checkpoint.id,
        "name": facts.name,
        "revision": checkpoint.revision,
        "fingerprint": fingerprint(checkpoint),
        "license": facts.license.id,
        "license_evidence": facts.license.evidence,
        "source_url": facts.url,
        "remarks": list(checkpoint.remarks),
    }


def _build(facts: Facts[Any], own: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "tool": "cabochon",
        "version": __version__,
        "command": list(facts.command) if facts.command is not None else None,
        "versions": {"python": platform.python_version()} | {name: installed(name) for name in _TOOLS},
        "target": facts.target.name,
        "precision": facts.precision.name,
        "dtype": facts.dtype,
        "execution_provider": _PROVIDERS.get(facts.target.provider, facts.target.provider),
        **own,
        **recipe(facts),
        **_graphs(facts),
        "linked_files": list(facts.linked),
        "stored": stored(facts),
    }


def _graphs(facts: Facts[Any]) -> dict[str, Any]:
    """What the graph is made of; where there are several, of each."""
    said = {
        name: {
            "opsets": dict(model.opset_imports),
            "optimize": fusions(model),
            "operators": operators(model),
        }
        for name, model in facts.models.items()
    }
    return said.get("", {"components": said})


def _tensors(facts: Facts[Any]) -> dict[str, Any]:
    """Names as in the checkpoint's files. Used tensors are listed by the name they have in the graph."""
    return {
        "used": used(facts),
        "unused": dict(facts.tensors.unused),
    }
