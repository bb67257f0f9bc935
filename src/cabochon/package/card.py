"""README.md of a package: a model card computed from the graph, the config and what was written."""

import io
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from cabochon import __version__
from cabochon.package.contracts import fusions, hidden_tap, operators
from cabochon.package.facts import Facts, installed
from cabochon.package.snippet import snippet

__all__ = ["card"]


def card(facts: Facts, files: dict[str, str]) -> str:
    """The text of README.md. `files` are the package's files and what each is."""
    tables = {
        "Truthful graph contracts": _table(("Contract", "Value"), _contract_rows(facts)),
        "Usage (direct ONNX Runtime)": f"```python\n{snippet(facts)}```",
        "Runtime notes": _bullets(_runtime_notes(facts)),
        "Limits": _bullets(_limits(facts)),
        "Evidence": _EVIDENCE,
        "Files": _table(("File", "What it is"), [(f"`{name}`", what) for name, what in files.items()]),
        "License": f"`{facts.license.id}` ({facts.license.evidence}). See `SOURCE_LICENSE.md`.",
    }
    sections = [f"## {title}\n\n{body}" for title, body in tables.items()]
    return "\n\n".join([_front_matter(facts), _introduction(facts), *sections]) + "\n"


_YAML_1_1 = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}

_EVIDENCE = (
    "A build proves nothing about results. `cabochon parity PACKAGE SOURCE` compares this package with the "
    "original model in transformers, forward and greedy, and writes what it found into `evidence/`."
)


def _front_matter(facts: Facts) -> str:
    from ruamel.yaml import YAML

    values: dict[str, Any] = {"license": _plain_or_quoted(facts.license.id)}
    if facts.base_models:
        values["base_model"] = [_plain_or_quoted(name) for name in facts.base_models]
    values["tags"] = ["onnx", "onnxruntime", "gemma4", "text-generation"]
    values |= {"pipeline_tag": "text-generation", "library_name": "onnxruntime"}
    text, yaml = io.StringIO(), YAML()
    yaml.dump(values, text)
    return f"---\n{text.getvalue()}---"


def _plain_or_quoted(text: str) -> str:
    """In quotes what a reader of YAML 1.1 could take for something else than text: `no`, `710e4927`."""
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString

    plain = re.fullmatch(r"[A-Za-z][\w./-]*", text) and text.lower() not in _YAML_1_1
    return text if plain else DoubleQuotedScalarString(text)


def _introduction(facts: Facts) -> str:
    source = f"[`{facts.checkpoint.id}`]({facts.url})" if facts.url else f"`{facts.name}` (a local folder)"
    revision = f" @ `{facts.checkpoint.revision}`" if facts.checkpoint.revision else ""
    return "\n".join(
        [
            f"# {facts.name}: ONNX text decoder ({facts.precision.name}, {facts.target.name})",
            "",
            "The text decoder of a Gemma 4 checkpoint as an ONNX graph with its weights.",
            "",
            f"- **Source**: {source}{revision} ({facts.license.id})",
            f"- **dtype / EP**: `{facts.dtype}` / `{facts.target.provider}`",
            f"- **Built by**: cabochon {__version__} with onnx_ir {installed('onnx_ir')}",
        ]
    )


