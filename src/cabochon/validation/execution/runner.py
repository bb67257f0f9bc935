"""A graph in an onnxruntime session, on the provider of its target where that is installed."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cabochon.errors import CabochonError, PackageError
from cabochon.validation.graph import Graph

__all__ = ["UNDRIVEN", "Runner", "natural", "undriven", "unfeedable"]

_SMALL = 64 << 20  # bytes of weights up to which a second thread costs more than it gives
_LONGEST = 400  # characters of a message of onnxruntime
# What a graph or a document that contradicts the other makes of a run: onnxruntime refuses, or numpy does.
UNDRIVEN = (CabochonError, ValueError, IndexError, KeyError)


class Runner:
    """A loaded graph and one method that runs it. `provider` is the one that runs it."""

    def __init__(self, graph: Graph) -> None:
        """Raises PackageError where onnxruntime cannot load the graph."""
        import onnxruntime as ort

        from cabochon.runtime.onnx_graph import CPU, chosen_provider

        options: Any = ort.SessionOptions()
        options.log_severity_level = 4  # faults are raised
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # runs are short and many
        if sum(weight.nbytes for weight in graph.initializers.values()) < _SMALL:
            options.intra_op_num_threads = 1
        self.graph = graph
        target = graph.properties.get("cabochon.target")
        chosen = chosen_provider(None, target, ort.get_available_providers())
        try:
            self._session: Any = ort.InferenceSession(
                graph.root / graph.path, options, providers=list(dict.fromkeys([chosen, CPU]))
            )
        except Exception as error:  # onnxruntime raises a class of its own for each status
            raise _fault(graph, "cannot load the graph", error) from None
        self.provider: str = self._session.get_providers()[0]

    def run(
        self,
        feeds: Mapping[str, np.ndarray],
        shared: Mapping[str, str] | None = None,
        fetched: Sequence[str] | None = None,
    ) -> dict[str, np.ndarray]:
        """The outputs (all, or those of `fetched`) by name.

        `shared`: input -> output that is bound to the very memory of that input's array; it does not come back, since
        it is there. Raises PackageError where onnxruntime fails.
        """
        import onnxruntime as ort

        shared = shared or {}
        values = {
            name: ort.OrtValue.ortvalue_from_numpy(np.asarray(a, order="C")) for name, a in feeds.items()
        }
        names = [name for name in self.graph.ports.outputs if fetched is None or name in fetched]
        asked = [name for name in names if name not in shared.values()]
        try:
            binding = self._session.io_binding()
            for name, value in values.items():
                binding.bind_ortvalue_input(name, value)  # the only binding that takes an optional input
            for name in asked:
                binding.bind_output(name, "cpu")
            for taken, given in shared.items():
                binding.bind_ortvalue_output(given, values[taken])
            self._session.run_with_iobinding(binding)
            made = binding.get_outputs()[: len(asked)]
            return {name: value.numpy().copy() for name, value in zip(asked, made, strict=True)}
        except Exception as error:  # onnxruntime raises a class of its own for each status
            raise _fault(self.graph, "cannot run the graph", error) from None


def undriven(error: Exception) -> str:
    """Why a run could not be made."""
    if isinstance(error, CabochonError):
        return error.message
    return f"what the document says cannot be fed: {type(error).__name__}: {error}"[:_LONGEST]


def natural(graph: Graph) -> str:
    """The provider that the graph was built for; that of the CPU where the graph does not say."""
    from cabochon.dialects import TARGETS
    from cabochon.runtime.onnx_graph import CPU

    target = TARGETS.get(graph.properties.get("cabochon.target", ""))
    return target.provider if target else CPU


def unfeedable(graph: Graph) -> str:
    """Why onnxruntime cannot be fed this graph from Python; "" where it can."""
    ports = {**graph.ports.inputs, **graph.ports.outputs}.values()
    odd = sorted({port.dtype for port in ports} - _FEEDABLE)
    return f"{graph.path}: onnxruntime takes no {' or '.join(odd)} arrays from Python" if odd else ""


_FEEDABLE = {
    "bool",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *(f"float{bits}" for bits in (16, 32, 64)),
}


def _fault(graph: Graph, what: str, error: Exception) -> PackageError:
    import onnxruntime as ort

    text = " ".join(str(error).split())[:_LONGEST]
    return PackageError(
        f"onnxruntime {ort.__version__} {what}: {text}",
        at=graph.path,
        remedy="build the package again, or correct what the document says of these ports",
    )
