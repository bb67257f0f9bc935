from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from cabochon.errors import TargetError
from cabochon.package.graph_file import stored_weights
from cabochon.package.layout import Place, data_bytes, lay_out
from weights import model, weight

A, B = Path("a.safetensors"), Path("b.safetensors")
F32 = np.arange(6, dtype=np.float32)


def always(source: Path, name: str) -> None:
    return None


def test_order_is_that_of_first_use():
    weights = [weight(name, F32) for name in ("one", "two", "three")]
    built = model(*weights)
    graph = built.graph
    first, *rest = list(graph)
    graph.remove(first)  # add0 read `one` first; as the last node it does so last
    rest[0].replace_input_with(0, graph.inputs[0])
    first.replace_input_with(0, rest[-1].outputs[0])
    graph.append(first)
    graph.outputs[0] = first.outputs[0]
    assert [found.name for found in stored_weights(built)] == ["two", "three", "one"]


def test_a_weight_used_twice_or_by_nobody_is_there_once():
    shared, unused = weight("shared", F32), weight("unused", F32)
    built = model(shared)
    node = next(iter(built.graph))
    built.graph.append(ir.Node("", "Mul", [node.outputs[0], node.inputs[1]], name="again"))
    value = ir.Value(name="unused", type=ir.TensorType(unused.dtype), shape=unused.shape, const_value=unused)
    built.graph.register_initializer(value)
    assert stored_weights(built) == [shared, unused]


def test_offsets_are_whole_pages_and_large_weights_whole_granules():
    sizes = {"norm": 6, "matrix": 1 << 18, "scalar": 1, "table": 300_000}
    layout = lay_out([weight(name, np.zeros(size, np.float32)) for name, size in sizes.items()])
    assert list(layout.files) == ["model.onnx.data"] and not layout.links and not layout.copied
    assert layout.places["norm"] == Place("model.onnx.data", 0, 24)
    assert layout.places["matrix"] == Place("model.onnx.data", 65_536, 1 << 20)
    assert layout.places["scalar"] == Place("model.onnx.data", 65_536 + (1 << 20), 4)
    assert layout.places["table"] == Place("model.onnx.data", 2 * 65_536 + (1 << 20), 1_200_000)
    assert layout.nbytes == 2 * 65_536 + (1 << 20) + 1_200_000


