from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import checkpoints
from cabochon.checkpoint import open_checkpoint
from cabochon.errors import TensorError
from cabochon.gemma4.drafter_config import read_drafter_config
from cabochon.gemma4.drafter_names import CENTROIDS, ORDERING, drafter_shapes, drafter_tensors
from cabochon.gemma4.names import TextTensors

TABLE = "model.embed_tokens.weight"


def names_of(folder: Path) -> TextTensors:
    opened = open_checkpoint(folder)
    return drafter_tensors(opened.tensors, read_drafter_config(opened.config))


def changed(
    folder: Path, name: str, how: Callable[[checkpoints.Entry], checkpoints.Entry | None], source: str = ""
) -> Path:
    """A copy of the tiny drafter in which the tensor `name` is what `how` makes of it (or of `source`)."""

    def change(tensors: dict[str, checkpoints.Entry]) -> dict[str, checkpoints.Entry]:
        entry = how(tensors[source or name])
        rest = {key: value for key, value in tensors.items() if key != name}
        return rest if entry is None else rest | {name: entry}

    return checkpoints.change(checkpoints.copy(folder, "assistant"), change)


@pytest.mark.parametrize(("name", "count"), [("assistant", 50), ("assistant-dense", 48)])
def test_every_tensor_of_a_drafter_is_used(name: str, count: int) -> None:
    folder = checkpoints.TINY / name
    found = names_of(folder)
    assert list(found.used) == list(drafter_shapes(read_drafter_config(checkpoints.tiny_config(name))))
    assert (len(found.used), found.unused) == (count, {})
    assert all(tensor.name == key for key, tensor in found.used.items())


def test_the_layout() -> None:
    shapes = drafter_shapes(read_drafter_config(checkpoints.tiny_config("assistant")))
    assert shapes["pre_projection.weight"] == (32, 128)
    assert shapes["post_projection.weight"] == (64, 32)
    assert shapes[CENTROIDS] == (32, 32) and shapes[ORDERING] == (512,)
    assert shapes["model.layers.3.self_attn.q_proj.weight"] == (64, 32)
    assert not any(part in name for name in shapes for part in ("k_proj", "v_proj", "k_norm", "lm_head"))


UNUSED = {
    "lm_head.weight": (TABLE, "the head is tied"),
    "model.layers.2.self_attn.k_proj.weight": (TABLE, "the model it drafts for"),
    "model.layers.2.self_attn.k_norm.weight": (TABLE, "the model it drafts for"),
}


@pytest.mark.parametrize("name", UNUSED)
def test_what_is_unused_has_a_reason(tmp_path: Path, name: str) -> None:
    source, reason = UNUSED[name]
    found = names_of(changed(tmp_path / "c", name, lambda entry: entry, source))
    assert list(found.unused) == [name] and reason in found.unused[name]
    assert len(found.used) == 50


def test_a_dense_head_does_not_use_centroids(tmp_path: Path) -> None:
    folder = checkpoints.copy(tmp_path / "c", "assistant", use_ordered_embeddings=False)
    assert set(names_of(folder).unused) == {CENTROIDS, ORDERING}


def ids(how: Callable[[np.ndarray], None]) -> Callable[[checkpoints.Entry], checkpoints.Entry]:
    def change(entry: checkpoints.Entry) -> checkpoints.Entry:
        values = np.frombuffer(entry[2], np.int64).copy()
        how(values)
        return entry[0], entry[1], values.tobytes()

    return change


def put(**places: int) -> Callable[[np.ndarray], None]:
    def change(values: np.ndarray) -> None:
        for place, value in places.items():
            values[int(place[1:])] = value

    return change


ORDER = np.frombuffer(
    checkpoints.read(checkpoints.TINY / "assistant/model.safetensors")[ORDERING][2], np.int64
)
BROKEN = {
    "twice": (ORDERING, ids(put(_7=int(ORDER[3]))), f"holds the token {ORDER[3]} at 3 and at 7"),
    "too large": (ORDERING, ids(put(_9=512)), "holds 512 at 9; expected ids from 0 to 511"),
    "negative": (ORDERING, ids(put(_0=-1)), "holds -1 at 0"),
    "of 32 bits": (
        ORDERING,
        lambda e: ("I32", e[1], np.frombuffer(e[2], np.int64).astype(np.int32).tobytes()),
        "is I32; expected I64",
    ),
    "too short": (ORDERING, lambda e: (e[0], [511], e[2][:-8]), "token_ordering is [511], config.json promises [512]"),
    "missing": (ORDERING, lambda e: None, f"missing: {ORDERING}"),
    "unknown": ("model.layers.0.bias", lambda e: e, "unknown: model.layers.0.bias"),
    "another head": ("lm_head.weight", lambda e: (e[0], e[1], bytes(len(e[2]))), "head other than model.embed_tokens"),
    "ids for weights": (CENTROIDS, lambda e: ("I64", [32, 32], bytes(8192)), "is I64, expected BF16, F16, F32"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_wrong_is_named(tmp_path: Path, name: str) -> None:
    tensor, how, message = BROKEN[name]
    source = TABLE if name in ("unknown", "another head") else ""
    with pytest.raises(TensorError) as caught:
        names_of(changed(tmp_path / "c", tensor, how, source))
    assert message in f"{caught.value.at}: {caught.value.message}"
