"""Which safetensors files make up a checkpoint, and all their tensors under one roof."""

from collections.abc import Collection, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from cabochon.checkpoint.header import read_header
from cabochon.checkpoint.refusals import is_adapter, refuse_pointer
from cabochon.checkpoint.tensor import Tensor
from cabochon.errors import SourceError, TensorError
from cabochon.strict_json import parse_object

__all__ = ["INDEX", "SINGLE", "read_shards"]

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
_AGAIN = "download the checkpoint again, all files from one revision"


def read_shards(root: Path) -> tuple[dict[str, Tensor], list[str]]:
    """All tensors of the folder by name, and remarks on files that were not used. Only headers are read.

    A single file goes before an index, as in transformers, and whatever lies beside it is not used. Beside an
    index nothing may lie that it does not name: a shard of an earlier save, or one that the index lacks.
    Raises SourceError and TensorError.
    """
    present = {path.name for path in root.iterdir()}
    if SINGLE in present:
        return read_header(real_file(root, SINGLE), SINGLE), _remarks(present)
    if INDEX in present:
        weight_map = _read_index(root)
        tensors = _read_indexed(root, weight_map)
        _refuse_stale(_weights(present) - set(weight_map.values()))
        return tensors, _remarks(present)
    raise _no_weights(root, present)


def real_file(root: Path, name: str) -> Path:
    """The real file behind `name`, through any links (a hub cache is a tree of links)."""
    path = root / name
    if path.is_symlink() and not path.exists():
        raise SourceError(
            "a link that leads to no file: the download was not finished, or its blob was deleted",
            at=name,
            remedy=_AGAIN,
        )
    if not path.is_file():
        raise SourceError("is missing" if not path.exists() else "is not a file", at=name, remedy=_AGAIN)
    return path.resolve()


def _read_index(root: Path) -> dict[str, str]:
    """Tensor name -> shard's file name."""
    text = real_file(root, INDEX).read_bytes()
    refuse_pointer(text, INDEX)
    try:
        index = parse_object(text)
    except ValueError as error:
        raise SourceError(str(error), at=INDEX, remedy=_AGAIN) from None
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise SourceError(
            "has no weight_map; expected an object of tensor names and file names", at=INDEX, remedy=_AGAIN
        )
    for name, shard in weight_map.items():
        _check_shard_name(name, shard)
    return weight_map


def _check_shard_name(name: str, shard: Any) -> None:
    inside = (
        isinstance(shard, str)
        and not PurePosixPath(shard).is_absolute()
        and ".." not in PurePosixPath(shard).parts
    )
    if not inside or "\\" in shard or ":" in shard:
        raise SourceError(
            f"puts {name} into {shard!r}; expected a file inside the folder",
            at=INDEX, remedy="do not use this checkpoint before you know who wrote its index",
        )  # fmt: skip
    if not shard.endswith(".safetensors"):
        raise SourceError(
            f"puts {name} into {shard!r}; expected a .safetensors file", at=INDEX, remedy=_AGAIN
        )


def _read_indexed(root: Path, weight_map: Mapping[str, str]) -> dict[str, Tensor]:
    shards = sorted(set(weight_map.values()))
    if missing := [
        shard for shard in shards if not (root / shard).exists() and not (root / shard).is_symlink()
    ]:
        raise SourceError(
            f"{len(missing)} of {len(shards)} shards are missing: {', '.join(missing)}",
            at=INDEX,
            remedy=_AGAIN,
        )
    tensors: dict[str, Tensor] = {}
    for shard in shards:
        found = read_header(real_file(root, shard), shard)
        _check_against_index(shard, found, tensors, weight_map)
        tensors |= found
    return {name: tensors[name] for name in weight_map}


def _check_against_index(
    shard: str, found: Mapping[str, Tensor], before: Mapping[str, Tensor], weight_map: Mapping[str, str]
) -> None:
    """A shard holds what the index says, all of it and nothing else."""
    promised = {name for name, file in weight_map.items() if file == shard}
    if twice := [name for name in found if name in before or weight_map.get(name, shard) != shard]:
        other = weight_map[twice[0]]
        raise TensorError(
            f"{_listed(twice)} stored here, but the index says {other}: stored twice", at=shard, remedy=_AGAIN
        )
    if lacking := [name for name in promised if name not in found]:
        raise TensorError(
            f"the index promises {_listed(sorted(lacking))} here; the shard lacks it", at=shard, remedy=_AGAIN
        )
    if unlisted := [name for name in found if name not in promised]:
        raise TensorError(f"{_listed(unlisted)} stored here, but not in {INDEX}", at=shard, remedy=_AGAIN)


def _listed(names: Collection[str], limit: int = 5) -> str:
    first = ", ".join(list(names)[:limit])
    return first if len(names) <= limit else f"{first} and {len(names) - limit} more"


def _weights(present: Collection[str]) -> set[str]:
    return {name for name in present if name.endswith(".safetensors") and not is_adapter(name)}


def _refuse_stale(shards: Collection[str]) -> None:
    if shards:
        raise SourceError(
            f"does not name {_listed(sorted(shards))}, which lies beside its shards: stale, or not listed",
            at=INDEX,
            remedy="delete it, or add it to the index (of a checkpoint on a hub, in a downloaded copy)",
        )


def _no_weights(root: Path, present: Collection[str]) -> SourceError:
    if "provenance.json" in present and "SHA256SUMS" in present:
        return SourceError(
            "is a package that was built; expected a checkpoint",
            at=str(root),
            remedy="give the checkpoint it was built from; `cabochon convert` takes a package, and so does "
            "`cabochon build` with --assistant",
        )
    shards = sorted(_weights(present))
    found = f"; found {_listed(shards)}" if shards else ""
    remedy = f"shards need their index: {_AGAIN}" if shards else "give the folder that holds the weights"
    return SourceError(f"neither {SINGLE} nor {INDEX}{found}", at=str(root), remedy=remedy)


def _remarks(present: Collection[str]) -> list[str]:
    remarks: list[str] = []
    if adapters := sorted(name for name in present if is_adapter(name)):
        remarks.append(
            f"a LoRA adapter lies beside the checkpoint ({', '.join(adapters)}) and is NOT applied; "
            "merge it first (merge_and_unload of peft) to build the adapted model"
        )
    if SINGLE in present and (others := sorted(_weights(present) - {SINGLE})):
        remarks.append(f"{_listed(others)}: not used beside {SINGLE}")
    return remarks
