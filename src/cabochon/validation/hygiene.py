"""Hygiene: what the weights hold. One reading of each file serves these rules and the checksums."""

from collections.abc import Iterator

from cabochon.validation.findings import Severity
from cabochon.validation.opened import Opened
from cabochon.validation.ranges import Place, constants, places
from cabochon.validation.rules import Found, rule
from cabochon.validation.scan import Tally

_NEEDS = ("weights",)


def _tallied(package: Opened) -> Iterator[tuple[str, Place, Tally]]:
    """The address of each floating-point weight (of tied ones the first), its place, and what it holds."""
    for place, names in places(package).items():
        if tally := package.scan.tallies.get(place):
            yield names[0], place, tally


@rule("HYG001", Severity.ERROR, _NEEDS)
def no_number(package: Opened) -> Iterator[Found]:
    """A weight holds values that are no finite numbers.

    Causes: A checkpoint of a training that diverged, a file that was damaged, bytes that belong to another type.
    Remedy: Take another checkpoint; check this one with its publisher's checksums.
    """
    for at, place, tally in _tallied(package):
        infinite = 0 if place.dtype == "float16" else tally.infinite
        if tally.nans or infinite:
            yield Found(at, f"{tally.nans} that are not a number, {infinite} infinite", "finite numbers")


@rule("HYG002", Severity.ERROR, _NEEDS)
def overflow(package: Opened) -> Iterator[Found]:
    """A 16-bit weight has overflowed.

    Causes: A value beyond 65504 that was cast to f16: it became infinite, and so will what is computed with it.
    Remedy: Build with --precision f32 or bf16, which hold it.
    """
    for at, place, tally in _tallied(package):
        if place.dtype == "float16" and tally.infinite:
            yield Found(at, f"{tally.infinite} infinite values", "values of at most 65504")


@rule("HYG003", Severity.NOTE, _NEEDS)
def saturated(package: Opened) -> Iterator[Found]:
    """A 16-bit weight holds the largest value that there is.

    Causes: A value beyond 65504 that was clipped when it was cast to f16; seldom, a weight that really is 65504.
    Remedy: Compare with the checkpoint: cabochon validate PACKAGE --source SOURCE.
    """
    for at, place, tally in _tallied(package):
        if place.dtype == "float16" and tally.largest:
            yield Found(at, f"{tally.largest} values of ±65504", "values that f16 holds with room to spare")


@rule("HYG004", Severity.WARNING, _NEEDS)
def zero_matrix(package: Opened) -> Iterator[Found]:
    """A matrix is all zeros.

    Causes: A checkpoint whose weights were never trained or not loaded, a sparse file that was copied as a hole, values
    so small that f16 has none of them.
    Remedy: Look at the tensor in the checkpoint; where it is not zero there, build again.
    """
    matrices = {
        f"{g.path}: {name}"
        for g in package.graphs.values()
        for name, w in g.tensors.items()
        if len(w.shape) > 1
    } | {one.at for one in constants(package) if len(one.shape) > 1 and max(one.shape) > 1}
    for at, _, tally in _tallied(package):
        if at in matrices and not tally.nonzero:
            yield Found(at, "nothing but zeros", "a matrix with some other value")
