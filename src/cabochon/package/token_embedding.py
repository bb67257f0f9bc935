"""token_embedding.onnx: the look-up of tokens, cut out of the target's own graph: its decoder, or its embedding.

Whatever the target multiplies its rows by, and however its table is stored, is thereby the same here.
"""

from collections.abc import Mapping
from pathlib import PurePosixPath

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

from cabochon.errors import GraphError
from cabochon.gemma4.decoder import TOKEN_ROWS

__all__ = ["token_embedding"]

_IDS, _ROWS = "input_ids", "inputs_embeds"


def token_embedding(whole: ModelProto, folder: str, hidden: int) -> ModelProto:
    """The graph ids [batch, sequence] i64 -> rows [batch, sequence, hidden] of a graph that lies in `folder`.

    The weights stay where that graph has them. Raises GraphError for one whose look-up cannot be told.
    """
    graph = whole.graph
    makers = {name: node for node in graph.node for name in node.output}
    if TOKEN_ROWS not in makers:
        what = f"no value is called {TOKEN_ROWS}; expected the rows of tokens under this name"
        raise GraphError(what, at=folder, remedy="build the target again with this version of cabochon")
    nodes, leaves = _ancestors(TOKEN_ROWS, makers)
    kept = [_moved(tensor, folder) for tensor in graph.initializer if tensor.name in leaves]
    ids = next(value for value in graph.input if value.name == _IDS)
    made = ModelProto(ir_version=whole.ir_version, producer_name=whole.producer_name)
    made.producer_version = whole.producer_version
    domains = {node.domain for node in nodes}
    made.opset_import.extend(each for each in whole.opset_import if each.domain in domains or not each.domain)
    renamed = [_renamed(node) for node in nodes]
    output = _output(graph.output[0].type.tensor_type.elem_type, hidden)
    made.graph.CopyFrom(
        GraphProto(name="token_embedding", node=renamed, initializer=kept, input=[ids], output=[output])
    )
    known = {entry.key: entry.value for entry in whole.metadata_props}
    for key in ("activations", "embed_scale", "precision", "target"):
        if (said := known.get(f"cabochon.{key}")) is not None:
            made.metadata_props.add(key=f"cabochon.{key}", value=said)
    made.metadata_props.add(key="cabochon.model", value="token_embedding")
    return made


def _ancestors(value: str, makers: Mapping[str, NodeProto]) -> tuple[list[NodeProto], set[str]]:
    """The nodes that a value needs, in order, and what they need from outside."""
    if value not in makers:
        return [], {value}
    nodes, leaves = list[NodeProto](), set[str]()
    for name in filter(None, makers[value].input):
        before, outside = _ancestors(name, makers)
        nodes += [node for node in before if node not in nodes]
        leaves |= outside
    return [*nodes, makers[value]], leaves


def _moved(tensor: TensorProto, folder: str) -> TensorProto:
    """The same weight, seen from the folder above."""
    moved = TensorProto()
    moved.CopyFrom(tensor)
    for entry in moved.external_data:
        if entry.key == "location":
            entry.value = (PurePosixPath(folder) / entry.value).as_posix()
    return moved


def _renamed(node: NodeProto) -> NodeProto:
    """The node, with the name of the output for the value that leaves."""
    renamed = NodeProto()
    renamed.CopyFrom(node)
    renamed.output[:] = [_ROWS if name == TOKEN_ROWS else name for name in node.output]
    return renamed


def _output(dtype: int, hidden: int) -> ValueInfoProto:
    """The rows, in the type of activations, which is that of every output of the graph."""
    found = ValueInfoProto(name=_ROWS)
    found.type.tensor_type.elem_type = dtype
    dims = found.type.tensor_type.shape.dim
    dims.add(dim_param="batch")
    dims.add(dim_param="sequence")
    dims.add(dim_value=hidden)
    return found
