"""The rules on attention: every attention of the graph against its layer in the config and the group it serves."""

from collections.abc import Iterator, Mapping

import numpy as np

from cabochon.gemma4 import TextConfig
from cabochon.gemma4.config import Layer
from cabochon.gemma4.geometry import frequencies
from cabochon.validation.attention_nodes import AttentionNode, attention_nodes, attributes
from cabochon.validation.caches import caches, named
from cabochon.validation.described import described
from cabochon.validation.findings import Severity
from cabochon.validation.graph import Graph
from cabochon.validation.memo import once
from cabochon.validation.opened import Opened
from cabochon.validation.rotation import Rotation, rotation
from cabochon.validation.rules import Found, rule
from cabochon.validation.sight import Sight, sights

__all__: list[str] = []

NEEDS = ("graphs", "config")
SCALE = 1.0  # Gemma 4 leaves the scores unscaled: the norms of queries and keys carry the scale
WIDE, WIDEST = 4096, 1 << 17  # keys: more than the window of any model of the family, and than their contexts


def decoders(package: Opened) -> Iterator[Graph]:
    """The graphs with caches of their own: those that config.json describes."""
    return (graph for graph in package.graphs.values() if caches(graph))


def placed(package: Opened) -> Iterator[tuple[str, AttentionNode, Layer]]:
    """Every attention with its address and its layer in the config."""
    assert package.config is not None
    layers = package.config.layers
    for graph in decoders(package):
        for node in attention_nodes(graph):
            if node.layer < len(layers):
                yield f"{graph.path}: {node.name}", node, layers[node.layer]


def seen(graph: Graph) -> Mapping[str, Sight]:
    """What the masks of a graph show, by mask."""
    return once(graph, _seen)


def _seen(graph: Graph) -> Mapping[str, Sight]:
    masks = {node.mask: node.visible for node in attention_nodes(graph) if node.mask}
    said = graph.properties.get("cabochon.sliding_window", "")
    return sights(graph, masks, max(WIDE, min(int(said), WIDEST) if said.isdecimal() else 0))


def window(graph: Graph, node: AttentionNode) -> int | None:
    """The number of keys that a token sees; None: all. Raises LookupError where that is not known."""
    own = node.window if node.window > 0 else None
    sight = seen(graph).get(node.mask) if node.mask else None
    if sight is None:
        return own
    if sight.unknown:
        raise LookupError(sight.unknown)
    return min((n for n in (own, sight.window) if n is not None), default=None)


@rule("ATT001", Severity.ERROR, NEEDS)
def attentions_missing(package: Opened) -> Iterator[Found]:
    """The graph does not have one attention for each layer.

    Causes: the graph was built from another config; a layer was dropped; attention is written in a way that is not
    recognised: Attention, GroupQueryAttention, MultiHeadAttention, and softmax(mask(q kᵀ)) are.
    Remedy: build the package again from this config.
    """
    assert package.config is not None
    expected = list(range(len(package.config.layers)))
    for graph in decoders(package):
        found = [node.layer for node in attention_nodes(graph)]
        if found != expected:
            yield Found(
                graph.path, f"attentions of layers {found}", f"of layers 0 to {expected[-1]}, in order"
            )


@rule("ATT002", Severity.ERROR, NEEDS)
def other_cache_read(package: Opened) -> Iterator[Found]:
    """A layer reads the cache of another layer than it should.

    Causes: layers that share were wired to the wrong owner; an owner was taken for a borrower.
    Remedy: owners read and extend their own cache; the others read that of the last owner of their kind.
    """
    for at, node, layer in placed(package):
        if node.cache != layer.cache:
            found = (
                "no cache that could be traced" if node.cache is None else f"the cache of layer {node.cache}"
            )
            yield Found(at, found, f"that of layer {layer.cache}")
        elif node.appends == layer.shares_kv:
            yield Found(
                at,
                "it adds to the cache" if node.appends else "it adds nothing",
                "an owner adds, a borrower not",
            )


@rule("ATT003", Severity.ERROR, NEEDS)
def window_differs(package: Opened) -> Iterator[Found]:
    """A layer sees another number of keys than its window has.

    Causes: local_window_size was taken from another model, or counts the token itself differently; the mask compares
    with another constant; a full layer was given a window.
    Remedy: a sliding layer sees `sliding_window` keys, the token itself included; a full one sees all.
    """
    assert package.config is not None
    for graph in decoders(package):
        for node in attention_nodes(graph):
            if node.layer >= len(package.config.layers):
                continue
            expected = package.config.layers[node.layer].window
            try:
                found = window(graph, node)
            except LookupError:
                continue  # ATT010 says so
            if found != expected:
                yield Found(f"{graph.path}: {node.name}", _keys(found), _keys(expected))


