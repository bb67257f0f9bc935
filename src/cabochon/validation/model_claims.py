"""The rules on the document's statements about the model: limits, attention, types of weights."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cabochon.gemma4.names import EXPERTS
from cabochon.metadata.document import QuantizationOverride
from cabochon.metadata.experts import mixture_of_experts
from cabochon.validation.facts import Decoded
from cabochon.validation.findings import Severity
from cabochon.validation.graph import Graph
from cabochon.validation.holdings import Held, held, most
from cabochon.validation.opened import Opened
from cabochon.validation.rules import Found, rule
from cabochon.validation.statements import NOTHING, VARIES, differing, documents, facts, one

__all__: list[str] = []

CONFIG = "config.json"


@rule("HON010", Severity.ERROR, ("document", "graphs"))
def limits_differ(package: Opened) -> Iterator[Found]:
    """The limits of the model are not the same in the document, the graph and config.json.

    Causes: a placeholder; numbers of another model; the tokenizer's number of tokens taken for the model's.
    Remedy: vocab_size is the last dimension of the logits, max_sequence_length is max_position_embeddings.
    """
    for found in facts(package):
        real = {
            "vocab_size": found.vocabulary,
            "max_sequence_length": package.config.max_positions if package.config else None,
        }
        if package.config and found.vocabulary not in (None, package.config.vocab):
            yield Found(
                f"{CONFIG}: vocab_size", str(package.config.vocab), f"{found.vocabulary}, as the graph has it"
            )
        for name, document in documents(package):
            for key, expected in real.items():
                said = getattr(document.model, key, None)
                if said is not None and expected is not None and said != expected:
                    yield Found(f"{name}: model.{key}", str(said), str(expected))


@rule("HON011", Severity.ERROR, ("document", "graphs"))
def attention_contradicted(package: Opened) -> Iterator[Found]:
    """The document's model.attention contradicts the graph.

    Causes: it has one head size and one window for all layers; this family has two.
    Remedy: leave model.attention out: head sizes are those of the ports.
    """
    for found in facts(package):
        for name, document in documents(package):
            said = document.model.attention if document.model else None
            if said is not None:
                plain = said.model_dump(exclude_none=True)
                yield from differing(f"{name}: model.attention", plain, attention(found))


@rule("HON034", Severity.ERROR, ("document", "graphs"))
def experts_differ(package: Opened) -> Iterator[Found]:
    """The document's mixture_of_experts is not that of config.json and of the graph's weights.

    Causes: numbers of another model; a block that was left where there are no experts, or dropped where there are.
    Remedy: build again: the block is derived.
    """
    stored = any(EXPERTS in name for graph in package.graphs.values() for name in graph.initializers)
    for found in facts(package):
        expected = mixture_of_experts(found.config) if found.config and stored else None
        real = expected.model_dump(exclude_none=True) if expected else {}
        for name, document in documents(package):
            mixture = document.model.mixture_of_experts if document.model else None
            said = mixture.model_dump(exclude_none=True) if mixture else {}
            if said != real:
                yield Found(f"{name}: model.mixture_of_experts", str(said or "none"), str(real or "none"))


@rule("HON037", Severity.ERROR, ("graphs", "config"))
def chosen_differ(package: Opened) -> Iterator[Found]:
    """The routers of the graph choose another number of experts than config.json states.

    Causes: the graph was built from another config; the number was edited in every document.
    Remedy: build the package again.
    """
    for found in facts(package):
        assert found.config is not None
        stated = found.config.experts.chosen if found.config.experts else None
        real = Counter(chosen_by_routers(found.graph))
        for chosen, count in real.items():
            if chosen != stated:
                yield Found(f"{CONFIG}: top_k_experts", str(stated), f"{chosen}, as {count} routers have it")


def chosen_by_routers(graph: Graph) -> Iterator[int]:
    """How many experts each router takes the likeliest of."""
    for node in graph.nodes:
        above = graph.producers.get(node.input[0]) if node.op_type == "TopK" else None
        count = graph.inline(node.input[1]) if above is not None and above.op_type == "Softmax" else None
        if count is not None and count.size == 1:
            yield int(count.reshape(-1)[0])


def attention(found: Decoded) -> dict[str, Any]:
    """What model.attention must say where it speaks; a fact that differs between layers cannot be said."""
    config = found.config
    return {
        "head_dim": one(found.by_kind(3)) or VARIES,
        "num_kv_heads": one(found.by_kind(1)) or VARIES,
        "num_attention_heads": config.heads if config else None,
        "sliding_window": (config.window or NOTHING) if config else None,
        "sink_tokens": 0,
    }


@rule("HON012", Severity.ERROR, ("document", "graphs"))
def quantization_contradicted(package: Opened) -> Iterator[Found]:
    """The document's quantization is not what the weights are.

    Causes: it was copied from a quantized package; it states an intent.
    Remedy: state the precision that most weights have ("int4", "int4_group32" with its block, "float16"), in overrides
    that of a component or of some layers, or nothing.
    """
    for name, document in documents(package):
        said = document.quantization
        graphs = {each: graph for each, graph in package.components_of(document).items() if held(graph)}
        if said is None or not graphs:
            continue
        everything = [weight for graph in graphs.values() for weight in held(graph).values()]
        if said.default and (wrong := _contradicted(said.default, everything)):
            yield Found(f"{name}: quantization.default", said.default, f"{wrong}, the type of most weights")
        for i, override in enumerate(said.overrides or ()):
            at = f"{name}: quantization.overrides[{i}]"
            yield from _override(at, override, graphs)


def _override(at: str, said: QuantizationOverride, graphs: Mapping[str, Graph]) -> Iterator[Found]:
    if said.component is not None and said.component not in graphs:
        yield Found(f"{at}.component", said.component, f"a component with weights: {', '.join(graphs)}")
        return
    chosen = [graph for name, graph in graphs.items() if said.component in (None, name)]
    weights = [weight for graph in chosen for weight in held(graph).values()]
    if said.layers is None and said.component is None:
        if not any(weight.form.called(said.precision) for weight in weights):
            known = ", ".join(sorted({str(weight.form) for weight in weights}))
            yield Found(f"{at}.precision", said.precision, f"one of {known}")
        return
    for layer in said.layers or (None,):
        some = [weight for weight in weights if layer is None or weight.layer == layer]
        where = "" if layer is None else f" of layer {layer}"
        if not some:
            yield Found(f"{at}.layers", str(layer), "layers that have weights")
        elif wrong := _contradicted(said.precision, some):
            yield Found(f"{at}.precision", said.precision, f"{wrong}, the type of most weights{where}")


def _contradicted(said: str, weights: Iterable[Held]) -> str:
    """What most of the weights are, where that is something else; "" where it is what is said."""
    real = most(weights)
    return "" if real is None or real.called(said) else str(real)
