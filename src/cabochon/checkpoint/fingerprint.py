"""What tells a checkpoint from others without reading it: its config, what it holds, and samples of every tensor."""

import hashlib
import json
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

from cabochon.checkpoint.opening import Checkpoint
from cabochon.checkpoint.tensor import Tensor

__all__ = ["fingerprint"]

_SAMPLES, _SAMPLE = 4, 1024  # of each tensor, so many of so many bytes


def fingerprint(checkpoint: Checkpoint) -> str:
    """SHA-256, hexadecimal, of config.json, of name, type and shape of every tensor, and of 4 KiB of each.

    The same of a copy, and of another division into files. Other training shows in every tensor it touched; a change
    between the samples, such as of single rows of a table, does not.
    """
    digest = hashlib.sha256(json.dumps(checkpoint.config, sort_keys=True).encode())
    by_file: dict[Path, list[Tensor]] = {}
    for tensor in checkpoint.tensors.values():
        by_file.setdefault(tensor.file, []).append(tensor)
    sampled = dict[str, bytes]()
    for file, tensors in by_file.items():
        with file.open(
            "rb", buffering=0
        ) as opened:  # no memory map: it would read 128 KiB around every sample
            for tensor in sorted(tensors, key=lambda tensor: tensor.offset):
                sampled[tensor.name] = b"".join(_samples(opened, tensor))
    for name, tensor in sorted(checkpoint.tensors.items()):
        digest.update(json.dumps([name, tensor.dtype, tensor.shape]).encode())
        digest.update(sampled[tensor.name])
    return digest.hexdigest()


def _samples(file: FileIO, tensor: Tensor) -> Iterator[bytes]:
    """From the start of the tensor to its end, evenly; all of a small one."""
    size = min(_SAMPLE, -(-tensor.nbytes // _SAMPLES))
    for i in range(_SAMPLES):
        file.seek(tensor.offset + i * (tensor.nbytes - size) // (_SAMPLES - 1))
        yield file.read(size)
