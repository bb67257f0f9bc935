"""Whether an assistant drafts for a target: everything that its graph takes from the other must be the same there."""

from collections.abc import Iterator

from cabochon.errors import PackageError
from cabochon.gemma4 import DrafterConfig, Layer, TextConfig

__all__ = ["require_fit"]

_FAMILIES = {False: "a gemma4 model", True: "a gemma4_unified model"}


_PUBLISHED = {  # by layers and hidden size of the model that each assistant was made for
    (35, 1536): "google/gemma-4-E2B-it",
    (42, 2560): "google/gemma-4-E4B-it",
    (48, 3840): "google/gemma-4-12B-it",
    (30, 2816): "google/gemma-4-26B-A4B-it",
    (60, 5376): "google/gemma-4-31B-it",
}


def require_fit(target: TextConfig, drafter: DrafterConfig) -> None:
    """Raises PackageError that names everything in which the two differ, and the assistant of a target as published."""
    if differences := list(_differences(target, drafter)):
        model = _PUBLISHED.get((len(target.layers), target.hidden))
        raise PackageError(
            "the assistant does not fit the target: " + "; ".join(differences),
            at="config.json of the assistant",
            remedy="give the assistant that was made for this target"
            + (f": {model}-assistant, if it is {model} or was made from it" if model else ""),
        )


def _differences(target: TextConfig, drafter: DrafterConfig) -> Iterator[str]:
    own = drafter.text
    if own.unified != target.unified:
        yield f"it drafts for {_FAMILIES[own.unified]}, the target is {_FAMILIES[target.unified]}"
    yield from _differs("backbone_hidden_size", drafter.backbone, "hidden_size", target.hidden)
    yield from _differs("vocab_size", own.vocab, "vocab_size", target.vocab)
    yield from _differs("sliding_window", own.window, "sliding_window", target.window)
    for kind, layer in own.kinds.items():
        anchor = _anchor(target, kind)
        if anchor is None:
            yield f"its {kind} layers have none of the target's to read"
            continue
        yield from _differs(f"head_dim of {kind}", layer.head_dim, "head_dim", anchor.head_dim)
        yield from _differs(f"key/value heads of {kind}", layer.kv_heads, "key/value heads", anchor.kv_heads)
        yield from _differs(f"rope of {kind}", own.rope[kind], "rope", target.rope[kind])


def _anchor(target: TextConfig, kind: str) -> Layer | None:
    """The last owner of a kind."""
    return next((target.layers[i] for i in reversed(target.owners) if target.layers[i].kind == kind), None)


def _differs(name: str, own: object, theirs: str, other: object) -> Iterator[str]:
    if own != other:
        yield f"its {name} is {own}, the target's {theirs} {other}"
