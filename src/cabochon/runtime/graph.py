"""What the runtime asks of whatever runs a graph: its ports, values for them, and one method that runs it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from cabochon.runtime.onnx_graph import OnnxGraph
from cabochon.runtime.openvino_graph import OpenVinoGraph
from cabochon.runtime.ports import Argument
from cabochon.runtime.properties import IR

__all__ = ["Graph", "Value", "open_graph"]


class Value(Protocol):
    """A tensor of a graph, where that keeps it. onnxruntime's OrtValue is one."""

    def shape(self) -> Sequence[int]:
        """Its axes."""
        ...

    def numpy(self) -> np.ndarray:
        """What it holds, in host memory; perhaps a view that keeps nothing alive."""
        ...

    def tensor_size_in_bytes(self) -> int:
        """Bytes."""
        ...


class Graph(Protocol):
    """A loaded graph.

    `provider` names what runs it, `device` where its values live: "cpu" is host memory that a caller may give for
    them, "request" memory of the graph's own, in the host too.
    """

    provider: str
    device: str

    @property
    def settings(self) -> Mapping[str, str]:
        """What the provider says of how it computes; {} where it says nothing."""
        ...

    @property
    def metadata(self) -> Mapping[str, str]:
        """The metadata properties of the file."""
        ...

    @property
    def inputs(self) -> Mapping[str, Argument]:
        """Inputs that must be given, by name."""
        ...

    @property
    def optional(self) -> Mapping[str, Argument]:
        """Inputs that may be left out."""
        ...

    @property
    def outputs(self) -> Mapping[str, Argument]:
        """Outputs by name."""
        ...

    def put(self, array: np.ndarray) -> Value:
        """A value of the graph."""
        ...

    def run(
        self,
        arrays: Mapping[str, np.ndarray],
        values: Mapping[str, Any],
        fetched: Sequence[str],
        kept: Mapping[str, Any],
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Run once. `fetched` outputs come back as arrays; `kept` ones are written into the value given for each.

        Both come in the order asked for. None instead of a value leaves the allocation to the graph.
        """
        ...


def open_graph(path: Path, **options: Any) -> Graph:
    """Load a graph into what its file is made for; `options` are those of `OnnxGraph`."""
    return OpenVinoGraph(path, **options) if path.suffix == IR else OnnxGraph(path, **options)
