"""A folder or a hub id becomes config.json as data and tensors as views over memory-mapped safetensors."""

from cabochon.checkpoint.opening import Checkpoint, open_checkpoint
from cabochon.checkpoint.tensor import Tensor

__all__ = ["Checkpoint", "Tensor", "open_checkpoint"]
