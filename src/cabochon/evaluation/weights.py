"""What the weights of a package take, and how many there are: read off its graphs, not off its promises."""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cabochon.runtime.folder import graph_file
from cabochon.runtime.properties import IR
from cabochon.validation.net import read_net

if TYPE_CHECKING:
    import onnx

__all__ = ["Weights", "weigh"]

_FLOATS = ("FLOAT", "FLOAT16", "BFLOAT16")


@dataclass(frozen=True)
class Weights:
    """Bytes of all weights of a package, and how many parameters they are; None where nothing says it.

    What several graphs, or several names in one graph, have in common counts once; what is between tensors does not.
    """

    nbytes: int
    parameters: int | None

    @property
    def bits(self) -> float | None:
        """Bits of a parameter on average, scales and zero points of quantized ones included."""
        return 8 * self.nbytes / self.parameters if self.parameters else None


def weigh(package: Path) -> Weights:
    """The weights of a package on disk. Of quantized ones provenance.json says how many parameters they hold."""
    graphs = [graph_file(folder) for folder in (package, *sorted(package.iterdir()))]
    if any(graph is not None and graph.suffix == IR for graph in graphs):
        return _weigh_ir([g for g in graphs if g is not None and g.parent != package / "target"], package)
    ranges: dict[tuple[int, int, int], tuple[int, bool, int]] = {}
    for graph in [package / "model.onnx", *sorted(package.glob("*/model.onnx"))]:
        if graph.is_file() and graph.parent != package / "target":  # of a pair, a package of its own
            ranges |= dict(_ranges(graph))
    floats = all(is_float for _, is_float, _ in ranges.values())
    known = sum(elements for _, _, elements in ranges.values()) if floats else _stated(package)
    return Weights(sum(nbytes for nbytes, _, _ in ranges.values()), known)


def _weigh_ir(graphs: Sequence[Path], package: Path) -> Weights:
    """Of OpenVINO's IR: the constants that are named as weights are. Two graphs have nothing in common."""
    found = [(graph, c) for graph in graphs for c in read_net(graph.parent, graph.name).constants]
    weights = {
        (graph, c.offset): c for graph, c in found if c.layer.startswith(("model.", "lm_head."))
    }.values()
    floats = all(c.dtype in ("f32", "f16", "bf16") for c in weights)
    known = sum(math.prod(c.shape) for c in weights) if floats else _stated(package)
    return Weights(sum(c.nbytes for c in weights), known)


def _ranges(graph: Path) -> Iterator[tuple[tuple[int, int, int], tuple[int, bool, int]]]:
    """Each range of a file that holds a tensor: its bytes, whether they are floats, and how many."""
    import onnx

    for tensor in onnx.load(graph, load_external_data=False).graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            said = {entry.key: entry.value for entry in tensor.external_data}
            file = (graph.parent / said["location"]).stat()
            nbytes = int(said.get("length") or file.st_size)
            place = file.st_dev, file.st_ino, int(said.get("offset") or 0)
            yield place, (nbytes, _type(tensor) in _FLOATS, _elements(tensor))


def _type(tensor: "onnx.TensorProto") -> str:
    return type(tensor).DataType.Name(tensor.data_type)


def _elements(tensor: "onnx.TensorProto") -> int:
    count = 1
    for size in tensor.dims:
        count *= size
    return count


def _stated(package: Path) -> int | None:
    """The parameters that provenance.json states of what is stored."""
    try:
        count = json.loads((package / "provenance.json").read_text("utf-8"))["build"]["stored"]["parameters"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return count if isinstance(count, int) and count > 0 else None
