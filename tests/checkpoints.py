"""Small checkpoints for tests: changed copies of the tiny ones, and safetensors broken on purpose."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

TINY = Path(__file__).parent / "data" / "tiny"

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3\n"

Entry = tuple[str, list[int], bytes]  # dtype, shape, data


# The text geometry of published models, to be put over a tiny config.
E2B = {
    "num_hidden_layers": 35,
    "layer_types": (["sliding_attention"] * 4 + ["full_attention"]) * 7,
    "num_kv_shared_layers": 20,
    "hidden_size": 1536,
    "intermediate_size": 6144,
    "num_attention_heads": 8,
    "num_key_value_heads": 1,
    "head_dim": 256,
    "global_head_dim": 512,
    "num_global_key_value_heads": None,
    "use_double_wide_mlp": True,
    "hidden_size_per_layer_input": 256,
    "vocab_size": 262144,
    "vocab_size_per_layer_input": 262144,
    "sliding_window": 512,
}
BIG = {  # the 31B model, which has keys for values, without sharing
    "num_hidden_layers": 60,
    "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 10,
    "num_kv_shared_layers": 0,
    "hidden_size": 5376,
    "intermediate_size": 21504,
    "num_attention_heads": 32,
    "num_key_value_heads": 16,
    "head_dim": 256,
    "global_head_dim": 512,
    "num_global_key_value_heads": 4,
    "attention_k_eq_v": True,
    "use_double_wide_mlp": False,
    "hidden_size_per_layer_input": 0,
    "use_bidirectional_attention": "vision",
}

# What documents say of the experts of the tiny mixture.
EXPERTS = {
    "representation": "dense_fallback",
    "routed_expert_count": 8,
    "shared_expert_count": 1,
    "experts_per_token": 2,
    "expert_intermediate_size": 32,
    "shared_expert_intermediate_size": 48,
    "activation": "gelu_pytorch_tanh",
    "router": {
        "score_function": "softmax",
        "selection_method": "top_k",
        "normalize_weights": True,
        "scaling_factor": 1.0,
    },
}


def tiny_config(name: str = "text") -> dict[str, Any]:
    return json.loads((TINY / name / "config.json").read_bytes())


def published(config: dict[str, Any]) -> dict[str, Any]:
    """The same config in the spelling that published checkpoints have."""
    result = json.loads(json.dumps(config))
    text = result.get("text_config", result)
    overrides = list(text.pop("per_layer_config").values())
    text["global_head_dim"] = overrides[0]["head_dim"]
    text["num_global_key_value_heads"] = overrides[0].get("num_key_value_heads")
    return result


def copy(folder: Path, name: str = "text", **config: Any) -> Path:
    """A copy of a tiny checkpoint in `folder`, with keys of config.json replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in (TINY / name).iterdir():
        shutil.copyfile(file, folder / file.name)
    if config:
        write_config(folder, tiny_config(name) | config)
    return folder


def write_config(folder: Path, config: dict[str, Any]) -> None:
    (folder / "config.json").write_text(json.dumps(config))


def raw(header: bytes | dict[str, Any], data: bytes = b"", length: int | None = None) -> bytes:
    """A safetensors file's bytes, right or wrong as its parts are."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def write(file: Path, tensors: dict[str, Entry]) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + len(data)]}
        end += len(data)
    file.write_bytes(raw(header, b"".join(data for _, _, data in tensors.values())))


def read(file: Path) -> dict[str, Entry]:
    content = file.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    header.pop("__metadata__", None)
    return {
        name: (
            entry["dtype"],
            entry["shape"],
            content[start + entry["data_offsets"][0] : start + entry["data_offsets"][1]],
        )
        for name, entry in header.items()
    }


def change(folder: Path, how: Callable[[dict[str, Entry]], dict[str, Entry]]) -> Path:
    """Rewrite model.safetensors of `folder` as `how` makes it."""
    file = folder / "model.safetensors"
    write(file, how(read(file)))
    return folder


def rename(folder: Path, how: Callable[[str], str]) -> Path:
    return change(folder, lambda tensors: {how(name): entry for name, entry in tensors.items()})


def shard(folder: Path, count: int = 3) -> list[str]:
    """Split model.safetensors of `folder` into `count` shards with an index; their names."""
    tensors = read(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = [f"model-{i + 1:05d}-of-{count:05d}.safetensors" for i in range(count)]
    keys = list(tensors)
    for i, name in enumerate(names):
        write(folder / name, {key: tensors[key] for key in keys[i::count]})
    weight_map = {key: names[i % count] for i, key in enumerate(keys)}
    write_index(folder, weight_map)
    return names


def write_index(folder: Path, weight_map: dict[str, Any]) -> None:
    text = json.dumps({"metadata": {"total_size": 0}, "weight_map": weight_map})
    (folder / "model.safetensors.index.json").write_text(text)


def read_index(folder: Path) -> dict[str, str]:
    return json.loads((folder / "model.safetensors.index.json").read_bytes())["weight_map"]


def hub_cache(cache: Path, source: Path, repository: str, commit: str) -> Path:
    """A hub cache of symlinks around the files of `source`; the snapshot's folder."""
    store = cache / ("models--" + repository.replace("/", "--"))
    snapshot = store / "snapshots" / commit
    (store / "blobs").mkdir(parents=True)
    (store / "refs").mkdir()
    (store / "refs" / "main").write_text(commit)
    snapshot.mkdir(parents=True)
    for i, file in enumerate(sorted(source.iterdir())):
        shutil.copyfile(file, store / "blobs" / f"{i:040x}")
        (snapshot / file.name).symlink_to(Path("..") / ".." / "blobs" / f"{i:040x}")
    return snapshot
