"""Tensors as a document says them. Apart from `derive`, which brings onnx_ir: a validator asks for them too."""

from cabochon.metadata.document import RequestAligned, Shared, TensorContract
from cabochon.metadata.ports import Port

__all__ = ["contract", "held", "rows"]

_ROWS = RequestAligned(axis=0)


def contract(port: Port) -> TensorContract:
    """A port as the graph has it."""
    return held(port.dtype, port.shape, optional=port.optional)


def held(dtype: str, shape: tuple[int | str, ...], *, optional: bool = False) -> TensorContract:
    """A tensor; where its first dimension is the batch, rows are requests."""
    layout = _ROWS if shape[:1] == ("batch",) else Shared()
    tensor = TensorContract(dtype=dtype, shape=shape, batch_layout=layout)
    return tensor.model_copy(update={"optional": True}) if optional else tensor


def rows(dtype: str, *more: int | str) -> TensorContract:
    """A value with one row for each request, [batch, ...]."""
    return held(dtype, ("batch", *more))
