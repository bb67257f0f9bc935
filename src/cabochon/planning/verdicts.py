"""Which target can carry a package in which precision, what it takes, and why not."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import prod

from cabochon.dialects import CONVERSIONS, TARGETS, Target
from cabochon.errors import ConfigError
from cabochon.package.kinds import DRAFTER
from cabochon.planning.offers import Offer, refusal
from cabochon.planning.operators import left_to_another, unknown
from cabochon.planning.sizes import (
    MIB,
    Component,
    Sized,
    Weights,
    components,
    converted_graphs,
    described,
    documents,
    look_up,
    pair_documents,
    weights,
)
from cabochon.recipes import Precision
from cabochon.recipes.recipe_file import require_applicable

__all__ = ["INT32", "Verdict", "verdicts"]

INT32 = 2**31 - 1


@dataclass(frozen=True)
class Verdict:
    """One target in one precision, for one kind of package: `model` is "text", "full" or "drafter", as
    `cabochon build --model` takes it. With an assistant it is that of a pair.

    `status` is "runs": the tests run it on this provider; "has kernels": the provider has them, and the tests run the
    graph on the CPU; "conditional": so, where `reason` holds; "builds": the package is right, but its provider lacks
    kernels; "refused": it is not built. `reason` has one a line. `disk` and `memory` (to run, without caches) are in
    bytes, and the sums of those of `components`.
    """

    target: str
    precision: str
    model: str
    status: str
    reason: str
    disk: int
    memory: int
    components: tuple[Component, ...]
    warnings: tuple[str, ...]


def verdicts(offer: Offer, drafter: Offer | None, precisions: Iterable[Precision]) -> Iterator[Verdict]:
    """All targets in all of the `precisions`, alone or in a pair with a drafter."""
    refused = refusal(offer, drafter)
    parts = [part for part in (offer, drafter) if part]
    said = pair_documents(offer, drafter) if drafter else documents(offer)
    held, idle = _Held(parts), {precision.name: _idle(parts, precision) for precision in precisions}
    for target in (*TARGETS.values(), *(conversion.target for conversion in CONVERSIONS.values())):
        for precision in precisions:
            known = precision.on(target.storage)
            stored = list(zip(parts, held(target, known), strict=True))
            yield _verdict(stored, said, refused or idle[precision.name], target, known)


def _idle(parts: list[Offer], precision: Precision) -> str:
    """What rule of a recipe fits nothing, for which it is refused; "" where all do."""
    try:
        for part in parts:
            require_applicable(precision, part.tensors, part.kind.component)
    except ConfigError as error:
        return f"{error.at}: {error.message}"
    return ""


class _Held:
    """What each of `parts` stores, reckoned once for all targets that store it alike."""

    def __init__(self, parts: list[Offer]) -> None:
        self._parts, self._known = parts, dict[tuple[object, ...], list[Weights]]()

    def __call__(self, target: Target, known: Precision) -> list[Weights]:
        key = (known.activations, known.rules, known.across, target.table_per_layer, target.binding)
        if key not in self._known:
            self._known[key] = [weights(part, target, known) for part in self._parts]
        return self._known[key]


def _verdict(
    stored: list[tuple[Offer, Weights]], said: Component, refused: str, target: Target, known: Precision
) -> Verdict:
    """That of a precision with nothing left open; `said`: the documents as they are without weights in blocks."""
    offer, more = stored[0][0], sum(described(held) for _, held in stored)
    more += sum(converted_graphs(part) for part, _ in stored) if target.converted else 0
    components = (*_components(stored, target), replace(said, disk=said.disk + more))
    status, reasons = _status(offer, refused, target, known)
    if status != "refused" and (granted := _buffers(target, [w for _, w in stored])):
        status, reasons = "conditional", [*reasons, granted]
    return Verdict(
        target.name,
        known.name,
        offer.kind.name,
        status,
        "\n".join(reasons),
        sum(part.disk for part in components),
        sum(part.memory for part in components),
        components,
        tuple(_warnings(stored, status, target, known)),
    )


def _warnings(
    stored: list[tuple[Offer, Weights]], status: str, target: Target, known: Precision
) -> Iterator[str]:
    """What to know of methods that the target carries, and of what is split."""
    if status != "refused":
        yield from (target.caveats[name] for name in sorted(known.methods) if name in target.caveats)
        yield from left_to_another(stored[0][0], target)
    yield from (line for part, held in stored for line in _int32(part, held))


def _components(stored: list[tuple[Offer, Weights]], target: Target) -> Iterator[Component]:
    for offer, held in stored:
        yield from components(offer, held, target)
    if len(stored) > 1:
        yield look_up(stored[0][1], target)


def _status(offer: Offer, refused: str, target: Target, known: Precision) -> tuple[str, list[str]]:
    drafter, activations = offer.kind is DRAFTER, known.activations
    heads = offer.kind.head_sizes(offer.config)
    if reason := refused or target.refusal(activations, heads, known.methods):
        return "refused", [reason]
    caveat = target.caveat(activations, drafter=drafter)
    if activations not in target.kernels and not (drafter and activations in target.attention_caveats):
        return "builds", [caveat] if caveat else []
    if reasons := [said for said in (caveat, *unknown(offer, target)) if said]:
        return "conditional", reasons
    return ("runs" if target.tested else "has kernels"), []


def _int32(offer: Offer, weights: Weights) -> Iterator[str]:
    """What an int32 cannot count, and what becomes of it where the target counts so."""
    for name, tensor in offer.tensors.items():
        if prod(tensor.shape) > INT32:
            stem = name.removesuffix("weight")
            parts = [part for part in _distinct([weights]) if part.name.startswith(stem) and part.numbers]
            if len(parts) > 1:
                yield (
                    f"{name} has {prod(tensor.shape):,} elements, more than an int32 counts ({INT32:,}): it is split "
                    f"into {len(parts)} tables of {max(part.numbers for part in parts):,} at most"
                )


def _distinct(every: Iterable[Weights]) -> Iterator[Sized]:
    """Every weight, once where two graphs of a package have it."""
    for found in every:
        seen = set[str]()
        for parts in found.values():
            yield from (part for part in parts if part.name not in seen)
            seen |= {part.name for part in parts}


def _buffers(target: Target, every: Iterable[Weights]) -> str:
    """What an adapter must grant beyond what every one does."""
    if target.binding is None:
        return ""
    large = [part.nbytes for part in _distinct(every) if part.nbytes > target.binding]
    if not large:
        return ""
    count = "1 tensor is" if len(large) == 1 else f"{len(large)} tensors are"
    return (
        f"{count} beyond the {target.binding // MIB} MiB that every adapter binds: the adapter must grant "
        f"{-(-max(large) // MIB):,} MiB for buffers and bindings"
    )