@pytest.mark.parametrize(
    ("limit", "files", "starts"),
    [
        (None, {"": 36_868}, [0, 4096, 12_288, 16_384, 28_672, 36_864]),
        (36_868, {"": 36_868}, [0, 4096, 12_288, 16_384, 28_672, 36_864]),
        (36_867, {"": 36_864, "_1": 4}, [0, 4096, 12_288, 16_384, 28_672, 0]),
        (20_000, {"": 15_288, "_1": 9000, "_2": 8196}, [0, 4096, 12_288, 0, 0, 8192]),
        (9000, {"": 24, "_1": 8000, "_2": 3000, "_3": 9000, "_4": 8196}, [0, 0, 0, 0, 0, 8192]),
    ],
)
def test_a_file_ends_where_the_next_weight_would_pass_the_limit(limit, files, starts):
    sizes = (24, 8000, 3000, 9000, 8192, 4)
    layout = lay_out([weight(str(n), np.zeros(n // 4, np.float32)) for n in sizes], limit=limit)
    assert layout.files == {f"model.onnx.data{tail}": nbytes for tail, nbytes in files.items()}
    assert [place.offset for place in layout.places.values()] == starts
    assert layout.nbytes == data_bytes(sizes, limit) == sum(files.values())
    for place in layout.places.values():
        assert place.offset + place.nbytes <= layout.files[place.location] <= (limit or 40_000)


@pytest.mark.parametrize("twins", [(), ("large",)])
def test_a_weight_beyond_the_limit_is_refused(twins):
    small, large = weight("small", F32), weight("large", np.zeros(1000, np.float32))
    with pytest.raises(TargetError, match="4,000 bytes; the target reads files of at most 3,999") as caught:
        lay_out([small, large], twins=twins, limit=3999)
    assert caught.value.at == "large"
    assert lay_out([small, large], twins=twins, limit=4000).nbytes == (24 if twins else 4024)


def test_linked_weights_and_twins_take_no_room_in_the_files_to_write():
    weights = [
        weight("first", F32, span=(A, 66)),
        weight("linked", np.zeros(1000, np.float32), span=(A, 64)),
        weight("twin", F32),
        weight("second", F32, span=(A, 66)),
        weight("third", F32, span=(A, 66)),
    ]
    layout = lay_out(weights, always, ["twin"], 4200)
    assert layout.files == {"model.onnx.data": 4120, "model.onnx.data_1": 24}
    assert [place.location for place in layout.places.values()] == [
        "model.onnx.data",
        "checkpoint-00001-of-00001.safetensors",
        "twin.data",
        "model.onnx.data",
        "model.onnx.data_1",
    ]


def test_one_file_that_holds_everything_takes_the_place_of_the_data():
    calls = []
    weights = [weight("one", F32, span=(A, 64)), weight("two", F32, span=(A, 8))]
    layout = lay_out(weights, lambda source, name: calls.append((source, name)))
    assert calls == [(A, "model.onnx.data")]
    assert layout.places == {"one": Place("model.onnx.data", 64, 24), "two": Place("model.onnx.data", 8, 24)}
    assert (layout.files, layout.nbytes) == ({}, 0) and not layout.copied


def test_shards_are_numbered_in_the_order_of_use():
    layout = lay_out([weight("one", F32, span=(B, 64)), weight("two", F32, span=(A, 8))], always)
    assert dict(layout.links) == {
        "checkpoint-00001-of-00002.safetensors": B,
        "checkpoint-00002-of-00002.safetensors": A,
    }
    assert layout.places["two"] == Place("checkpoint-00002-of-00002.safetensors", 8, 24)
    assert not layout.files


@pytest.fixture
def source(tmp_path):
    """A tensor of six f32 values in a file."""
    from cabochon.checkpoint.header import read_header
    from checkpoints import write

    write(tmp_path / "a.safetensors", {"t": ("F32", [6], F32.tobytes())})
    return read_header(tmp_path / "a.safetensors")["t"]


def test_what_cannot_be_linked_is_copied_with_the_reason(source):
    weights = [
        weight("linked", F32, span=(A, 64)),
        weight("cast", F32.astype(np.float16), source=source),
        weight("columns", F32[:2], source=source),
        weight("odd", F32, span=(A, 66)),
    ]
    layout = lay_out(weights, always)
    assert dict(layout.links) == {"checkpoint-00001-of-00001.safetensors": A}
    assert layout.places["linked"] == Place("checkpoint-00001-of-00001.safetensors", 64, 24)
    assert [layout.places[name].location for name in ("cast", "columns", "odd")] == ["model.onnx.data"] * 3
    assert dict(layout.copied) == {
        "cast": "the checkpoint holds F32",
        "columns": "only a part of a tensor is needed",
        "odd": "the checkpoint has it at byte 66, which is no multiple of its element's size",
    }


def test_a_file_that_cannot_be_linked_is_copied():
    reason = "the checkpoint lies on another filesystem"
    weights = [weight("one", F32, span=(A, 64)), weight("two", F32, span=(A, 8))]
    layout = lay_out(weights, lambda source, name: reason)
    assert not layout.links and layout.files == {"model.onnx.data": 4096 + 24}
    assert dict(layout.copied) == {"one": reason, "two": reason}
    assert {place.location for place in layout.places.values()} == {"model.onnx.data"}


def test_nothing_to_link_makes_no_link():
    layout = lay_out([weight("odd", F32, span=(A, 3))], pytest.fail)
    assert not layout.links and layout.nbytes == 24
