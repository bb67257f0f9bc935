"""model.onnx of openvino-epcontext: one node that names the IR beside it, for ONNX Runtime's OpenVINO provider.

https://onnxruntime.ai/docs/execution-providers/EP-Context-Design.html says what its attributes mean.
"""

from collections.abc import Iterator

from onnx import ModelProto, ValueInfoProto, helper

from cabochon import __version__
from cabochon.metadata.ports import Port
from cabochon.openvino.source import EPCONTEXT
from cabochon.package.layout import GRAPH
from cabochon.validation.net import Net

__all__ = ["epcontext"]

_PROVIDER = "OpenVINOExecutionProvider"
_OPSET, _IR_VERSION = 23, 11


def epcontext(net: Net) -> bytes:
    """The bytes of the graph around an IR: its ports with their names, types and named dimensions, its properties."""
    ports = net.ports
    node = helper.make_node(
        "EPContext",
        list(ports.inputs),
        list(ports.outputs),
        name="model",
        domain="com.microsoft",
        embed_mode=0,
        ep_cache_context=net.path.rpartition("/")[2],
        ep_sdk_version=net.version,
        main_context=1,
        max_size=0,
        partition_name="model",
        source=_PROVIDER,
    )
    inputs, outputs = ([_value(port) for port in side.values()] for side in (ports.inputs, ports.outputs))
    made: ModelProto = helper.make_model(
        helper.make_graph(
            [node], net.properties.get("cabochon.model", GRAPH.partition(".")[0]), inputs, outputs
        ),
        opset_imports=[helper.make_opsetid("", _OPSET), helper.make_opsetid("com.microsoft", 1)],
        ir_version=_IR_VERSION,
        producer_name="cabochon",
        producer_version=__version__,
    )
    for key, value in _properties(net):
        made.metadata_props.add(key=key, value=value)
    return made.SerializeToString(deterministic=True)


def _value(port: Port) -> ValueInfoProto:
    import numpy as np
    from ml_dtypes import bfloat16

    dtype = helper.np_dtype_to_tensor_dtype(np.dtype(bfloat16 if port.dtype == "bfloat16" else port.dtype))
    return helper.make_tensor_value_info(port.name, dtype, list(port.shape))


def _properties(net: Net) -> Iterator[tuple[str, str]]:
    """Those of the IR, but for the names of dimensions, which ports have here."""
    for key, value in sorted(net.properties.items()):
        if key == "cabochon.target":
            yield key, EPCONTEXT
        elif key != "cabochon.axes":
            yield key, value
