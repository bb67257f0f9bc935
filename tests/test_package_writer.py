import errno
import hashlib
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import Future
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from cabochon.checkpoint import Tensor
from cabochon.errors import GraphError, TensorError
from cabochon.package import writer
from cabochon.package.graph_file import serialize, stored_weights
from cabochon.package.layout import lay_out
from cabochon.package.writer import Digest, Silent, Written, write_files, write_weights
from weights import model, range_of, weight


def random(size: int, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(size).astype(dtype)


class Counted(Silent):
    """What a progress was told."""

    def __init__(self) -> None:
        self.steps: list[int] = []

    def advance(self, nbytes: int) -> None:
        self.steps.append(nbytes)


class AtOnce:
    """A lane that does what it is given in the thread that gives it."""

    def __enter__(self) -> "AtOnce":
        return self

    def __exit__(self, *_: object) -> None: ...

    def submit(self, task: Any, *given: Any) -> "Future[Any]":
        done: Future[Any] = Future()
        done.set_result(task(*given))
        return done


def test_memory_is_given_back_of_what_is_on_the_disk_and_of_nothing_else(tmp_path, monkeypatch):
    """Advice about pages that are not written yet changes nothing."""
    told: list[Any] = []
    monkeypatch.setattr(writer, "_SYNC_EVERY", 4096)
    monkeypatch.setattr(writer, "_lane", AtOnce)
    monkeypatch.setattr(writer, "sync", lambda file: told.append(file.tell()))
    monkeypatch.setattr(writer, "forget", lambda file, start, end: told.append((start, end)))
    stored = weight("w", random(100_000))
    write_files([stored], lay_out([stored]), tmp_path, Silent(), Written())
    written, given = told[::2], told[1::2]
    assert given[0] == (0, 0) and given[-1][1] > 300_000, "and goes on to about the end"
    assert all(end <= there for (_, end), there in zip(given, written, strict=True))
    assert all(start == end for (_, end), (start, _) in pairwise(given))


def test_every_weight_stands_where_the_layout_says_and_zeros_between(tmp_path):
    arrays = {
        "one": random(1234),
        "two": random(300_000, seed=1),
        "three": random(7, "float16"),
        "zero": random(0),
    }
    weights = [weight(name, array, block=999) for name, array in arrays.items()]
    layout, progress, file = lay_out(weights), Counted(), tmp_path / "model.onnx.data"
    digests = write_weights(weights, layout, tmp_path, progress)
    content = file.read_bytes()
    assert len(content) == layout.nbytes == sum(progress.steps)
    assert digests == {"model.onnx.data": Digest(len(content), hashlib.sha256(content).hexdigest())}
    rest = bytearray(content)
    for name, array in arrays.items():
        place = layout.places[name]
        np.testing.assert_array_equal(range_of(file, place.offset, array), array)
        rest[place.offset : place.offset + place.nbytes] = bytes(place.nbytes)
    assert not any(rest)


def test_weights_that_lie_elsewhere_are_not_written(tmp_path):
    linked, copied = weight("linked", random(10), span=(Path("a"), 8)), weight("copied", random(5, seed=1))
    layout = lay_out([linked, weight("odd", random(5), span=(Path("a"), 9))], lambda source, name: None)
    assert [place.location for place in layout.places.values()][1] == "model.onnx.data"
    write_weights([linked, weight("odd", copied.numpy())], layout, tmp_path, Silent())
    assert (tmp_path / "model.onnx.data").read_bytes() == copied.tobytes()


def test_weights_that_lie_elsewhere_are_looked_through_where_no_file_is_written(tmp_path):
    linked = weight("linked", random(10), span=(Path("a"), 8))
    wrong = weight("linked", random(10), span=(Path("a"), 8), fault=TensorError("is no finite number"))
    layout = lay_out([linked], lambda source, name: None)
    assert write_weights([linked], layout, tmp_path, Silent()) == {}
    with pytest.raises(TensorError, match="no finite number"):
        write_weights([wrong], layout, tmp_path, Silent())
    assert not list(tmp_path.iterdir())


def test_weights_go_on_in_further_files_in_their_order(tmp_path):
    whole = Tensor("linked", "F32", (9,), Path("a"), 8, 36)
    link: Any = {"span": (Path("a"), 8), "source": whole}
    odd: Any = {"span": (Path("b"), 9), "block": 100}  # no whole elements lie there
    weights = [
        weight("linked", random(9), **link),
        weight("one", random(600, seed=1), **odd),
        weight("between", random(9, seed=2), **link),
        weight("two", random(700, seed=3), **odd),
        weight("three", random(900, seed=4), **odd),
        weight("four", random(10, seed=5), **odd),
        weight("last", random(9, seed=6), **link),
    ]
    layout, progress = lay_out(weights, lambda source, name: None, limit=5000), Counted()
    digests = write_weights(iter(weights), layout, tmp_path, progress)
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert files == {
        "model.onnx.data": weights[1].tobytes(),
        "model.onnx.data_1": weights[3].tobytes(),
        "model.onnx.data_2": weights[4].tobytes() + bytes(496) + weights[5].tobytes(),
    }
    assert list(digests) == list(layout.files) == sorted(files)
    for name, content in files.items():
        assert digests[name] == Digest(len(content), hashlib.sha256(content).hexdigest())
    assert sum(progress.steps) == layout.nbytes


@pytest.mark.parametrize("change", [-1, 1])
def test_a_weight_of_another_size_than_promised_is_a_fault(tmp_path, change):
    right = weight("model.norm.weight", random(100))
    wrong = weight("model.norm.weight", random(100 + change))
    with pytest.raises(GraphError, match=f"{400 + 4 * change} bytes were computed; expected 400") as caught:
        write_weights([wrong], lay_out([right]), tmp_path, Silent())
    assert caught.value.at == "model.norm.weight"


@pytest.mark.parametrize("written", [0, 1, 7])
def test_an_error_of_the_disk_stops_the_conversion(tmp_path, monkeypatch, written):
    blocks, threads = [], threading.active_count()
    real = writer._write

    def write(file, block):
        if len(blocks) > written:
            raise OSError(errno.ENOSPC, "No space left on device")
        blocks.append(block.nbytes)
        return real(file, block)

    monkeypatch.setattr(writer, "_write", write)
    stored = weight("endless", random(1_000_000), block=1000)
    with pytest.raises(OSError, match="No space left"):
        write_weights([stored], lay_out([stored]), tmp_path, Silent())
    assert len(blocks) == written + 1 and threading.active_count() == threads


def test_an_interrupt_in_the_callback_ends_the_threads(tmp_path):
    class Interrupted(Silent):
        def advance(self, nbytes: int) -> None:
            raise KeyboardInterrupt

    threads = threading.active_count()
    stored = weight("w", random(100_000), block=1000)
    with pytest.raises(KeyboardInterrupt):
        write_weights([stored], lay_out([stored]), tmp_path, Interrupted())
    assert threading.active_count() == threads


def test_short_writes_are_continued(tmp_path):
    class Short:
        def __init__(self) -> None:
            self.written = b""

        def write(self, view: memoryview) -> int:
            self.written += bytes(view[:5])
            return min(len(view), 5)

    file, block = Short(), np.arange(23, dtype=np.uint8)
    assert writer._write(file, block) == 23 and file.written == block.tobytes()


def test_no_byte_of_a_weight_is_in_the_graph():
    weights = [weight("one", random(500)), weight("two", random(3, seed=1))]
    built = model(*weights)
    text = serialize(built, lay_out(stored_weights(built)))
    assert len(text) < 1000 and not any(stored.tobytes()[:12] in text for stored in weights)
    tensors = {tensor.name: tensor for tensor in onnx.load_from_string(text).graph.initializer}
    entries = {e.key: e.value for e in tensors["two"].external_data}
    assert entries == {"location": "model.onnx.data", "offset": "4096", "length": "12"}
    assert tensors["one"].data_location == onnx.TensorProto.EXTERNAL and list(tensors["one"].dims) == [500]


def test_the_same_model_is_the_same_bytes():
    def text() -> bytes:
        built = model(weight("one", random(5)), weight("two", random(5, seed=1)))
        built.metadata_props.update({"cabochon.target": "default", "cabochon.mask": "anywhere"})
        return serialize(built, lay_out(stored_weights(built)))

    assert text() == text()


MEMORY = """
    import sys, threading, time
    from pathlib import Path
    import numpy as np
    from cabochon.checkpoint.header import read_header
    from cabochon.package.layout import lay_out
    from cabochon.package.writer import Silent, write_weights
    from cabochon.recipes import PRECISIONS

    def anonymous():
        status = Path("/proc/self/status").read_text()
        return int(status.split("RssAnon:")[1].split()[0]) << 10

    class Watching(Silent):
        peak = 0
        def advance(self, nbytes):
            self.peak = max(self.peak, anonymous())

    tensor = read_header(Path(sys.argv[1]))["t"]
    before, progress = anonymous(), Watching()
    for name in ("f16", "bf16", "f32"):
        stored = PRECISIONS[name].weights("t", tensor)
        folder = Path(sys.argv[2], name)
        folder.mkdir()
        write_weights(stored, lay_out(stored), folder, progress)
    print(before, progress.peak)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the anonymous memory from /proc")
def test_memory_stays_bounded_whatever_the_size_of_a_tensor(tmp_path):
    import json

    rows, columns = 20_000, 8_192  # 328 MB
    header = json.dumps(
        {"t": {"dtype": "BF16", "shape": [rows, columns], "data_offsets": [0, rows * columns * 2]}}
    )
    source = tmp_path / "big.safetensors"
    with source.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header.encode())
        file.truncate(8 + len(header) + rows * columns * 2)
    command = [sys.executable, "-c", textwrap.dedent(MEMORY), str(source), str(tmp_path)]
    before, peak = map(
        int, subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    )
    assert (tmp_path / "f32" / "model.onnx.data").stat().st_size == 4 * rows * columns
    assert peak < 300e6 and peak - before < 100e6, (
        f"{before / 1e6:.0f} MB before, {peak / 1e6:.0f} MB at most"
    )


def test_what_is_given_is_linked_and_not_computed(tmp_path):
    """Of two files, and of one that another graph has too, two are given; nothing is asked of their weights."""
    arrays = {name: random(1500, seed=i) for i, name in enumerate(("a", "b", "both"))}
    weights = [weight(name, array) for name, array in arrays.items()]
    layout = lay_out(weights, None, {"both"}, 8192)
    assert list(layout.files) == ["model.onnx.data", "model.onnx.data_1"]
    (tmp_path / "theirs").mkdir()
    theirs = write_files(weights, layout, tmp_path / "theirs", Silent(), Written())

    given = {
        tmp_path / "ours" / name: (tmp_path / "theirs" / name, theirs[name])
        for name in ("model.onnx.data", "both.data")
    }
    before, progress = Written(given=given), Counted()
    for folder in ("ours", "other"):
        (tmp_path / folder).mkdir()
    unread = AssertionError("is given, and was computed")
    idle = [
        weight("a", arrays["a"], fault=unread), weights[1], weight("both", arrays["both"], fault=unread)
    ]  # fmt: skip
    assert write_files(idle, layout, tmp_path / "ours", progress, before) == theirs
    assert sum(progress.steps) == layout.files["model.onnx.data_1"]
    twin = lay_out(weights[2:], None, {"both"})
    assert write_files(idle[2:], twin, tmp_path / "other", progress, before) == {
        "both.data": theirs["both.data"]
    }
    for path in (*given, tmp_path / "other" / "both.data"):
        assert path.samefile(tmp_path / "theirs" / path.name)


def test_what_is_given_and_has_another_size_is_refused(tmp_path):
    ours, digest = weight("a", random(10)), Digest(44, "0" * 64)
    (tmp_path / "theirs").write_bytes(bytes(44))
    before = Written(given={tmp_path / "model.onnx.data": (tmp_path / "theirs", digest)})
    with pytest.raises(GraphError, match="is given, of 44 bytes; expected 40"):
        write_files([ours], lay_out([ours]), tmp_path, Silent(), before)
