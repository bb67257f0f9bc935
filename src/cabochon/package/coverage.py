"""What a package stores, counted: bytes by component, role and kind of storage, which sum to its files of weights."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from math import prod

from cabochon.checkpoint import Tensor
from cabochon.dialects.targets import whole_name
from cabochon.errors import PackageError
from cabochon.gemma4.names import HEAD, LAYERS_TABLE, TABLE
from cabochon.packing import Scheme
from cabochon.recipes import Precision, Weight
from cabochon.recipes.addresses import address
from cabochon.recipes.part import Part

__all__ = ["Coverage", "Line", "coverage", "require_planned", "sources"]

_TABLES = (LAYERS_TABLE, TABLE, HEAD)  # those that may be stored as several, by layers or by rows


@dataclass(frozen=True)
class Line:
    """The weights of one role that are stored alike: `count` of the checkpoint's tensors, with all that belongs to
    them.

    `precision`: "f16", or as `scheme` is spelled. `parameters`: their numbers; 0 for ids, which are none.
    """

    component: str
    role: str
    precision: str
    scheme: Scheme | None
    count: int
    parameters: int
    nbytes: int


@dataclass(frozen=True)
class Coverage:
    """Everything that the files of weights hold. `parameters` counts a tensor once that is stored twice, in two ways;
    `rest` is what is in the files beside weights: padding, and of linked files whatever the package does not use."""

    lines: tuple[Line, ...]
    parameters: int
    rest: int

    @property
    def nbytes(self) -> int:
        """The bytes of the files of weights, each counted once."""
        return sum(line.nbytes for line in self.lines) + self.rest

    @property
    def bits_per_weight(self) -> float:
        """Bits that a parameter of the model takes, all of them together."""
        return 8 * sum(line.nbytes for line in self.lines) / self.parameters


def coverage(weights: Mapping[str, Iterable[Weight]], files: Iterable[int], component: str) -> Coverage:
    """The lines of `weights`, by graph, in files of these sizes; `component`: what owns a weight that is no tower's.

    A weight that two graphs have is counted once. Raises PackageError where the files are too small.
    """
    distinct = {weight.name: weight for each in weights.values() for weight in each}
    groups: dict[tuple[str, str, str], list[Weight]] = {}
    for weight in distinct.values():
        of, _, role = address(_whole(weight), component).partition("/")
        groups.setdefault((of, role, _stored_as(weight)), []).append(weight)
    lines = tuple(_line(*key, group) for key, group in groups.items())
    rest = sum(files) - sum(line.nbytes for line in lines)
    if rest < 0:
        raise PackageError(
            f"the weights take {-rest:,} bytes more than the files that hold them",
            remedy="this is a fault of cabochon: report it",
        )
    return Coverage(lines, _parameters(distinct.values()), rest)


def require_planned(weights: Mapping[str, Iterable[Weight]], precision: Precision) -> None:
    """Raise PackageError where a weight stays floating that `precision`, fitted to the model, wants in blocks."""
    odd = sorted(
        weight.name
        for each in weights.values()
        for weight in each
        if not isinstance(weight, Part)
        and len(weight.tensor.shape) == 2
        and precision.scheme(_whole(weight)) is not None
    )
    if odd:
        raise PackageError(
            f"the recipe {precision.name} stores in blocks what stays floating: {', '.join(odd[:5])}"
            + (f" and {len(odd) - 5} more" if len(odd) > 5 else ""),
            remedy="this is a fault of cabochon: report it",
        )


def sources(weights: Mapping[str, Iterable[Weight]]) -> dict[str, str]:
    """The names in the checkpoint's files of all that is stored, by the name that the weight has in a graph."""
    return {_whole(weight): weight.tensor.name for each in weights.values() for weight in each}


def _whole(weight: Weight) -> str:
    """The canonical name of the weight that this is all or a part of."""
    name = weight.name
    if isinstance(weight, Part) and weight.what != "codes":
        name = name.removesuffix(f"_{weight.what}")
    whole = whole_name(name)
    return next((table for table in _TABLES if whole.startswith(table.removesuffix("weight"))), whole)


def _stored_as(weight: Weight) -> str:
    return str(weight.packing.scheme) if isinstance(weight, Part) else weight.precision


def _line(component: str, role: str, precision: str, group: Collection[Weight]) -> Line:
    scheme = next((weight.packing.scheme for weight in group if isinstance(weight, Part)), None)
    count, nbytes = len(_tensors(group)), sum(weight.nbytes for weight in group)
    return Line(component, role, precision, scheme, count, _parameters(group), nbytes)


def _parameters(weights: Iterable[Weight]) -> int:
    """The numbers of their tensors, but for ids."""
    return sum(prod(tensor.shape) for tensor in _tensors(weights).values() if tensor.dtype != "I64")


def _tensors(weights: Iterable[Weight]) -> dict[str, Tensor]:
    return {tensor.name: tensor for weight in weights for tensor in weight.sources}
