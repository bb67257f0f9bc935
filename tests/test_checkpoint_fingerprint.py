"""A checkpoint is known again by samples of what it holds."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from cabochon.checkpoint import open_checkpoint
from cabochon.checkpoint.fingerprint import fingerprint
from packages import TINY


def told(folder: Path) -> str:
    return fingerprint(open_checkpoint(folder))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(TINY / "text", tmp_path / "copy"))


def test_a_copy_in_other_files_is_the_same(copy: Path) -> None:
    tensors = load_file(copy / "model.safetensors")
    (copy / "model.safetensors").unlink()
    shares = dict(list(tensors.items())[::2]), dict(list(tensors.items())[1::2])
    names = {
        name: f"model-0000{i}-of-00002.safetensors" for i, share in enumerate(shares, 1) for name in share
    }
    for i, share in enumerate(shares, 1):
        save_file(share, copy / f"model-0000{i}-of-00002.safetensors", {"format": "pt"})
    index = {"metadata": {}, "weight_map": names}
    (copy / "model.safetensors.index.json").write_text(json.dumps(index))
    assert told(copy) == told(TINY / "text")


def test_other_training_another_config_another_shape(copy: Path) -> None:
    found = {told(copy)}
    tensors = load_file(copy / "model.safetensors")
    first = max(tensors, key=lambda name: tensors[name].nbytes)
    for change in (tensors[first] * np.array(1.01, tensors[first].dtype), tensors[first].reshape(-1)):
        save_file(tensors | {first: change}, copy / "model.safetensors", {"format": "pt"})
        found.add(told(copy))
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"eos_token_id": 7}))
    assert len(found | {told(copy)}) == 4
