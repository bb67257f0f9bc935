"""External references that are attacks or accidents (what onnx.checker lets pass included)."""

import os

import numpy as np
import onnx
import pytest

from cabochon.errors import PackageError
from cabochon.package.graph_file import serialize, stored_weights
from cabochon.package.layout import lay_out
from cabochon.package.stage_check import check_graph, external_ranges
from cabochon.package.writer import Silent, write_weights
from weights import model, weight

NAMES = ("one", "two")


@pytest.fixture
def stage(tmp_path):
    folder = tmp_path / "stage"
    folder.mkdir()
    weights = [weight(name, np.arange(8, dtype=np.float32)) for name in NAMES]
    built = model(*weights)
    layout = lay_out(stored_weights(built))
    write_weights(weights, layout, folder / "model.onnx.data", Silent())
    (folder / "model.onnx").write_bytes(serialize(built, layout))
    return folder


def change(folder, **entries):
    """Rewrite the reference of the second weight; None removes an entry."""
    proto = onnx.load(folder / "model.onnx", load_external_data=False)
    tensor = proto.graph.initializer[1]
    now = {entry.key: entry.value for entry in tensor.external_data} | entries
    del tensor.external_data[:]
    for key, value in now.items():
        if value is not None:
            tensor.external_data.add(key=key, value=str(value))
    onnx.save(proto, folder / "model.onnx")


def test_what_was_written_passes(stage):
    check_graph(stage, NAMES)
    proto = onnx.load(stage / "model.onnx", load_external_data=False)
    assert list(external_ranges(proto)) == [
        ("one", "model.onnx.data", 0, 32),
        ("two", "model.onnx.data", 4096, 32),
    ]


@pytest.mark.parametrize(
    "entries, message",
    [
        ({"location": "/etc/hostname"}, "'/etc/hostname' is not the name of a file beside model.onnx"),
        ({"location": "../outside"}, "'../outside' is not the name of a file"),
        ({"location": "sub/model.onnx.data"}, "is not the name of a file"),
        ({"location": "sub\\model.onnx.data"}, "is not the name of a file"),
        ({"location": ".."}, "is not the name of a file"),
        ({"location": ""}, "is not the name of a file"),
        ({"location": "absent"}, "absent is not a regular file of the package"),
        ({"location": "link"}, "link is not a regular file of the package"),
        ({"location": "pipe"}, "pipe is not a regular file of the package"),
        ({"offset": -4}, "bytes -4 to 28 of model.onnx.data, which has 4128"),
        ({"offset": 4100}, "bytes 4100 to 4132 of model.onnx.data, which has 4128"),
        ({"offset": 1 << 70}, "which has 4128"),
        ({"offset": 4094}, "byte 4094 of model.onnx.data is no multiple of an element's size"),
        ({"length": 28}, r"28 bytes; FLOAT \[8\] takes 32"),
        ({"length": None}, "which has 4128"),
        ({"offset": "four"}, "the reference .* is not one"),
        ({"location": None}, "the reference .* is not one"),
    ],
)
def test_a_wrong_reference_is_refused(stage, entries, message):
    (stage / "link").symlink_to(stage.parent / "outside")
    (stage.parent / "outside").write_bytes(bytes(8192))
    os.mkfifo(stage / "pipe")
    change(stage, **entries)
    with pytest.raises(PackageError, match=f"two: .*{message}") as caught:
        check_graph(stage, NAMES)
    assert "one:" not in caught.value.message and caught.value.at.endswith("model.onnx")


def test_a_weight_inside_the_graph_is_refused(stage):
    proto = onnx.load(stage / "model.onnx", load_external_data=True)
    onnx.save(proto, stage / "model.onnx")
    with pytest.raises(
        PackageError, match=r"(?s)2 faults.*one: its bytes are inside model.onnx.*two: its bytes"
    ):
        check_graph(stage, NAMES)


def test_a_large_constant_is_refused(stage):
    proto = onnx.load(stage / "model.onnx", load_external_data=False)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(100_000, np.float32), "table"))
    onnx.save(proto, stage / "model.onnx")
    with pytest.raises(PackageError, match=r"table: 400000 bytes are inside model.onnx"):
        check_graph(stage, NAMES)


def test_what_onnx_checker_finds_is_a_fault(stage):
    proto = onnx.load(stage / "model.onnx", load_external_data=False)
    proto.graph.node[0].op_type = "Addd"
    onnx.save(proto, stage / "model.onnx")
    with pytest.raises(PackageError, match=r"onnx.checker: No Op registered for Addd"):
        check_graph(stage, NAMES)


def test_a_truncated_graph_is_a_fault(stage):
    (stage / "model.onnx").write_bytes((stage / "model.onnx").read_bytes()[:-3])
    with pytest.raises(PackageError, match="cannot be parsed"):
        check_graph(stage, NAMES)
