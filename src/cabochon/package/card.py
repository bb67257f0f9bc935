"""README.md of a package: a model card computed from the graph, the config and what was written."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from cabochon.package.contracts import fusions, hidden_tap, operators
from cabochon.package.facts import FullFacts, TextFacts
from cabochon.package.how_stored import how_stored, titled
from cabochon.package.page import bullets, front_matter, largest_tensor, made, page, table
from cabochon.package.snippet import snippet

__all__ = ["EVIDENCE", "card", "contract_rows", "decoder_limits", "decoder_notes"]

EVIDENCE = (
    "A build proves nothing about results. `cabochon parity PACKAGE SOURCE` compares this package with the "
    "original model in transformers, forward and greedy, and writes what it found into `evidence/`."
)


def card(facts: TextFacts, files: Mapping[str, str]) -> str:
    """The text of README.md. `files` are the package's files and what each is."""
    sections = {
        "Truthful graph contracts": table(("Contract", "Value"), contract_rows(facts)),
        **how_stored(facts),
        "Usage (direct ONNX Runtime)": f"```python\n{snippet(facts)}```",
        "Runtime notes": bullets(_runtime_notes(facts)),
        "Limits": bullets(_limits(facts)),
        "Evidence": EVIDENCE,
        "Files": table(("File", "What it is"), [(f"`{name}`", what) for name, what in files.items()]),
        "License": f"`{facts.license.id}` ({facts.license.evidence}). See `SOURCE_LICENSE.md`.",
    }
    head = front_matter(facts.license.id, facts.base_models, "text-generation")
    return page(head, _introduction(facts), sections)


def _introduction(facts: TextFacts) -> str:
    return "\n".join(
        [
            f"# {facts.name}: ONNX text decoder ({titled(facts)}, {facts.target.name})",
            "",
            "The text decoder of a Gemma 4 checkpoint as an ONNX graph with its weights.",
            "",
            *made(facts),
        ]
    )


def contract_rows(facts: TextFacts | FullFacts) -> Iterator[tuple[str, str]]:
    """The decoder in a table."""
    found, config = facts.contracts, facts.text
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
    scales = (model.metadata_props.get("cabochon.embed_scale") for model in facts.models.values())
    yield "Embedding scale", f"{next(filter(None, scales))} (√hidden in {facts.dtype})"
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


def _runtime_notes(facts: TextFacts) -> Iterator[str]:
    yield from decoder_notes(facts)
    yield "`cabochon run PACKAGE --prompt ...` and `cabochon.load(PACKAGE).generate(...)` do all of this."


def decoder_notes(facts: TextFacts | FullFacts) -> Iterator[str]:
    """How the decoder is fed."""
    yield "`attention_mask` spans every token fed so far, evicted ones included; positions derive from it."
    yield (
        "`logits` are those of the last real token of each row, whatever is fed."
        if facts.logits_to_keep == 1
        else "`logits_to_keep` (int64 scalar, optional) asks for the logits of the last K real tokens of each "
        f"row, 0 for all; {facts.logits_to_keep} unless given."
    )
    if facts.text.window is not None:
        yield (
            f"Sliding layers see {facts.text.window} keys, the token itself included. Their caches have a "
            f"length of their own: all but the last {facts.text.window - 1} real entries may be dropped."
        )
    if tap := hidden_tap(facts.model):
        yield f"`{tap}` is the hidden state after the final norm, the head's input; generation ignores it."


def _limits(facts: TextFacts) -> Iterator[str]:
    yield from decoder_limits(facts)
    yield "Text only: no images, no sound."


def decoder_limits(facts: TextFacts | FullFacts) -> Iterator[str]:
    """What holds for the decoder, whatever feeds it."""
    if facts.properties["cabochon.mask"] == "left-justified":
        yield (
            "Rows of `attention_mask` are left-justified: real tokens first, in decode steps too. More than "
            "one row works for a whole prefill and for single-token steps; chunks with a past go row by row and "
            "without padding. With padding or several rows, `logits_to_keep` is 0 or 1: the kernel refuses others."
        )
    else:
        yield "Zeros may stand anywhere in `attention_mask`: padding on either side, or tokens taken back."
    if caveat := facts.caveat:
        yield f"{facts.precision.name} on {facts.target.name}: {caveat}."
    yield from (f"{note}." for note in facts.target.notes)
    if large := largest_tensor(facts):
        yield large
    yield f"Positions end at {facts.text.max_positions}."
    if facts.linked:
        yield (
            f"{', '.join(f'`{name}`' for name in facts.linked)}: another name of the checkpoint's own file. "
            "A change in one is in both, and it may hold tensors that this package does not use."
        )
