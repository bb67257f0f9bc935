"""What is asked of a build, checked before anything is read."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cabochon.dialects import CONVERSIONS, TARGETS, Target
from cabochon.errors import PackageError, TargetError
from cabochon.recipes import Precision
from cabochon.recipes.recipe_file import find_precision
from cabochon.recipes.statistics import Statistics

__all__ = ["Order", "order"]

_MOST_KEPT = 2**31 - 1  # no model has as many positions


@dataclass(frozen=True)
class Order:
    """The options of a build that hold for each package it writes. `linking`: weights are linked where they can be."""

    target: Target
    precision: Precision
    linking: bool
    license: str | None
    allow_missing: Collection[str]
    logits_to_keep: int
    command: tuple[str, ...] | None


def order(
    target: str,
    precision: str | Path,
    weights: str,
    license: str | None,
    allow_missing: Collection[str],
    logits_to_keep: int,
    command: Sequence[str] | None,
    calibration: Statistics | None = None,
) -> Order:
    """`precision`: a name of the table, or the path of a recipe.

    Raises TargetError for what no target carries, ConfigError for a recipe that is not understood, PackageError for an
    option that means nothing.
    """
    if target in CONVERSIONS:
        raise TargetError(
            f"packages of {target!r} are converted from those of {CONVERSIONS[target].of}",
            remedy="cabochon.build does both, cabochon.openvino.convert the latter",
        )
    if target not in TARGETS:
        known = ", ".join([*TARGETS, *CONVERSIONS])
        raise TargetError(
            f"unknown target {target!r}; expected one of {known}", remedy="see `cabochon list targets`"
        )
    stored = find_precision(precision).on(TARGETS[target].storage)
    TARGETS[target].require(stored.activations, (), stored.methods)
    if weights not in ("copy", "link"):
        raise PackageError(f"weights is {weights!r}; expected 'copy' or 'link'")
    if license and not license.isprintable():
        raise PackageError(f"license is {license!a}; expected an identifier, such as apache-2.0")
    if not 0 <= logits_to_keep <= _MOST_KEPT:
        raise PackageError(f"logits_to_keep is {logits_to_keep}; expected 0, for all, or up to {_MOST_KEPT}")
    if logits_to_keep > 1 and TARGETS[target].mask != "anywhere":
        raise TargetError(
            f"logits_to_keep is {logits_to_keep}; the kernels of {target!r} keep all positions or the last one where "
            "there is more than one row",
            remedy="store 0 or 1, and feed the number with each call where there is one row",
        )
    if calibration is not None and "k-quant" not in stored.methods:
        raise PackageError(f"statistics are given, but {stored.name} searches for no scales")
    said = None if command is None else tuple(command)
    return Order(
        TARGETS[target],
        replace(stored, statistics=calibration),
        weights == "link",
        license,
        allow_missing,
        logits_to_keep,
        said,
    )
