"""Weights in blocks as what is stored of them: along rows and across, in one pass, in bounded memory."""

from pathlib import Path

import numpy as np
import pytest

from cabochon.checkpoint import Tensor
from cabochon.errors import TensorError
from cabochon.packing import Scheme, pack, unpack
from cabochon.recipes import Packing, Part
from cabochon.recipes import part as module
from cabochon.recipes.part import parts, unfolded

FOUR, EIGHT = Scheme("k-quant", 4, 32, False), Scheme("round", 8, 32, True)


def stored(path: Path, values: np.ndarray) -> Tensor:
    path.write_bytes(values.astype("<f4").tobytes())
    return Tensor("w", "F32", values.shape, path, 0, values.size * 4)


def held(part: Part) -> np.ndarray:
    return np.concatenate([block.reshape(-1).view(np.uint8) for block in part.blocks()])


@pytest.fixture
def tensor(tmp_path: Path) -> Tensor:
    return stored(tmp_path / "w", np.random.default_rng(0).standard_normal((70, 96)))


@pytest.mark.parametrize("scheme", [FOUR, EIGHT], ids=str)
def test_along_rows_it_is_what_the_packer_gives(
    tensor: Tensor, scheme: Scheme, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_AT_ONCE", 1)  # 64 rows, then the rest
    whole = pack(tensor.array(), scheme)
    codes, scales, *points = parts("w", Packing(tensor, scheme), table=False)
    assert (codes.name, scales.name, *(p.name for p in points)) == ("w", "w_scales", "w_zero_points")[
        : 2 + len(points)
    ]
    assert codes.shape == whole.codes.shape
    assert np.array_equal(held(codes), whole.codes.reshape(-1))
    assert np.array_equal(held(scales), whole.scales.reshape(-1).view(np.uint8))
    assert (whole.zero_points is None) == (not points)
    for part in points:
        assert np.array_equal(held(part), whole.zero_points.reshape(-1))
        assert part.nbytes == whole.zero_points.nbytes


@pytest.mark.parametrize("scheme", [FOUR, EIGHT], ids=str)
def test_across_the_same_numbers_lie_the_other_way(
    tensor: Tensor, scheme: Scheme, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_ACROSS", 70 * 64)  # two blocks of columns, then one
    monkeypatch.setattr(module, "_AT_ONCE", 64 * 32)
    found = parts("w", Packing(tensor, scheme, across=True), table=False)
    codes, scales = (held(part) for part in found[:2])
    bits = scheme.bits
    numbers = unfolded(codes, bits)[: 70 * 96].reshape(96, 70).astype(np.int32)
    if scheme.symmetric:
        zero, kind = np.zeros((3, 70)), f"i{bits}"
        numbers = (numbers ^ 1 << bits - 1) - (1 << bits - 1)
    else:
        zero, kind = unfolded(held(found[2]), bits)[: 3 * 70].reshape(3, 70), f"u{bits}"
    assert [(part.precision, part.shape) for part in found] == [
        (kind, (96, 70)),
        ("f16", (3, 70)),
        (kind, (3, 70)),
    ][: len(found)]
    scale = scales.view(np.float16).reshape(3, 70).astype(np.float32)
    values = (numbers - np.repeat(zero, 32, axis=0)) * np.repeat(scale, 32, axis=0)
    assert np.array_equal(values.T, unpack(pack(tensor.array(), scheme), scheme, 96))


def test_rows_and_columns_and_rows_of_a_layer(tensor: Tensor) -> None:
    columns, rows = slice(32, 96), slice(3, 40)
    codes, *_ = parts("w", Packing(tensor, FOUR, columns, rows), table=True)
    assert codes.shape == (37, 32)
    assert np.array_equal(
        held(codes), pack(np.ascontiguousarray(tensor.array()[rows, columns]), FOUR).codes.reshape(-1)
    )
    codes, *_ = parts("w", Packing(tensor, FOUR, width=24), table=True)
    assert codes.shape == (280, 16)
    assert np.array_equal(held(codes), pack(tensor.array().reshape(280, 24), FOUR).codes.reshape(-1))


def test_what_the_codes_left_is_not_packed_again(tensor: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(module, "pack", lambda *given: (calls.append(1), pack(*given))[1])
    found = parts("w", Packing(tensor, FOUR), table=False)
    first = [held(part) for part in found]
    assert len(calls) == 1
    assert np.array_equal(held(found[1]), first[1])  # nobody left anything: a pass of its own
    assert len(calls) == 2


def test_flat_blocks_end_with_the_weight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_AT_ONCE", 1)
    tensor = stored(tmp_path / "w", np.random.default_rng(1).standard_normal((70, 24)))
    scheme = Scheme("nf4", 4, 64, True)
    codes, scales = parts("w", Packing(tensor, scheme), table=False)
    whole = pack(tensor.array(), scheme)
    assert (codes.shape, scales.shape) == ((840,), (27,))
    assert np.array_equal(held(codes), whole.codes[:840])
    assert np.array_equal(held(scales).view(np.float16), whole.scales)


def test_a_number_that_is_none_says_of_which_tensor(tmp_path: Path) -> None:
    values = np.zeros((4, 32), np.float32)
    values[2, 5] = np.nan
    codes, *_ = parts("w", Packing(stored(tmp_path / "w", values), FOUR), table=False)
    with pytest.raises(TensorError, match=r"^w: .*NaN"):
        held(codes)
