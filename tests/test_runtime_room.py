"""Memory for a growing cache."""

import numpy as np
import onnxruntime as ort

from cabochon.runtime.room import Room


def value(columns: int) -> ort.OrtValue:
    return ort.OrtValue.ortvalue_from_numpy(np.zeros((1, 1, columns, 4), np.float16))


def test_a_step_never_writes_over_the_past():
    room, past = Room(np.dtype(np.float16)), value(99)
    places = []
    for columns in range(100, 200):
        present = room.beside(past, (1, 1, columns, 4))
        assert present.shape() == [1, 1, columns, 4]
        assert not np.shares_memory(present.numpy(), past.numpy())
        again = room.beside(past, (1, 1, columns, 4))  # a step that failed is tried anew
        assert again.data_ptr() == present.data_ptr()
        places.append(present.data_ptr())
        past = present
    assert len(set(places)) < 16  # two stretches, each enlarged by an eighth when it is full


def test_a_smaller_cache_stays_where_it_is():
    room = Room(np.dtype(np.float16))
    first = room.beside(value(0), (1, 1, 100, 4))
    second = room.beside(first, (1, 1, 101, 4))
    assert room.beside(value(50), (1, 1, 51, 4)).data_ptr() == first.data_ptr()
    assert room.beside(second, (1, 1, 90, 4)).data_ptr() == first.data_ptr()


def test_a_past_without_its_front_is_not_written_over():
    room = Room(np.dtype(np.float16))
    whole = room.beside(value(0), (1, 1, 100, 4))
    past = ort.OrtValue.ortvalue_from_numpy(whole.numpy()[:, :, 60:])
    assert past.data_ptr() != whole.data_ptr()
    assert not np.shares_memory(room.beside(past, (1, 1, 41, 4)).numpy(), whole.numpy())


def test_the_first_columns_stay_where_they_are():
    room = Room(np.dtype(np.float16))
    whole = room.beside(value(0), (1, 1, 100, 4))
    whole.numpy()[:] = np.arange(400).reshape(1, 1, 100, 4)
    less = room.shortened(whole, 60)
    assert less.data_ptr() == whole.data_ptr() and less.shape() == [1, 1, 60, 4]
    behind = ort.OrtValue.ortvalue_from_numpy(whole.numpy()[:, :, 10:])
    np.testing.assert_array_equal(room.shortened(behind, 3).numpy().ravel(), np.arange(40, 52))
    assert not np.shares_memory(room.beside(less, (1, 1, 61, 4)).numpy(), whole.numpy())


def test_a_cache_that_lies_elsewhere_is_copied():
    room, elsewhere = Room(np.dtype(np.float16)), value(9)
    less = room.shortened(elsewhere, 4)
    assert less.shape() == [1, 1, 4, 4]
    assert not np.shares_memory(less.numpy(), elsewhere.numpy())
