"""METADATA_STATUS.md of a pair: what each version of the contract says, what it cannot, and who has checked it."""

from collections.abc import Iterator

from cabochon.metadata.pair import Pair
from cabochon.package.metadata_status import BLOCKS, CONVERT, status_page

__all__ = ["pair_status"]


def pair_status(pair: Pair) -> str:
    """The text of METADATA_STATUS.md."""
    introduction = (
        "`inference_metadata.yaml` was built in the form v1: the speculative workflow of this package. "
        f"`{CONVERT}` writes the form v1.8. Both are derived from the ports of the graphs, from their metadata "
        "properties and from the configs."
    )
    versions = {"What v1 cannot say": _v1(pair), "What v1.8 says more, and what it cannot": _v18(pair)}
    checked = "The document, its cross-references and the real ports of all graphs; the target as a package of its own."
    return status_page(introduction, _stated(pair), versions, checked, _clients())


def _stated(pair: Pair) -> Iterator[tuple[str, str]]:
    target, drafter = pair.target, pair.drafter
    yield "Components", f"`{target.name}` ({target.artifact}), `{drafter.name}` ({drafter.artifact})"
    layers = ", ".join(f"{kind} of layer {target.anchors[kind]}" for kind in drafter.kinds)
    yield "Borrowed, read only", f"{layers}; no output, no cell of its own"
    yield "Proposals", f"chained, up to {pair.width} between two verifications"
    yield "First carry", f"`{pair.seed}` of `{target.name}`, after the final norm"
    yield "Further carries", "`projected_state`, folded into `inputs_embeds`"
    yield (
        "Token embedding",
        f"`{pair.embedding.table}` of `{pair.holder.name}`, rows times {pair.embedding.scale}",
    )
    yield "Vocabulary", f"identical, {drafter.head.vocabulary} tokens"
    yield "Rolled back", f"{len(target.caches)} cells, every one of the target"
    yield (
        "distribution_preserving",
        "true: it binds the runtime, which verifies; no graph of the package does",
    )


def _v1(pair: Pair) -> Iterator[str]:
    table, scale = pair.embedding.table, pair.embedding.scale
    yield (
        f"The scale of the embedding. Whoever reads v1 and gathers rows of `{table}` must multiply them by {scale}: "
        "unscaled rows give fluent drafts that are nearly all refused, which no comparison of the output shows. "
        f"`{pair.embedding.artifact}` gives scaled rows; `component_contract.yaml`, `provenance.json` and "
        "`cabochon.embed_scale` of that graph and of the target's state the number."
    )
    yield "How the target verifies, and how far proposals were accepted: that is the runtime's."
    if (window := pair.drafter.window) is not None:
        yield (
            f"How wide a window is. The target's sliding layers see {window} keys and the drafter's {window + 1}; "
            "`cabochon.sliding_window` of both graphs states the former."
        )
    if len(pair.embedding.tables) > 1:
        yield (
            f"A table in parts: no binding of the target holds all its rows, {len(pair.embedding.tables)} weights do. "
            f"`token_embedding.table` names the first. `{pair.embedding.artifact}` looks up in all of them."
        )
    if pair.holder is not pair.target:
        yield (
            f"A table that `{pair.target.name}` has not: its head is another weight, and `{pair.holder.name}` looks up "
            f"tokens. `token_embedding.component` says so; other validators want it to be `{pair.target.name}`."
        )
    if pair.embedding.beside:
        beside = ", ".join(f"`{name}`" for name in pair.embedding.beside)
        yield (
            f"A table in blocks: `token_embedding.table` names its codes, and nothing names {beside}. Rows of codes "
            f"are no rows of numbers; `{pair.embedding.artifact}` makes numbers of them, as the target does."
        )
    if pair.quantized:
        yield BLOCKS


def _v18(pair: Pair) -> Iterator[str]:
    yield (
        "It adds `identity`, `version`, `verification` of the target's logits with the accepted prefix from the "
        f"runtime, `token_embedding.scale` ({pair.embedding.scale}), a `token_policy` of the runtime and the ids that "
        "end an answer."
    )
    yield (
        "`probabilities` are not stated: neither graph returns any, but logits. A runtime that holds to the letter "
        "then speculates in greedy decoding only, and refuses it in sampling."
    )
    yield "That a drafter's query has no key of its own, and where it stands: `component_contract.yaml` says so."


def _clients() -> Iterator[str]:
    yield "onnx-genai: its own validator is another set of rules; what it says is no part of the verdict above."
    yield (
        "onnxruntime-genai: no route for a drafter that reads another model's caches, so there is no genai_config.json "
        "here."
    )
    yield "cabochon's own runtime reads the graphs and their metadata properties, not this document."
