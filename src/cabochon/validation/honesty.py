"""The rules on honesty: every statement of the package about itself, against what is measured in the graphs."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from cabochon.dialects import TARGETS
from cabochon.evidence import activations
from cabochon.gemma4.drafter_names import ORDERING
from cabochon.recipes.cast import TYPES
from cabochon.sums import SUMS
from cabochon.validation.encoder_claims import encoders, experts
from cabochon.validation.facts import Decoded, parts
from cabochon.validation.findings import Severity
from cabochon.validation.graph import Graph
from cabochon.validation.holdings import held, parts_of
from cabochon.validation.opened import Opened
from cabochon.validation.rules import Found, rule
from cabochon.validation.statements import (
    NEEDS,
    NOTHING,
    PROVENANCE,
    VARIES,
    _same,
    differing,
    entries,
    facts,
    inside,
    one,
    own_graphs,
    sums_of,
    whole,
    whole_name,
)

__all__: list[str] = []

PROVIDERS = {
    "CPUExecutionProvider": "cpu",
    "CUDAExecutionProvider": "cuda",
    "WebGpuExecutionProvider": "webgpu",
}


@rule("HON001", Severity.ERROR, ("graphs", "config"))
def provenance_geometry(package: Opened) -> Iterator[Found]:
    """provenance.json states another geometry than graph and config have.

    Causes: the record was kept while the graph was built again; numbers were copied from another model.
    Remedy: build the package again.
    """
    said = inside(package.json(PROVENANCE), "architecture_contracts")
    for found in facts(package):
        at = f"{PROVENANCE}: architecture_contracts"
        assert found.config is not None
        yield from differing(at, said, geometry(found) | {"moe": experts(package, found.config)})
        for name, real in encoders(package).items():
            yield from differing(f"{at}.{name}", inside(said, name), real)
            yield from differing(at, said, {} if real else {name: NOTHING})


def geometry(found: Decoded) -> dict[str, Any]:
    """What architecture_contracts must say where it speaks."""
    config = found.config
    assert config is not None
    sizes, heads = found.by_kind(3), found.by_kind(1)
    return {
        "num_hidden_layers": found.layers,
        "num_kv_shared_layers": found.borrowers,
        "owned_kv_layers": len(found.owners),
        "heterogeneous_head_dim": sizes if one(sizes) is None else NOTHING,
        "head_dim": one(sizes) or VARIES,
        "num_attention_heads": config.heads,
        "num_key_value_heads": one(heads) or heads,
        "per_layer_input_hidden": config.per_layer_input or NOTHING,
        "double_wide_mlp": len({layer.intermediate for layer in config.layers}) > 1,
        "attention_k_eq_v": any(layer.k_eq_v for layer in config.layers),
        "final_logit_softcapping": config.softcap or NOTHING,
        "tie_word_embeddings": config.tied,
        "max_position_embeddings": config.max_positions,
    }


@rule("HON002", Severity.ERROR, NEEDS)
def provenance_build(package: Opened) -> Iterator[Found]:
    """provenance.json states another build than the graph shows.

    Causes: the record was kept while the graph was built again, for another target or in another precision.
    Remedy: build the package again.
    """
    said = inside(package.json(PROVENANCE), "build")
    for found in whole(package):
        properties = found.graph.properties
        target = TARGETS.get(properties.get("cabochon.target", ""))
        real = {
            "target": properties.get("cabochon.target"),
            "precision": properties.get("cabochon.precision"),
            "dtype": found.dtype,
            "execution_provider": PROVIDERS.get(target.provider) if target else None,
            "logits_to_keep": found.kept,
        }
        yield from differing(f"{PROVENANCE}: build", said, real)
    for name, graph in own_graphs(package).items():
        found = Decoded(graph, None)
        made = {
            "opsets": dict(graph.opsets),
            "operators": dict(found.operators),
            "optimize": sorted(found.fused),
        }
        own = inside(said, "components", name) if name else said
        yield from differing(f"{PROVENANCE}: build" + (f".components.{name}" if name else ""), own, made)


@rule("HON003", Severity.ERROR, NEEDS)
def precision_differs(package: Opened) -> Iterator[Found]:
    """The weights are of another type than the package's precision.

    Causes: a property was changed without the weights; some weights were left as the checkpoint has them. Where weights
    are in blocks, this is of all others: they have the type of activations, but for tables that only rows are taken of,
    which are float16.
    Remedy: build the package again in the precision that is stated.
    """
    every = list(parts(package))
    blocks = any(weight.read is not None for found in every for weight in held(found.graph).values())
    for found in every:
        kind = activations(found.graph.properties) or ""
        if kind not in TYPES:
            continue
        expected = TYPES[kind].name
        for form, nbytes in _floats(found.graph, blocks).items():
            if form != expected:
                yield Found(f"{found.graph.path}: initializers", f"{nbytes:,} bytes of {form}", expected)
        for name in _unread(found.graph):
            yield Found(
                f"{found.graph.path}: {name}", found.graph.initializers[name].dtype, f"{expected}, or blocks"
            )
        if found.dtype not in (None, expected):
            yield Found(f"{found.graph.path}: logits", f"{found.dtype}", expected)


def _floats(graph: Graph, blocks: bool) -> Mapping[str, int]:
    """Bytes of the weights that are floats, by type; without scales of blocks, and where the package has `blocks`
    without tables: an embedding may hold nothing else."""
    found = Counter[str]()
    for name, weight in held(graph).items():
        table = blocks and {node.op_type for node in graph.consumers.get(name, ())} == {"Gather"}
        if weight.read is None and not (table and weight.form.kind == "float16"):
            found[weight.form.kind] += weight.nbytes
    return found


def _unread(graph: Graph) -> list[str]:
    """External weights that are neither floats nor read as blocks."""
    return [parts[0] for name, parts in parts_of(graph).items() if name not in held(graph)]


@rule("HON004", Severity.ERROR, NEEDS)
def embed_scale_differs(package: Opened) -> Iterator[Found]:
    """The scale of the embeddings is stated otherwise than the graph computes it.

    Causes: the scale was rounded to another type; the graph was built from another config. Whoever looks tokens up by
    this number, such as a drafter, gets other rows than the decoder.
    Remedy: state the constant that the graph multiplies by.
    """
    for found in facts(package):
        real = found.embed_scale
        if real is None:
            continue
        said = {
            f"{found.lookup.path}: cabochon.embed_scale": found.lookup.properties.get("cabochon.embed_scale"),
            f"{PROVENANCE}: build.embed_scale": inside(package.json(PROVENANCE), "build", "embed_scale"),
        }
        for at, value in said.items():
            if value is not None and not _same(_number(value), real):
                yield Found(at, str(value), f"{real}, the constant after the look-up")


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


@rule("HON005", Severity.ERROR)
def provenance_files(package: Opened) -> Iterator[Found]:
    """provenance.json states other sizes or hashes than the files have.

    Causes: a file was changed after the build; the record is that of another build.
    Remedy: build the package again. Hashes are compared with SHA256SUMS, whose own are compared with the files unless
    the validation is quick.
    """
    listed = sums_of(package)
    for name, entry in entries(package.json(PROVENANCE), "files").items():
        at = f"{PROVENANCE}: files.{name}"
        if name not in package.files:
            continue  # FIL001 says so
        size, digest = inside(entry, "bytes"), inside(entry, "sha256")
        if size is not None and size != package.files[name]:
            yield Found(f"{at}.bytes", str(size), f"{package.files[name]}")
        if digest is not None and digest != listed.get(name, digest):
            yield Found(f"{at}.sha256", str(digest), f"{listed[name]}, as {SUMS} says")


@rule("HON006", Severity.ERROR, NEEDS)
def provenance_tensors(package: Opened) -> Iterator[Found]:
    """provenance.json accounts for other tensors than the graph has.

    Causes: the record is that of another build; weights were added or removed.
    Remedy: build the package again.
    """
    used, graphs = inside(package.json(PROVENANCE), "tensors", "used"), own_graphs(package).values()
    if not isinstance(used, Mapping) or not graphs:
        return
    weights = {name: graph.path for graph in graphs for name in parts_of(graph)}
    weights |= {
        name: g.path
        for g in graphs
        for name, w in g.initializers.items()
        if w.external and w.name == ORDERING
    }
    at, paths = f"{PROVENANCE}: tensors.used", ", ".join(graph.path for graph in graphs)
    for name in sorted(set(used) - {whole_name(weight) for weight in weights} - weights.keys())[:5]:
        yield Found(at, f"{name!r}, which is no weight of {paths}", "the weights of the graph")
    for name in sorted(weight for weight in weights if not {weight, whole_name(weight)} & set(used))[:5]:
        yield Found(at, f"nothing of {name!r}", f"every weight of {weights[name]}")


@rule("HON013", Severity.ERROR, NEEDS)
def tap_differs(package: Opened) -> Iterator[Found]:
    """What is said of the hidden states is not the graph's output.

    Causes: the layers were counted otherwise; the output was dropped.
    Remedy: the output is called hidden_states.N with N the last layer.
    """
    for found in facts(package):
        if (
            found.tap is not None
            and found.layers
            and found.tap != (last := f"hidden_states.{found.layers - 1}")
        ):
            yield Found(f"{found.graph.path}: outputs", found.tap, last)
        for name in sorted(set(_taps(package)) - set(found.graph.ports.outputs)):
            yield Found(f"{PROVENANCE}: build.outputs_note", name, found.tap or "no such output")


def _taps(package: Opened) -> list[str]:
    note = inside(package.json(PROVENANCE), "build", "outputs_note")
    return re.findall(r"hidden_states\.\d+", note) if isinstance(note, str) else []


@rule("HON014", Severity.ERROR, ("graphs", "config"))
def properties_differ(package: Opened) -> Iterator[Found]:
    """A property of the graph is not what graph and config show.

    Causes: the properties were edited; the graph was built from another config.
    Remedy: build the package again.
    """
    config = package.config
    assert config is not None
    for found in facts(package):
        said = found.graph.properties
        target = TARGETS.get(said.get("cabochon.target", ""))
        real = {
            "cabochon.max_positions": str(config.max_positions),
            "cabochon.sliding_window": None if config.window is None else str(config.window),
            "cabochon.mask": "left-justified" if "GroupQueryAttention" in found.attentions else "anywhere",
        }
        for key, expected in real.items():
            if key in said and said[key] != expected:
                yield Found(f"{found.graph.path}: {key}", said[key], expected or "no such property")
        if "cabochon.target" in said and target is None:
            yield Found(
                f"{found.graph.path}: cabochon.target",
                said["cabochon.target"],
                f"one of {', '.join(TARGETS)}",
            )


@rule("HON015", Severity.ERROR, NEEDS)
def window_unsaid(package: Opened) -> Iterator[Found]:
    """The graph does not say the window that its caches may be cut to.

    Causes: the property was removed; a runtime then keeps every entry, or guesses.
    Remedy: build the package again.
    """
    for found in facts(package):
        windowed = found.config is not None and found.config.window is not None
        ours = "cabochon.target" in found.graph.properties
        if windowed and ours and "cabochon.sliding_window" not in found.graph.properties:
            yield Found(f"{found.graph.path}: properties", "no cabochon.sliding_window", "the number of keys")
