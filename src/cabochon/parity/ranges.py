"""The f16 range report: the largest magnitude each value of a graph takes, against the largest finite f16.

A run on a CPU cannot show an overflow: onnxruntime keeps f16 intermediates in f32 there. So the f32 twin is
run with a maximum taken of every value, and the report names each one that f16 could not hold. What stands in bodies of
loops is not seen: what goes in and what comes out is.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cabochon.errors import ParityError
from cabochon.evidence import identity, versions, write
from cabochon.parity.prompts import Prompt
from cabochon.parity.subject import Subject
from cabochon.parity.widened import read_graph, widen

__all__ = ["F16_MAX", "Edge", "RangeReport", "ranges"]

F16_MAX = 65504.0
PREFIX = "largest/"
Fed = Callable[[Subject], Iterable[tuple[str, Mapping[str, np.ndarray]]]]
"""Runs a subject: prompts by name, and what it said of each."""
HOW = (
    "f32 twin on onnxruntime CPU with Abs and ReduceMax on every value of the graph. Parity on a CPU cannot show an "
    "overflow: onnxruntime keeps f16 intermediates in f32 there. Values inside fused kernels and inside loops "
    "(experts, attention of encoders) are not seen."
)


@dataclass(frozen=True)
class Edge:
    """A value of the graph and its largest magnitude.

    op: the operator that makes it. weight: the checkpoint tensor which that reads, if any. prompt: where the
    maximum was met.
    """

    name: str
    op: str
    weight: str | None
    maximum: float
    prompt: str

    @property
    def severity(self) -> str:
        """error above what f16 holds (or where it is no number), warning above half of it, else fine."""
        if not self.maximum <= F16_MAX:
            return "error"
        return "warning" if self.maximum > F16_MAX / 2 else "fine"


@dataclass(frozen=True)
class RangeReport:
    """Every floating value that depends on the input, the largest first."""

    edges: tuple[Edge, ...]

    @property
    def errors(self) -> tuple[Edge, ...]:
        """Values f16 cannot hold."""
        return tuple(edge for edge in self.edges if edge.severity == "error")

    @property
    def warnings(self) -> tuple[Edge, ...]:
        """Values within a factor of two of what f16 holds."""
        return tuple(edge for edge in self.edges if edge.severity == "warning")

    @property
    def passed(self) -> bool:
        """True when values were seen and f16 holds them all."""
        return bool(self.edges) and not self.errors

    @property
    def summary(self) -> str:
        """One line."""
        top = self.edges[0]
        return (
            f"{len(self.edges)} values, {len(self.errors)} beyond f16, {len(self.warnings)} near its end; "
            f"largest {top.maximum:.6g} in {top.name}" + (f" ({top.weight})" if top.weight else "")
        )

    def document(self, prompts: Sequence[Prompt], facts: Mapping[str, Any]) -> dict[str, Any]:
        """f16_range.json: every error and warning, and the twenty largest."""
        named = [*self.errors, *self.warnings]
        return {
            "what": "largest magnitude of each half-precision value over all prompts, against 65504",
            "how": HOW,
            "passed": self.passed,
            "limit": F16_MAX,
            "values": len(self.edges),
            "findings": [{"severity": edge.severity, **asdict(edge)} for edge in named],
            "largest": [asdict(edge) for edge in self.edges[:20]],
            "prompts": [prompt.described() for prompt in prompts],
            **facts,
        }


def ranges(
    package: str | Path,
    prompts: Sequence[Prompt],
    *,
    threads: int | None = None,
    scratch: str | Path | None = None,
    save: bool = True,
) -> RangeReport:
    """Measures every value of the graph over `prompts`; with `save`, writes evidence/f16_range.json.

    In an f16 or bf16 package the values of that type count; in an f32 package all do, also those that an f16
    build would keep in f32 (statistics of norms), so there the report is the stricter one.
    """
    package = Path(package)
    with tempfile.TemporaryDirectory(prefix="cabochon-ranges-", dir=scratch) as place:
        widen(package, Path(place))
        report = measure(package, Path(place), prompts, threads)
    if save:
        metadata = {item.key: item.value for item in read_graph(package).metadata_props}
        facts = {"package": identity(package, metadata), "versions": versions("torch", "transformers")}
        write(package, "f16_range.json", report.document(prompts, facts))
    return report


def measure(package: Path, twin: Path, prompts: Sequence[Prompt], threads: int | None = None) -> RangeReport:
    """The report of a package whose f32 twin lies in the folder `twin` already."""

    def fed(subject: Subject) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
        return ((prompt.name, subject.named(prompt.ids, PREFIX)) for prompt in prompts)

    return RangeReport(in_order(measured(package, twin, fed, threads)))


def in_order(edges: Iterable[Edge]) -> tuple[Edge, ...]:
    """The largest first, what is no number before all."""
    return tuple(sorted(edges, key=lambda edge: -np.nan_to_num(edge.maximum, nan=np.inf)))


def measured(package: Path, twin: Path, fed: Fed, threads: int | None = None) -> list[Edge]:
    """Every value of a graph, with the largest magnitude that was met.

    `package` and `twin` are the folders of the graph and of its f32 twin; `fed` runs a subject on every prompt that
    there is, and gives the outputs whose names start with PREFIX.
    """
    import onnx

    model = onnx.load_model(str(twin / "model.onnx"), load_external_data=False)
    edges = dict(_edges(read_graph(package)))
    _take_maxima(model.graph, edges)
    onnx.save_model(model, str(twin / "ranges.onnx"))
    subject = Subject.open(twin / "ranges.onnx", threads=threads)
    largest: dict[str, tuple[float, str]] = {}
    for prompt, values in fed(subject):
        for name, value in values.items():
            maximum = float(value)
            if name not in largest or not maximum <= largest[name][0]:  # NaN counts as largest
                largest[name] = (maximum, prompt)
    return [Edge(name, *made, *largest[PREFIX + name]) for name, made in edges.items()]


def _edges(model: Any) -> Iterator[tuple[str, tuple[str, str | None]]]:
    """The values that depend on the input and have the type of the first output: name, operator, weight."""
    graph = model.graph
    types = {v.name: v.type.tensor_type.elem_type for v in [*graph.value_info, *graph.input, *graph.output]}
    weights = {t.name: t.name for t in graph.initializer if t.name.startswith(("model.", "lm_head."))}
    fed = {value.name for value in graph.input} - {tensor.name for tensor in graph.initializer}
    for node in graph.node:
        weight = next((weights[name] for name in node.input if name in weights), None)
        if not fed.intersection(node.input):  # a transposed weight is that weight
            weights |= dict.fromkeys(node.output, weight) if weight else {}
            continue
        for name in filter(None, node.output):
            fed.add(name)
            if name not in types:
                raise ParityError(
                    f"value {name!r} has no type, so its range cannot be judged", at="model.onnx"
                )
            if types[name] == types[graph.output[0].name]:
                yield name, (node.op_type, weight)


def _take_maxima(graph: Any, edges: Iterable[str]) -> None:
    """Adds a scalar output for each edge: ReduceMax(Abs(edge))."""
    from onnx import ValueInfoProto, helper

    for name in edges:
        magnitude = f"magnitude/{name}"
        graph.node.append(helper.make_node("Abs", [name], [magnitude]))
        graph.node.append(helper.make_node("ReduceMax", [magnitude], [PREFIX + name], keepdims=0))
        graph.output.append(ValueInfoProto(name=PREFIX + name))