def _keys(number: int | None) -> str:
    return "all keys are seen" if number is None else f"{number} keys are seen"


@rule("ATT004", Severity.ERROR, NEEDS)
def scale_differs(package: Opened) -> Iterator[Found]:
    """The scores are scaled.

    Causes: the scale was left to the operator's default, 1 / sqrt(head size).
    Remedy: Gemma 4 has a scale of 1: the norms of queries and keys carry it.
    """
    for at, node, _ in placed(package):
        if node.scale is None:
            yield Found(at, "no scale: the operator's default, 1 / sqrt(head size)", f"{SCALE}")
        elif abs(node.scale - SCALE) > 1e-6:
            yield Found(at, f"a scale of {node.scale}", f"{SCALE}")


@rule("ATT005", Severity.ERROR, NEEDS)
def scores_capped(package: Opened) -> Iterator[Found]:
    """The scores are soft-capped.

    Causes: Gemma 2's attention was taken, or the soft-cap of the logits.
    Remedy: Gemma 4 caps the logits only.
    """
    for at, node, _ in placed(package):
        if node.softcap:
            yield Found(at, f"a soft-cap of {node.softcap}", "none")


@rule("ATT006", Severity.ERROR, NEEDS)
def heads_differ(package: Opened) -> Iterator[Found]:
    """The number of heads is not the config's.

    Causes: the graph was built from another config; the heads of keys were repeated.
    Remedy: build the package again from this config.
    """
    assert package.config is not None
    for at, node, layer in placed(package):
        if node.heads not in (None, package.config.heads):
            yield Found(at, f"{node.heads} heads", f"{package.config.heads}, num_attention_heads")
        if node.kv_heads not in (None, layer.kv_heads):
            yield Found(
                at, f"{node.kv_heads} heads of keys and values", f"{layer.kv_heads}, num_key_value_heads"
            )


@rule("ATT007", Severity.ERROR, NEEDS)
def head_size_differs(package: Opened) -> Iterator[Found]:
    """The size of a head is not the config's.

    Causes: one head size was taken for all layers.
    Remedy: sliding layers have `head_dim`, full ones `global_head_dim`: build the package again from this config.
    """
    assert package.config is not None
    for graph in decoders(package):
        for (number, part), cache in caches(graph).items():
            layers, port = package.config.layers, cache.past or cache.present
            if (
                port
                and len(port.shape) == 4
                and number < len(layers)
                and port.shape[3] != layers[number].head_dim
            ):
                at = f"{graph.path}: {port.name}"
                yield Found(
                    at,
                    f"{part}s of size {port.shape[3]}",
                    f"{layers[number].head_dim}, of {layers[number].kind}",
                )
    for at, node, layer in placed(package):
        if node.size not in (None, layer.head_dim):
            yield Found(at, f"heads of size {node.size}", f"{layer.head_dim}, of {layer.kind}")


@rule("ATT008", Severity.ERROR, NEEDS)
def rotation_differs(package: Opened) -> Iterator[Found]:
    """Queries or keys are rotated otherwise than the layer's kind asks for.

    Causes: the frequencies of the other kind; a partial rotation whose exponent does not run over the whole head; heads
    rotated twice, in the graph and in the operator.
    Remedy: `rope_parameters` state theta, factor and the partial share of each kind: build the package again.
    """
    assert package.config is not None
    for graph in decoders(package):
        for node in attention_nodes(graph):
            if node.layer < len(package.config.layers):
                layer = package.config.layers[node.layer]
                yield from _rotations(graph, node, layer, package.config)


def _rotations(graph: Graph, node: AttentionNode, layer: Layer, config: TextConfig) -> Iterator[Found]:
    at = f"{graph.path}: {node.name}"
    expected = frequencies(config.rope[layer.kind], layer.head_dim)
    halves = {"queries": node.query} | ({"keys": node.key} if node.appends else {})
    for what, value in halves.items():
        found = rotation(graph, value)
        if node.rotates and found is not None:
            yield Found(at, f"{what} rotated twice: do_rotary, and {found.node.name}", "once")
        elif found and (wrong := _misrotated(found, expected)):
            yield Found(at, f"{what} rotated with {wrong}", f"{_shown(expected)}, of {layer.kind}")


