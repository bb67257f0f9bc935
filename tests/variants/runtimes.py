"""The graphs of a package in the runtimes that execute them, one call for all: feeds in, outputs out, by port."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import ml_dtypes
import numpy as np
import onnxruntime as ort

from cabochon.parity.widened import exactly

Arrays = dict[str, np.ndarray]
EXACT = {
    "INFERENCE_PRECISION_HINT": "f32",
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",
    "INFERENCE_NUM_THREADS": "1",
}
BF16 = np.dtype(ml_dtypes.bfloat16)


class Running(Protocol):
    """A graph that is ready to run: the dtype of each of its inputs, and one method."""

    inputs: Mapping[str, np.dtype]

    def run(self, feeds: Arrays) -> Arrays: ...


class OnOnnxRuntime:
    """On onnxruntime's CPU provider."""

    NUMPY: Mapping[str, Any] = {
        "float": np.float32,
        "float16": np.float16,
        "int64": np.int64,
        "bool": np.bool_,
    }

    def __init__(self, graph: Path) -> None:
        options = ort.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 4, 1
        for key, value in exactly(graph).items():
            options.add_session_config_entry(key, value)
        self._session = ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        self.inputs = {
            port.name: np.dtype(self.NUMPY[port.type.removeprefix("tensor(").removesuffix(")")])
            for port in self._session.get_inputs()
        }

    def run(self, feeds: Arrays) -> Arrays:
        names = [port.name for port in self._session.get_outputs()]
        return dict(zip(names, self._session.run(names, feeds), strict=True))


class OnOpenVino:
    """On OpenVINO's CPU plugin, without rounding: `graph` is an IR file or an ONNX one."""

    def __init__(self, graph: Path) -> None:
        import openvino

        core = openvino.Core()
        self._compiled = core.compile_model(core.read_model(graph), "CPU", EXACT)
        self.inputs = {name: self._dtype(port) for port in self._compiled.inputs for name in port.names}

    @staticmethod
    def _dtype(port: Any) -> np.dtype:
        kind = port.element_type
        return BF16 if kind.to_string() == "bf16" else np.dtype(kind.to_dtype())

    def run(self, feeds: Arrays) -> Arrays:
        feeds = {
            name: feeds.get(name, np.array(0)) for name in self.inputs if name in {*feeds, "logits_to_keep"}
        }
        made = self._compiled(
            {name: self._tensor(np.asarray(value, self.inputs[name])) for name, value in feeds.items()}
        )
        return {
            name: value.view(BF16) if self._dtype(port) == BF16 else value
            for port, value in made.items()
            for name in port.names
        }

    @staticmethod
    def _tensor(array: np.ndarray) -> Any:
        import openvino

        if array.dtype != BF16:
            return openvino.Tensor(np.asarray(array, order="C"))
        tensor = openvino.Tensor(openvino.Type.bf16, list(array.shape))
        tensor.data.view(np.uint16)[...] = array.view(np.uint16)
        return tensor
