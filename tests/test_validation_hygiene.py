"""Weights: what they hold is found wherever it lies, in every type, and while the checksums are taken."""

import hashlib
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from broken import Break, check, copied, edit_json, edit_weight, place, resum
from cabochon.validation import scan
from cabochon.validation.opened import open_package
from cabochon.validation.scan import _BLOCK, FORMATS, Tally
from packages import SOURCES, Packages

MATRIX, NORM = "model.layers.1.mlp.down_proj.weight", "model.norm.weight"
F16 = ("tiny", "default", "f16")
SOURCE = {"source": SOURCES["tiny"]}
BF16 = ("tiny", "default", "bf16")


def put(value: float, dtype: type, at: int = -1):
    """Write one value into a weight's bytes."""

    def change(data: bytearray) -> None:
        np.frombuffer(data, dtype)[at] = value

    return change


def zeros(data: bytearray) -> None:
    data[:] = bytes(len(data))


BREAKS = (
    Break("NaN in f32", edit_weight(MATRIX, put(np.nan, np.float32)), {"HYG001"}),
    Break("infinity in f32", edit_weight(NORM, put(-np.inf, np.float32, 0)), {"HYG001"}),
    Break("NaN in f16", edit_weight(MATRIX, put(np.nan, np.float16)), {"HYG001"}, F16),
    Break("NaN in bf16", edit_weight(MATRIX, put(np.nan, ml_dtypes.bfloat16)), {"HYG001", "RUN002"}, BF16),
    Break(
        "infinity in bf16", edit_weight(MATRIX, put(np.inf, ml_dtypes.bfloat16)), {"HYG001", "RUN002"}, BF16
    ),
    Break("infinity in f16", edit_weight(MATRIX, put(np.inf, np.float16)), {"HYG002"}, F16),
    Break("the largest of f16", edit_weight(MATRIX, put(-65504.0, np.float16, 7)), {"HYG003"}, F16),
    Break("a matrix of zeros", edit_weight(MATRIX, zeros), {"HYG004"}),
    Break("a norm of zeros", edit_weight(NORM, zeros), set()),
    Break(
        "another weight than the source's",
        edit_weight(NORM, put(1.5, np.float32)),
        {"SRC001"},
        options=SOURCE,
    ),
    Break(
        "the record of another checkpoint",
        edit_json("provenance.json", lambda d: d["target"].update(fingerprint="0" * 64)),
        {"SRC002"},
        options=SOURCE,
    ),
)


@pytest.mark.parametrize("broken", BREAKS, ids=str)
def test_a_broken_package_is_found_out(broken: Break, packages: Packages, tmp_path: Path) -> None:
    check(broken, packages, tmp_path)


def test_a_finding_says_how_many_and_where(packages: Packages, tmp_path: Path) -> None:
    broken = Break(
        "three",
        edit_weight(MATRIX, lambda d: [put(np.nan, np.float16, i)(d) for i in (0, 1, -1)]),
        {"HYG001"},
        F16,
    )
    (finding,) = check(broken, packages, tmp_path).errors
    assert finding.at == f"model.onnx: {MATRIX}"
    assert finding.found == "3 that are not a number, 0 infinite"


@pytest.mark.parametrize("dtype", FORMATS)
def test_a_tally_is_what_numpy_counts(dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    largest = ml_dtypes.finfo(kind).max
    rng = np.random.default_rng(0)
    values = rng.standard_normal(5000).astype(kind)
    values[rng.integers(0, 5000, 9)] = np.nan
    values[rng.integers(0, 5000, 7)] = -np.inf
    values[:3] = largest, -largest, 0
    tally = Tally()
    for part in np.array_split(values.view(FORMATS[dtype].word), 7):
        tally.add(part, FORMATS[dtype])
    wide = values.astype(np.float64)
    counted = (np.isnan(wide).sum(), np.isinf(wide).sum(), (np.abs(wide) == float(largest)).sum())
    assert (tally.nans, tally.infinite, tally.largest) == counted
    assert tally.nonzero


def test_a_weight_that_spans_blocks_is_seen_whole(packages: Packages, tmp_path: Path, monkeypatch) -> None:
    """Blocks smaller than the weights, no multiples of their offsets: the digest and each count stay right."""
    package = copied(packages(*F16), tmp_path / "package")
    edit_weight(MATRIX, lambda d: [put(np.nan, np.float16, i)(d) for i in range(0, len(d) // 2, 100)])(
        package
    )
    resum(package)
    file, _, length = place(package, MATRIX)
    expected = len(range(0, length // 2, 100))
    for block in (4096, 6144, _BLOCK):
        monkeypatch.setattr("cabochon.validation.scan._BLOCK", block)
        scan = open_package(package).scan
        assert sum(tally.nans for tally in scan.tallies.values()) == expected
        assert scan.digests[file.name] == hashlib.sha256(file.read_bytes()).hexdigest()
        assert set(scan.digests) == {
            p.relative_to(package).as_posix() for p in package.rglob("*") if p.is_file()
        }


def test_a_file_of_several_names_is_read_once(packages: Packages, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table of a full package: of decoder and embedding. Its weights are looked at under both names."""
    package, read = packages("tiny-full"), list[Path]()
    real = scan._read
    monkeypatch.setattr(scan, "_read", lambda path, *rest: read.append(path) or real(path, *rest))
    found = open_package(package).scan
    tables = [f"{name}/model.embed_tokens.weight.data" for name in ("decoder", "embedding")]
    assert len(read) == len(found.digests) - 1
    assert found.digests[tables[0]] == found.digests[tables[1]]
    places = {place.location: tally for place, tally in found.tallies.items() if place.location in tables}
    assert set(places) == set(tables) and all(tally.nonzero for tally in places.values())
