"""Memory for growing caches."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import onnxruntime as ort
import pytest

from cabochon.runtime.host import held
from cabochon.runtime.room import Room


def room(caches: int = 1) -> Room:
    return Room(np.dtype(np.float16), caches)


def shapes(*columns: int) -> list[Sequence[int]]:
    return [(1, 1, n, 4) for n in columns]


def test_the_sides_share_no_memory_however_they_grow():
    one, places = room(), list[int]()
    (past,) = one.on(0, shapes(99))
    for columns in range(100, 200):
        side = columns % 2
        (present,) = one.on(1 - side, shapes(columns))
        assert present.shape() == [1, 1, columns, 4]
        assert not np.shares_memory(present.numpy(), past.numpy())
        (again,) = one.on(1 - side, shapes(columns))  # a step that failed is tried anew
        assert again.data_ptr() == present.data_ptr()
        places.append(present.data_ptr())
        past = present
    assert len(set(places)) < 16  # two sides, each enlarged by an eighth when it is full


def test_caches_lie_apart():
    values = room(3).on(0, shapes(100, 7, 100))
    assert [v.shape()[2] for v in values] == [100, 7, 100]
    arrays = [v.numpy() for v in values]
    assert not any(np.shares_memory(a, b) for a, b in pairwise(arrays))


def test_a_smaller_cache_stays_where_it_is():
    one = room()
    (first,) = one.on(0, shapes(100))
    assert one.on(0, shapes(51))[0].data_ptr() == first.data_ptr()


def test_a_value_keeps_its_memory_when_its_side_is_enlarged():
    one = room()
    (first,) = one.on(0, shapes(10))
    first.numpy()[:] = 7
    one.on(0, shapes(10_000))[0].numpy()[:] = 1
    del one
    np.testing.assert_array_equal(first.numpy(), np.full((1, 1, 10, 4), 7, np.float16))


@pytest.mark.parametrize("side", [0, 1])
def test_the_first_columns_stay_where_they_are(side: int):
    one = room(2)
    _, whole = one.on(side, shapes(3, 100))
    whole.numpy()[:] = np.arange(400).reshape(1, 1, 100, 4)
    less = one.shortened(1, whole, 60)
    assert less.data_ptr() == whole.data_ptr() and less.shape() == [1, 1, 60, 4]
    np.testing.assert_array_equal(less.numpy().ravel(), np.arange(240))


def test_a_cache_that_lies_elsewhere_is_copied():
    elsewhere = held(np.arange(36, dtype=np.float16).reshape(1, 1, 9, 4))
    less = room().shortened(0, elsewhere, 4)
    np.testing.assert_array_equal(less.numpy().ravel(), np.arange(16))
    assert not np.shares_memory(less.numpy(), elsewhere.numpy())


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.bool_, np.int32])
def test_a_held_array_is_the_value(dtype: type[np.generic]):
    array = np.ones((2, 3), dtype)
    value = held(array)
    assert value.data_ptr() == array.ctypes.data and value.numpy().dtype == dtype
    assert value.data_type() == ort.OrtValue.ortvalue_from_numpy(array).data_type()