def _contract_rows(facts: Facts) -> Iterator[tuple[str, str]]:
    found, config = facts.contracts, facts.config
    attention = {k: n for k, n in operators(facts.model).items() if k.endswith("Attention")}
    spelled = ", ".join(f"`{name.rpartition('.')[2]}` × {count}" for name, count in attention.items())
    yield "Layers", f"{found['num_hidden_layers']} ({spelled})"
    yield "Hybrid attention", found["hybrid_attention"]
    if "head_dim" in found:
        yield "Head size", f"{found['head_dim']}"
    else:
        yield "**Heterogeneous head size**", _kinds(found["heterogeneous_head_dim"])
    yield (
        "Heads",
        f"`num_attention_heads={config.heads}`, key/value heads {_kinds(found['num_key_value_heads'])}",
    )
    yield "Key/value caches", _caches(found)
    if config.per_layer_input:
        yield "Per-layer input", f"`hidden_size_per_layer_input={config.per_layer_input}`"
    widths = Counter(layer.intermediate for layer in config.layers)
    yield "MLP", "gated GELU (tanh), width " + ", ".join(f"{w} in {n} layers" for w, n in widths.items())
    cap = f"soft-capped at {config.softcap}" if config.softcap else "not capped"
    yield "Logits", f"{cap}; head {'tied to the embedding table' if config.tied else 'of its own'}"
    yield "Embedding scale", f"{facts.properties['cabochon.embed_scale']} (√hidden in {facts.dtype})"
    yield "Fused operators", ", ".join(f"`{name}`" for name in fusions(facts.model)) or "none"
    if "moe" in found:
        yield "MoE", found["moe"]


def _kinds(value: int | dict[str, int]) -> str:
    if isinstance(value, int):
        return str(value)
    return ", ".join(f"{kind.replace('_', '/')} **{number}**" for kind, number in value.items())


def _caches(found: dict[str, Any]) -> str:
    borrowed = found["num_kv_shared_layers"]
    rest = f"; the last {borrowed} read another's (`num_kv_shared_layers={borrowed}`)" if borrowed else ""
    return f"**{found['owned_kv_layers']}** layers own one{rest}"


def _runtime_notes(facts: Facts) -> Iterator[str]:
    yield "`attention_mask` spans every token fed so far, evicted ones included; positions derive from it."
    yield (
        "`logits_to_keep` (int64 scalar, optional) asks for the logits of the last K real tokens of each "
        f"row, 0 for all; {facts.logits_to_keep} unless given."
    )
    if facts.config.window is not None:
        yield (
            f"Sliding layers see {facts.config.window} keys, the token itself included. Their caches have a "
            f"length of their own: all but the last {facts.config.window - 1} real entries may be dropped."
        )
    if tap := hidden_tap(facts.model):
        yield f"`{tap}` is the hidden state after the final norm, the head's input; generation ignores it."
    yield "`cabochon run PACKAGE --prompt ...` and `cabochon.load(PACKAGE).generate(...)` do all of this."


def _limits(facts: Facts) -> Iterator[str]:
    if facts.properties["cabochon.mask"] == "left-justified":
        yield (
            "Rows of `attention_mask` are left-justified: real tokens first, in decode steps too. More than "
            "one row works for a whole prefill and for single-token steps; chunks with a past go row by row and "
            "without padding. With padding or several rows, `logits_to_keep` is 0 or 1: the kernel refuses others."
        )
    else:
        yield "Zeros may stand anywhere in `attention_mask`: padding on either side, or tokens taken back."
    if caveat := facts.target.caveats.get(facts.precision.name):
        yield f"{facts.precision.name} on {facts.target.name}: {caveat}."
    yield from (f"{note}." for note in facts.target.notes)
    if large := _beyond(facts):
        yield large
    yield f"Positions end at {facts.config.max_positions}."
    yield "Text only: no images, no sound."
    if facts.linked:
        yield (
            f"{', '.join(f'`{name}`' for name in facts.linked)}: another name of the checkpoint's own file. "
            "A change in one is in both, and it may hold tensors that this package does not use."
        )


def _beyond(facts: Facts) -> str | None:
    """What an adapter must grant beyond what every one does."""
    binding = facts.target.binding
    tensors = (value.const_value for value in facts.model.graph.initializers.values())
    largest = max(tensor.nbytes for tensor in tensors if tensor is not None)
    if binding is None or largest <= binding:
        return None
    return (
        f"The largest tensor has {largest:,} bytes; an adapter need not bind more than {binding:,}. Ask for the limits "
        "`maxBufferSize` and `maxStorageBufferBindingSize`, and expect adapters that refuse."
    )


def _table(head: tuple[str, str], rows: Any) -> str:
    cells = [head, ("---", "---"), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells)


def _bullets(lines: Iterator[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)
