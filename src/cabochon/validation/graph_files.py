"""The files of graphs: they can be read, ONNX's own checks pass, weights lie beside them."""

from collections.abc import Iterator

import onnx
from onnx import ModelProto, TensorProto

from cabochon.validation.findings import Severity
from cabochon.validation.graph import Graph
from cabochon.validation.memo import once
from cabochon.validation.opened import Opened
from cabochon.validation.rules import Found, rule

_INLINE_LIMIT = (
    1 << 17
)  # bytes; more than any constant of a graph (E2B's distances take 102,400), less than any matrix
_SHOWN = 200  # characters of a message of onnx's own


@rule("FIL011", Severity.ERROR)
def unreadable_graph(package: Opened) -> Iterator[Found]:
    """A graph cannot be read.

    Causes: A file that was cut off or damaged, that is a pointer of Git LFS, or that is no ONNX at all; ports without a
    name, a type or a rank.
    Remedy: Build or download the package again (with Git: git lfs pull).
    """
    yield from package.faults.get("FIL011", ())


@rule("FIL012", Severity.ERROR)
def refused_graph(package: Opened) -> Iterator[Found]:
    """ONNX's own checker refuses a graph.

    Causes: An operator or attribute that the stated opset does not have, nodes out of order, a value made twice.
    Remedy: Build the package again; if it was built by cabochon, report it.
    """
    for graph in package.graphs.values():
        try:
            onnx.checker.check_model(once(graph, _without_weights))
        except Exception as error:  # ValidationError, and for broken protos whatever its C++ throws
            said = (str(error).strip().splitlines() or [type(error).__name__])[0]
            yield Found(
                graph.path, f"onnx.checker {onnx.__version__}: {said}"[:_SHOWN], "a graph that it passes"
            )


@rule("FIL013", Severity.ERROR)
def inline_weight(package: Opened) -> Iterator[Found]:
    """A weight is inside the graph's file instead of beside it.

    Causes: A graph that was saved again by a tool that loads external data and writes everything into one file. Such a
    file is read whole to look at its ports, and ends at 2 GiB.
    Remedy: Save it with external data (onnx.save(..., save_as_external_data=True)), or build again.
    """
    for graph in package.graphs.values():
        for name, weight in graph.tensors.items():
            if weight.external is None and weight.nbytes > _INLINE_LIMIT:
                expected = f"at most {_INLINE_LIMIT}, or a reference to a data file"
                yield Found(f"{graph.path}: {name}", f"{weight.nbytes} bytes", expected)


@rule("FIL020", Severity.ERROR)
def broken_ir(package: Opened) -> Iterator[Found]:
    """An OpenVINO IR file cannot be read.

    Causes: A file that was cut off; XML that declares a document type (entities could fill the memory), that is nested
    deeply, or larger than that of any model.
    Remedy: Convert the graph again.
    """
    yield from package.faults.get("FIL020", ())


@rule("FIL021", Severity.ERROR, needs=("graphs",))
def contradicting_types(package: Opened) -> Iterator[Found]:
    """Types or shapes inside a graph contradict each other.

    Causes: A port, a constant or an initializer whose type or shape was changed without the nodes around it.
    Remedy: Build the package again; if it was built by cabochon, report it.
    """
    for graph in package.graphs.values():
        try:
            model = once(graph, _without_weights)
            onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
        except Exception as error:  # InferenceError, and for broken protos whatever its C++ throws
            said = " ".join(str(error).split()) or type(error).__name__
            yield Found(graph.path, f"onnx's inference: {said}"[: 2 * _SHOWN], "types and shapes that fit")


def _without_weights(graph: Graph) -> ModelProto:
    """The model with its external initializers as inputs: onnx's checker would look for their files."""
    model = ModelProto()
    model.CopyFrom(graph.proto)
    del model.graph.initializer[:]
    given = {value.name for value in model.graph.input}
    for tensor in graph.proto.graph.initializer:
        if tensor.data_location != TensorProto.EXTERNAL:
            model.graph.initializer.append(tensor)
        elif tensor.name not in given:
            shape = list(tensor.dims)
            value = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, shape)
            model.graph.input.append(value)
    return model
