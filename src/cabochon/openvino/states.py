"""A decoder that keeps its caches: each past and present becomes a state of the request, for one row."""

from pathlib import Path
from typing import Any

import numpy as np

from cabochon.errors import PackageError
from cabochon.runtime.openvino_graph import EXACT, library

__all__ = ["made_stateful", "require_steps"]

_PAST, _PRESENT = "past_key_values.", "present."
_CLOSE = (
    2.0**-5
)  # of the largest logit: what a cache of bf16 rounds, several times over; a lost state is far beyond


def made_stateful(model: Any) -> None:
    """Turn caches into states, in place. With any number of rows the first state would have none: there is one."""
    from importlib import import_module

    caches = [port for port in model.inputs if port.get_any_name().startswith(_PAST)]
    rows = [port for port in model.inputs if len(port.get_partial_shape()) > 1]
    shapes = {port: port.get_partial_shape() for port in rows}
    for shape in shapes.values():
        shape[0] = 1
    model.reshape(shapes)
    transformations = import_module("openvino._offline_transformations")
    pairs = {name: name.replace(_PAST, _PRESENT, 1) for name in (port.get_any_name() for port in caches)}
    transformations.apply_make_stateful_transformation(model, pairs)


def require_steps(xml: Path) -> None:
    """Run three tokens at once, and as two and one. Raise PackageError where the last logits differ."""
    core = library().Core()
    request = core.compile_model(xml, "CPU", EXACT).create_infer_request()
    feeds = _feeds(request.model_inputs)
    whole = _last(request, feeds, slice(0, 3), 3)
    request.reset_state()
    _last(request, feeds, slice(0, 2), 2)
    stepped = _last(request, feeds, slice(2, 3), 3)
    apart = float(np.abs(whole - stepped).max() / np.abs(whole).max())
    if not apart <= _CLOSE:
        raise PackageError(
            f"a token after two others gives logits that are {apart:.1g} (relative) from those of all three at once",
            at=str(xml),
            remedy="this version of OpenVINO loses states: report it",
        )


def _feeds(inputs: Any) -> dict[str, np.ndarray]:
    """Three tokens, or rows in the place of tokens, for each port that has a sequence."""
    made, random = dict[str, np.ndarray](), np.random.default_rng(0)
    for port in inputs:
        name, shape = port.get_any_name(), port.get_partial_shape()
        if name == "input_ids":
            made[name] = np.array([[2, 3, 5]], np.int64)
        elif len(shape) == 3:
            made[name] = random.standard_normal((1, 3, shape[2].get_length()), np.float32)
    return made


def _last(request: Any, feeds: dict[str, np.ndarray], tokens: slice, total: int) -> np.ndarray:
    """The logits of the last token, f32 [vocabulary]."""
    ov, given = library(), dict[str, Any]()
    for port in request.model_inputs:
        name, dtype = port.get_any_name(), port.get_element_type()
        if name == "logits_to_keep":
            given[name] = ov.Tensor(np.array(1, np.int64))
        elif name == "attention_mask":
            given[name] = ov.Tensor(np.ones((1, total), np.int64))
        else:
            given[name] = _tensor(np.ascontiguousarray(feeds[name][:, tokens]), dtype)
    request.infer(given)
    logits = request.get_tensor("logits")
    return _floats(logits)[0, -1]


def _tensor(array: np.ndarray, dtype: Any) -> Any:
    ov = library()
    if dtype != ov.Type.bf16:
        return ov.Tensor(array.astype(dtype.to_dtype()))
    import ml_dtypes

    return ov.Tensor(array.astype(ml_dtypes.bfloat16).view(np.uint16), array.shape, dtype)


def _floats(tensor: Any) -> np.ndarray:
    if tensor.get_element_type() != library().Type.bf16:
        return tensor.data.astype(np.float32)
    import ml_dtypes

    return tensor.data.view(ml_dtypes.bfloat16).astype(np.float32)