def _misrotated(found: Rotation, expected: np.ndarray) -> str:
    said = attributes(found.node)
    if said.get("interleaved"):
        return "interleaved pairs"
    if found.frequencies is None:
        return ""
    given = found.frequencies.reshape(-1)
    if given.shape == expected.shape and np.allclose(given, expected, rtol=1e-6, atol=0):
        return ""
    return _shown(given)


def _shown(values: np.ndarray) -> str:
    still = int((values == 0).sum())
    return (
        f"{len(values)} frequencies, {still} of them 0, the second {values[1] if len(values) > 1 else values}"
    )


@rule("ATT009", Severity.ERROR, ("graphs",))
def causal_flag_relied_on(package: Opened) -> Iterator[Found]:
    """Causality over another layer's cache is left to is_causal.

    Causes: the flag was set on an attention with fewer queries than keys and no past of its own. Runtimes disagree
    where the diagonal begins.
    Remedy: state causality in the mask, and leave is_causal at 0.
    """
    for graph in decoders(package):
        for node in attention_nodes(graph):
            if node.node.op_type == "Attention" and node.causal and not node.appends:
                yield Found(
                    f"{graph.path}: {node.name}", "is_causal = 1 and no past", "is_causal = 0 and a mask"
                )


@rule("ATT010", Severity.NOTE, ("graphs",))
def not_checked(package: Opened) -> Iterator[Found]:
    """Something of an attention could not be read from the graph, and is not checked.

    Causes: the mask comes from outside of the graph, or depends on weights; the rotation is not traced to constants.
    Remedy: run `cabochon validate --execute`, which compares what the graph computes.
    """
    for graph in decoders(package):
        for mask, sight in seen(graph).items():
            if sight.unknown:
                yield Found(
                    f"{graph.path}: {mask}", f"a mask: {sight.unknown}", "a mask made of lengths alone"
                )
        blind = [node.name for node in attention_nodes(graph) if not _rotation_known(graph, node)]
        if blind:
            found = f"{len(blind)} attentions whose rotation is not traced, such as {blind[0]}"
            yield Found(graph.path, found, "RotaryEmbedding of constant frequencies")


def _rotation_known(graph: Graph, node: AttentionNode) -> bool:
    found = rotation(graph, node.query)
    return found is not None and found.frequencies is not None


@rule("ATT011", Severity.ERROR, ("document", "graphs"))
def group_sees_otherwise(package: Opened) -> Iterator[Found]:
    """The attention over a cache sees another span than the kind of its group says.

    Causes: a full layer was listed among the sliding ones, or the other way round.
    Remedy: what an attention with a window reads belongs to a group of kind sliding_attention, everything else to
    full_attention.
    """
    for document in described(package):
        for served in document.served:
            graph, name = document.graphs.get(served.component), named(served.alias.input)
            kind = document.groups[served.group].kind
            if (
                graph is None
                or name is None
                or name[2] != "key"
                or kind not in ("sliding_attention", "full_attention")
            ):
                continue
            for node in attention_nodes(graph):
                if node.cache == name[1] and (found := _otherwise(graph, node, kind)):
                    yield Found(
                        served.at, f"a group of kind {kind}, but in {node.name} {found}", "a group that fits"
                    )


def _otherwise(graph: Graph, node: AttentionNode, kind: str) -> str:
    try:
        found = window(graph, node)
    except LookupError:
        return ""
    return _keys(found) if (found is None) == (kind == "sliding_attention") else ""


@rule("ATT012", Severity.ERROR, ("graphs",))
def mask_not_causal(package: Opened) -> Iterator[Found]:
    """A mask lets tokens see what comes behind them, or other keys than the latest.

    Causes: the comparison of positions was turned round; the window was counted from the wrong end.
    Remedy: a token sees itself and those before it, the latest ones where there is a window.
    """
    for graph in decoders(package):
        for mask, sight in seen(graph).items():
            if sight.unknown:
                continue
            if not sight.causal:
                yield Found(
                    f"{graph.path}: {mask}",
                    f"rows that see {list(map(list, sight.prefill))}",
                    "none beyond its own",
                )
            elif not sight.latest:
                yield Found(
                    f"{graph.path}: {mask}", f"keys {_span(sight.alone)} of {sight.past + 1}", "the latest"
                )


def _span(columns: tuple[int, ...]) -> str:
    return f"{columns[0]} to {columns[-1]}" if columns else "none"
