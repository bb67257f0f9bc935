"""Which safetensors files make up a checkpoint, and all their tensors under one roof."""

from pathlib import Path

from cabochon.errors import SourceError
from cabochon.checkpoint.header import read_header
from cabochon.checkpoint.strict_json import parse_object
from cabochon.checkpoint.tensor import Tensor

__all__ = ["read_shards"]

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"


def read_shards(root: Path) -> tuple[dict[str, Tensor], list[str]]:
    """All tensors of the folder by name, and remarks on files that were not used."""
    if (root / SINGLE).is_file():
        return read_header((root / SINGLE).resolve(), SINGLE), []
    if not (root / INDEX).is_file():
        raise SourceError(f"neither {SINGLE} nor {INDEX}", at=str(root))
    weight_map = parse_object((root / INDEX).read_bytes())["weight_map"]
    tensors: dict[str, Tensor] = {}
    for name in sorted(set(weight_map.values())):
        tensors |= read_header((root / name).resolve(), name)
    return tensors, []
