"""Statistics of a checkpoint: what is built for them is beside OUT, and gone afterwards."""

from pathlib import Path

import numpy as np
import pytest

from cabochon.calibration import calibrate
from cabochon.checkpoint import open_checkpoint
from cabochon.errors import CabochonError, PackageError, RequestError, SourceError
from cabochon.gemma4 import full_tensors, read_full_config
from packages import TINY


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("Blessed are the meek: for they shall inherit the earth.")
    return path


def test_the_decoder_of_a_whole_checkpoint(tmp_path: Path, text: Path) -> None:
    """Its weights have the names that a full package gives them; towers have no statistics."""
    told = list[tuple[int, int]]()
    found = calibrate(
        TINY / "target", text, tmp_path / "out", threads=1, progress=lambda *each: told.append(each)
    )
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]
    checkpoint = open_checkpoint(TINY / "target")
    tensors = full_tensors(checkpoint.tensors, read_full_config(checkpoint.config)).used
    assert found.mean_squares["lm_head.weight"] is found.mean_squares["model.embed_tokens.weight"]
    for name, mean in found.mean_squares.items():
        name = name.replace("lm_head", "model.embed_tokens")
        assert mean.shape == (tensors[name].shape[1],) and np.all(mean > 0), name
    products = [
        n for n in tensors if n.startswith("model.layers.") and n.endswith(("_proj.weight", "_gate.weight"))
    ]
    assert len(products) > 40 and set(products) <= set(found.mean_squares)
    assert not [name for name in found.mean_squares if "tower" in name or "embed_vision" in name]
    assert told == [(1, 1)]


def test_an_interruption_leaves_nothing(tmp_path: Path, text: Path) -> None:
    def progress(done: int, total: int) -> None:
        assert any(path.name.startswith(".out.aside-") for path in tmp_path.iterdir())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        calibrate(TINY / "text", text, tmp_path / "out", progress=progress)
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


def test_what_is_wrong_is_said_before_anything_is_written(tmp_path: Path, text: Path) -> None:
    taken = tmp_path / "taken"
    taken.mkdir()
    table: list[tuple[str | Path, Path, Path, type[CabochonError], str]] = [
        (TINY / "text", tmp_path / "none.txt", tmp_path / "out", RequestError, "No such file or directory"),
        (TINY / "text", text, taken, PackageError, "OUT exists already"),
        (TINY / "text", text, TINY / "text" / "out", PackageError, "OUT lies inside"),
        (tmp_path / "none", text, tmp_path / "out", SourceError, "no such folder"),
        (TINY / "assistant", text, tmp_path / "out", SourceError, "assistant"),
    ]
    for source, file, out, kind, message in table:
        with pytest.raises(kind, match=message):
            calibrate(source, file, out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["taken", "text.txt"]
    assert not (TINY / "text" / "out").exists()
