"""README.md, runtime-requirements.txt of a converted package: computed from its graphs and the record of its source."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from cabochon import __version__
from cabochon.openvino.made import Made, constants
from cabochon.openvino.snippets import plugin_snippet, snippet
from cabochon.openvino.source import FILES
from cabochon.package.facts import installed
from cabochon.package.page import bullets, front_matter, page, table

__all__ = ["card", "requirements"]

_PLUGIN = ("onnxruntime==1.32.0", "onnxruntime-ep-openvino==1.8.1")
_WHAT = {
    "text": "text decoder",
    "full": "text with images and sound",
    "drafter": "drafter",
    "pair": "model with its drafter",
}
_PIPELINES = {"full": "image-text-to-text"}
_CABOCHON = """\
```python
import cabochon

model = cabochon.load("PACKAGE")
print(model.generate("Why is the sky blue?", max_new_tokens=64).text)
```"""


def card(made: Made, files: Mapping[str, str], ran: str) -> str:
    """The text of README.md. `files` are the package's files and what each is; `ran`: what is known of EPContext."""
    origin = next(made.origins)
    sections = {
        "Graphs": table(("Graph", "Ports", "Constants"), _graphs(made)),
        "Truthful graph contracts": table(("Contract", "Value"), _contracts(made)),
        "Usage (OpenVINO)": f"```python\n{snippet(made)}```",
        **(_wrapped(made, ran) if made.wrapped else _cabochon(made)),
        "Runtime notes": bullets(_notes(made)),
        "Limits": bullets(_limits(made)),
        "Evidence": "`evidence/` says what was looked at when it was converted, and whatever was measured since.",
        "Files": table(("File", "What it is"), [(f"`{name}`", what) for name, what in files.items()]),
        "License": f"`{origin['license']}` ({origin['license_evidence']}). See `SOURCE_LICENSE.md`.",
    }
    models = [name for said in made.origins if (name := said.get("id"))]
    library = ("openvino", "onnx", "onnxruntime") if made.wrapped else ("openvino",)
    task = _PIPELINES.get(made.source.kind, "text-generation")
    tags = ("speculative-decoding",) if made.source.kind in ("drafter", "pair") else (task,)
    head = front_matter(origin["license"], models, *tags, pipeline=task, library=library)
    return page(head, _introduction(made, origin), sections)


def requirements(made: Made, ran: str) -> str:
    """The text of runtime-requirements.txt."""
    lines = [
        f"# Converted, and compared with its source, by cabochon {__version__} with this release of OpenVINO."
    ]
    pinned = ["openvino", "numpy", "tokenizers"]
    if made.wrapped:
        lines.append(
            "# model.onnx needs ONNX Runtime's OpenVINO provider, model.xml beside it OpenVINO alone."
        )
        lines.append(f"# The provider: {ran}.")
        lines += _PLUGIN
    return "\n".join([*lines, *(f"{name}=={found}" for name in pinned if (found := installed(name)))]) + "\n"


def _introduction(made: Made, origin: Mapping[str, Any]) -> str:
    stored = made.precision
    if made.activations != stored:
        stored = f"{stored}, activations {made.activations}"
    kept = ", with its caches in states" if made.stateful else ""
    spelled = "EPContext" if made.wrapped else "IR"
    url, name = origin.get("source_url"), origin.get("id") or origin["name"]
    source = f"[`{name}`]({url})" if url else f"`{name}` (a local folder)"
    revision = f" @ `{origin['revision']}`" if origin.get("revision") else ""
    return "\n".join(
        [
            f"# {origin['name']}: OpenVINO {spelled}, {_WHAT[made.source.kind]} ({stored})",
            "",
            f"A Gemma 4 checkpoint in OpenVINO's intermediate representation{kept}"
            + (", each graph with a node of ONNX that names it." if made.wrapped else "."),
            "",
            f"- **Source**: {source}{revision} ({origin['license']})",
            f"- **Converted from**: a package of `{made.source.target}`; every weight has the bytes it has there",
            f"- **Converted by**: cabochon {__version__} with OpenVINO {installed('openvino')}",
        ]
    )


def _graphs(made: Made) -> Iterator[tuple[str, str, str]]:
    file = FILES[made.target]
    for folder, net in made.nets.items():
        taken = ", ".join(f"`{name}`" for name in net.ports.inputs if not name.startswith("past_key_values."))
        given = ", ".join(f"`{name}`" for name in net.ports.outputs if not name.startswith("present."))
        held = constants(net)
        named = ", ".join(f"{said['bytes']:,} bytes of {dtype}" for dtype, said in held.items())
        yield f"`{folder + '/' if folder else ''}{file}`", f"{taken} → {given}", named


def _contracts(made: Made) -> Iterator[tuple[str, str]]:
    for key, value in (made.source.record.get("architecture_contracts") or {}).items():
        yield key, f"`{value if isinstance(value, str) else json.dumps(value)}`"
    common = Counter(layer.type for layer in made.decoder.layers)
    yield "Attention", f"`ScaledDotProductAttention` × {common['ScaledDotProductAttention']}"
    build = made.source.record.get("build") or {}
    if bits := (build.get("stored") or {}).get("bits_per_weight"):
        yield (
            "Bits per weight",
            f"{bits:.2f}, with scales and zero points; the recipe is in `provenance.json`",
        )


def _cabochon(made: Made) -> dict[str, str]:
    if made.source.kind == "drafter":
        return {}
    return {"Usage (cabochon)": _CABOCHON}


def _wrapped(made: Made, ran: str) -> dict[str, str]:
    note = f"The provider in ONNX Runtime: {ran}."
    return {
        "Usage (ONNX Runtime with OpenVINO's provider)": f"```python\n{plugin_snippet(made)}```\n\n{note}"
    }


def _notes(made: Made) -> Iterator[str]:
    yield (
        "OpenVINO computes in bf16 on a processor that has it, and rounds activations to 8 bits where weights are in "
        'blocks: fast, and about 1e-2 from exact. `{"INFERENCE_PRECISION_HINT": "f32", '
        '"DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}` is exact.'
    )
    if "logits_to_keep" in made.decoder.ports.inputs:
        yield (
            "`logits_to_keep` (int64 scalar) must be given: the logits of the last K real tokens of a row, 0 for all."
        )
    if made.source.kind in ("text", "full"):
        yield "`attention_mask` spans every token fed so far, evicted ones included; positions derive from it."
    if made.stateful:
        yield (
            "Caches are states of the request, for one row. `reset_state()` begins another text; a state that is set "
            "to fewer positions takes tokens back."
        )
    yield "Names of dimensions and what a runtime must know beyond ports are in `rt_info`, section `cabochon`."


def _limits(made: Made) -> Iterator[str]:
    said = made.properties
    if made.source.kind in ("text", "full"):
        yield "Zeros may stand anywhere in `attention_mask`: padding on either side, or tokens taken back."
    if made.source.kind == "text":
        yield "Text only: no images, no sound."
    if made.source.kind == "drafter":
        yield "It generates nothing by itself: it proposes tokens to the model that it was trained with."
    if positions := said.get("cabochon.max_positions"):
        yield f"Positions end at {positions}."
    yield f"Other releases of OpenVINO than {installed('openvino')} were not tried."
