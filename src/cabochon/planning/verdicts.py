"""Which target can carry a package in which precision, what it takes, and why not."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod

from cabochon.dialects import TARGETS, Target
from cabochon.package.kinds import DRAFTER, FULL
from cabochon.planning.offers import Offer, refusal
from cabochon.planning.sizes import (
    MIB,
    Component,
    Weights,
    components,
    documents,
    look_up,
    pair_documents,
    weights,
)
from cabochon.recipes import PRECISIONS, Precision, Recipe
from cabochon.validation.kernels import TABLES

__all__ = ["ENCODER_OPERATORS", "INT32", "Verdict", "verdicts"]

INT32 = 2**31 - 1
# What encoders use beyond the operators of decoders. Where the tables say nothing of one, neither does a verdict.
ENCODER_OPERATORS = ("Conv", "Loop", "NonZero", "Softplus")


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


def verdicts(offer: Offer, drafter: Offer | None = None) -> Iterator[Verdict]:
    """All targets in all precisions, alone or in a pair with a drafter."""
    refused = refusal(offer, drafter)
    for target in TARGETS.values():
        for precision in PRECISIONS.values():
            yield _verdict(offer, drafter, refused, target, precision)


def _verdict(
    offer: Offer, drafter: Offer | None, refused: str, target: Target, precision: Precision
) -> Verdict:
    stored = [(part, weights(part, target, precision)) for part in (offer, drafter) if part]
    parts = tuple(_components(stored, target.provider))
    status, reasons = _status(offer, refused, target, precision.name)
    if status != "refused" and (granted := _buffers(target, [w for _, w in stored])):
        status, reasons = "conditional", [*reasons, granted]
    return Verdict(
        target.name,
        precision.name,
        offer.kind.name,
        status,
        "\n".join(reasons),
        sum(part.disk for part in parts),
        sum(part.memory for part in parts),
        parts,
        tuple(line for part, w in stored for line in _int32(part, w)),
    )


def _components(stored: list[tuple[Offer, Weights]], provider: str) -> Iterator[Component]:
    for offer, held in stored:
        yield from components(offer, held, provider)
    (target, held), *drafters = stored
    if drafters:
        yield look_up(held)
        yield pair_documents(target, drafters[0][0])
    else:
        yield documents(target)


def _status(offer: Offer, refused: str, target: Target, precision: str) -> tuple[str, list[str]]:
    drafter = offer.kind is DRAFTER
    if reason := refused or target.refusal(precision, offer.kind.head_sizes(offer.config)):
        return "refused", [reason]
    caveat = target.caveat(precision, drafter=drafter)
    if precision not in target.kernels and not (drafter and precision in target.attention_caveats):
        return "builds", [caveat] if caveat else []
    if reasons := [said for said in (caveat, _unknown(offer, target)) if said]:
        return "conditional", reasons
    return ("runs" if target.tested else "has kernels"), []


def _unknown(offer: Offer, target: Target) -> str:
    """The operators of the encoders of which it is not known whether the provider has kernels."""
    table = TABLES.get(target.provider)
    if offer.kind is not FULL or table is None:
        return ""
    unknown = [name for name in ENCODER_OPERATORS if ("", name) not in table.types]
    said = (
        f"it is not known whether {target.provider} has kernels of {', '.join(unknown)}, which encoders use"
    )
    return said if unknown else ""


def _int32(offer: Offer, weights: Weights) -> Iterator[str]:
    """What an int32 cannot count, and what becomes of it where the target counts so."""
    for name, tensor in offer.tensors.items():
        if prod(tensor.shape) > INT32:
            parts = [r for r in _distinct([weights]) if r.tensor is tensor]
            if len(parts) > 1:
                yield (
                    f"{name} has {prod(tensor.shape):,} elements, more than an int32 counts ({INT32:,}): it is split "
                    f"into {len(parts)} tables of {max(prod(r.shape) for r in parts):,} at most"
                )


def _distinct(every: Iterable[Weights]) -> Iterator[Recipe]:
    """Every weight, once where two graphs of a package have it."""
    for found in every:
        yield from {recipe.name: recipe for recipes in found.values() for recipe in recipes}.values()


def _buffers(target: Target, every: Iterable[Weights]) -> str:
    """What an adapter must grant beyond what every one does."""
    if target.binding is None:
        return ""
    large = [recipe.nbytes for recipe in _distinct(every) if recipe.nbytes > target.binding]
    if not large:
        return ""
    count = "1 tensor is" if len(large) == 1 else f"{len(large)} tensors are"
    return (
        f"{count} beyond the {target.binding // MIB} MiB that every adapter binds: the adapter must grant "
        f"{-(-max(large) // MIB):,} MiB for buffers and bindings"
    )
