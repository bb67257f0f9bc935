"""What is known of a converted package when its graphs stand; its documents are written from nothing else."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cabochon.openvino.source import EPCONTEXT, Source
from cabochon.package.writer import Digest
from cabochon.validation.net import Net

__all__ = ["Made", "constants"]


@dataclass(frozen=True)
class Made:
    """`source`: what was converted; `target`: into what; `nets`: the graphs by their folders, "" for the package's own;
    `digests`: of graphs and weights; `travelled`: the files that came along unchanged, and what each is."""

    source: Source
    target: str
    nets: Mapping[str, Net]
    stateful: bool
    command: tuple[str, ...] | None
    digests: Mapping[str, Digest]
    travelled: Mapping[str, str]

    @property
    def wrapped(self) -> bool:
        """Whether there are EPContext nodes."""
        return self.target == EPCONTEXT

    @property
    def properties(self) -> Mapping[str, str]:
        """Those of the graph that the package is named by."""
        return self.source.properties

    @property
    def precision(self) -> str:
        """How weights are stored."""
        return self.properties["cabochon.precision"]

    @property
    def activations(self) -> str:
        """The type of ports and activations: f32, f16 or bf16."""
        return self.properties.get("cabochon.activations", self.precision)

    @property
    def origins(self) -> Iterator[Mapping[str, Any]]:
        """The checkpoints, as the package's record speaks of them: its own first."""
        names = ("assistant", "target") if self.source.kind in ("drafter", "pair") else ("target",)
        return (self.source.record[name] for name in names if name in self.source.record)

    @property
    def decoder(self) -> Net:
        """The graph that decodes, or drafts."""
        return next(iter(self.nets.values()))


def constants(net: Net) -> dict[str, dict[str, int]]:
    """By element type the number of constants, and the bytes they take; what several share counts once."""
    count = Counter(constant.dtype for constant in net.constants)
    places = {(constant.dtype, constant.offset): int(constant.size or 0) for constant in net.constants}
    nbytes = Counter[str]()
    for (dtype, _), size in places.items():
        nbytes[dtype] += size
    return {dtype: {"count": count[dtype], "bytes": nbytes[dtype]} for dtype in sorted(count)}
