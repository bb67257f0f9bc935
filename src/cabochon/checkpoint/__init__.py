"""A folder or a hub id becomes config.json as data and tensors as views over memory-mapped safetensors."""

from .opening import Checkpoint, open_checkpoint
from .tensor import Tensor

__all__ = ["Checkpoint", "Tensor", "open_checkpoint"]
