"""Statistics of a checkpoint: what is built for them is beside OUT, and gone afterwards."""

import hashlib
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import cabochon
from cabochon.calibration import calibrate, collect
from cabochon.checkpoint import open_checkpoint
from cabochon.errors import CabochonError, PackageError, RequestError, SourceError
from cabochon.gemma4 import full_tensors, read_full_config
from cabochon.packing import Scheme, pack
from packages import TINY, Packages
from test_cli import call


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


def provenance(package: Path) -> dict[str, Any]:
    return json.loads((package / "provenance.json").read_text())["build"]


def test_a_pair_is_built_with_the_statistics_of_its_target(
    packages: Packages, text: Path, tmp_path: Path
) -> None:
    found, out = collect(packages(), text, threads=1), tmp_path / "out"
    options = ("--precision", "Q4_K_M", "--license", "apache-2.0", "--calibrate-limit", "1", "--json")
    done = call("build", TINY / "text", out, "--assistant", TINY / "assistant", "--calibrate", text, *options)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "text.txt"]
    assert "calibration" not in provenance(out)
    assert provenance(out / "target")["calibration"] == {
        "text": "text.txt",
        "sha256": hashlib.sha256(text.read_bytes()).hexdigest(),
        "tokens": found.tokens,
        "windows": 1,
    }
    tensors = {t.name: t for t in onnx.load(out / "target" / "model.onnx").graph.initializer}
    values = open_checkpoint(TINY / "text").tensors
    scheme = Scheme("k-quant", 4, 32, True, "f32")
    for name in ("model.layers.4.self_attn.o_proj.weight", "model.embed_tokens.weight"):
        codes, scales = (onnx.numpy_helper.to_array(tensors[each]) for each in (name, f"{name}_scales"))
        its, other = (pack(values[name].array(), scheme, each) for each in (found.mean_squares[name], None))
        assert np.array_equal(codes.reshape(its.codes.shape), its.codes), name
        assert np.array_equal(scales, its.scales) and not np.array_equal(scales, other.scales)


def test_experts_are_packed_with_what_their_turns_multiply(
    packages: Packages, text: Path, tmp_path: Path
) -> None:
    found = collect(packages("moe"), text, threads=1)
    built = cabochon.build(
        TINY / "moe", tmp_path / "out", precision="Q4_K_M", calibration=found, license="gemma"
    )
    tensors = {t.name: t for t in onnx.load(built.path / "model.onnx").graph.initializer}
    values = open_checkpoint(TINY / "moe").tensors
    for name in ("gate_up_proj", "down_proj"):
        name = f"model.layers.2.experts.{name}"
        rows = values[name.replace("model.", "model.language_model.")].array()
        rows = rows.reshape(-1, rows.shape[-1])
        codes, scales = (onnx.numpy_helper.to_array(tensors[each]) for each in (name, f"{name}_scales"))
        block = rows.shape[1] // scales.shape[1]
        scheme = Scheme("k-quant", 4, block, False, str(scales.dtype).replace("float", "f"))
        its, other = (pack(rows, scheme, each) for each in (found.mean_squares[name], None))
        assert np.array_equal(scales.reshape(its.scales.shape), its.scales), name
        assert np.array_equal(codes.reshape(its.codes.shape), its.codes), name
        assert not np.array_equal(its.scales, other.scales)


def test_what_no_statistics_are_for(packages: Packages, text: Path, tmp_path: Path) -> None:
    found, out = collect(packages(), text, threads=1), tmp_path / "out"
    table: list[tuple[dict[str, Any], str]] = [
        ({"precision": "Q8"}, "Q8 searches for no scales"),
        ({"precision": "Q4_K_M", "model": "drafter"}, "statistics are given for a drafter"),
    ]
    for said, message in table:
        with pytest.raises(PackageError, match=message):
            cabochon.build(TINY / "text", out, calibration=found, **said)
    with pytest.raises(PackageError, match="a target that is built already"):
        cabochon.build(packages(), out, assistant=TINY / "assistant", precision="Q4_K_M", calibration=found)


def test_the_option(text: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    table = [
        (("--precision", "f16"), "f16 searches for no scales; expected a precision that does"),
        (("--precision", "Q4_K_M", "--model", "drafter"), "a drafter; expected a model that reads text"),
        (("--precision", "Q4_K_M", "--target", "none"), "unknown target 'none'"),
        (("--precision", "Q4_K_M", "--calibrate-limit", "0"), "calibrate-limit"),
    ]
    for options, message in table:
        done = call("build", TINY / "text", out, "--calibrate", text, *options)
        assert done.returncode and message in done.stderr, options
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


def test_an_interruption_leaves_nothing(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(source: Path, out: Path, **options: Any) -> None:
        assert out.parent.parent == tmp_path and out.parent.name.startswith(".out.aside-")
        assert options["precision"] == "f32"
        (out.parent / "half").write_bytes(b"")
        raise KeyboardInterrupt

    monkeypatch.setattr(import_module("cabochon.calibration.calibrate"), "build", interrupted)
    with pytest.raises(KeyboardInterrupt):
        calibrate(TINY / "text", text, tmp_path / "out")
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
