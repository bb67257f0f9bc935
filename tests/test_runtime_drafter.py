"""A drafter that does not fit its target is refused; one that does binds the target's caches."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import cabochon
from cabochon.errors import PackageError
from cabochon.runtime.drafter import anchors
from cabochon.runtime.ports import Cache
from pairs import Pairs


class Port:
    """A graph's input by name and shape."""

    type = "tensor(float)"

    def __init__(self, name: str, heads: int, size: int) -> None:
        self.name, self.shape = name, ["batch", heads, "kv_sequence", size]


def cache(i: int, sliding: bool, size: int = 16, part: str = "key") -> Cache:
    return Cache(f"past_key_values.{i}.{part}", f"present.{i}.{part}", 1, size, sliding)


CACHES = tuple(
    cache(i, sliding, 16 if sliding else 32, part)
    for i, sliding in ((0, True), (4, False), (5, True))
    for part in ("key", "value")
)


def test_the_last_layer_of_each_kind_is_read():
    ports = {
        f"shared_kv.{kind}.{part}": Port(f"shared_kv.{kind}.{part}", 1, size)
        for kind, size in (("full_attention", 32), ("sliding_attention", 16))
        for part in ("key", "value")
    }
    found = {name: its.past for name, its in anchors(ports, CACHES).items()}
    assert found == {
        "shared_kv.full_attention.key": "past_key_values.4.key",
        "shared_kv.full_attention.value": "past_key_values.4.value",
        "shared_kv.sliding_attention.key": "past_key_values.5.key",
        "shared_kv.sliding_attention.value": "past_key_values.5.value",
    }


@pytest.mark.parametrize(
    ("name", "heads", "size", "message"),
    [
        (
            "shared_kv.full_attention.key",
            1,
            64,
            "1 heads of 64; expected 1 heads of 32, as past_key_values.4.key",
        ),
        ("shared_kv.sliding_attention.key", 2, 16, "2 heads of 16; expected 1 heads of 16"),
        ("shared_kv.linear_attention.key", 1, 16, "has no counterpart; expected caches of linear_attention"),
    ],
)
def test_other_caches_are_refused(name: str, heads: int, size: int, message: str):
    with pytest.raises(PackageError) as caught:
        anchors({name: Port(name, heads, size)}, CACHES)
    assert message in str(caught.value)


def test_a_view_is_where_the_target_keeps_it(pairs: Pairs):
    model = pairs.model()
    state = model.state()
    state.feed([2, 30, 40, 50])
    view = model.proposer._drafter.view(state)
    pointers = {value.data_ptr() for value in state.values.values()}
    assert {value.data_ptr() for value in view.shared.values()} <= pointers
    assert len(view.shared) == 4 and view.mask.tolist() == [[1, 1, 1, 1]]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ("miniature", "heads of"),
        ("f16", "is tensor(float16); expected float32, as the target"),
    ],
)
def test_another_targets_drafter_is_refused(pairs: Pairs, tmp_path: Path, other: str, message: str):
    pair = shutil.copytree(pairs(), tmp_path / "pair")
    stranger = pairs(other) if other != "f16" else pairs("tiny", "default", "f16")
    for name in ("model.onnx", "model.onnx.data"):
        shutil.copy(stranger / name, pair / name)
    with pytest.raises(PackageError) as caught:
        cabochon.load(pair, threads=1)
    assert message in str(caught.value)


def test_a_target_without_its_hidden_state_is_refused(pairs: Pairs, tmp_path: Path):
    pair = shutil.copytree(pairs(), tmp_path / "pair")
    graph = pair / "target" / "model.onnx"
    proto = onnx.load(graph, load_external_data=False)
    outputs = [o for o in proto.graph.output if not o.name.startswith("hidden_states")]
    del proto.graph.output[:]
    proto.graph.output.extend(outputs)
    graph.write_bytes(proto.SerializeToString())
    with pytest.raises(PackageError, match="hidden_states is missing; expected an output of the target"):
        cabochon.load(pair, threads=1)
    assert cabochon.load(pair, threads=1, proposer="prompt-lookup").generate([2, 30], max_new_tokens=3).ids


@pytest.mark.parametrize("missing", ["target", "token_embedding.onnx"])
def test_a_drafter_alone_is_refused(pairs: Pairs, tmp_path: Path, missing: str):
    pair = shutil.copytree(pairs(), tmp_path / "pair")
    shutil.rmtree(pair / missing) if missing == "target" else (pair / missing).unlink()
    with pytest.raises(PackageError, match="expected a pair, as a drafter generates nothing alone"):
        cabochon.load(pair)


def test_a_target_is_a_package_by_itself(pairs: Pairs, recorded: Any):
    model = cabochon.load(pairs() / "target", threads=1)
    assert model.proposer is None
    said = model.generate(recorded["text/text"]["prompt"], max_new_tokens=16, greedy=True, ignore_eos=True)
    assert (said.ids, said.speculation) == (recorded["text/text"]["tokens"], None)


def test_rows_of_the_table_are_scaled(pairs: Pairs, tmp_path: Path):
    """The drafter's first half is what the target feeds its first layer."""
    for precision, scale in (("f32", 8.0), ("f16", 8.0)):
        model = pairs.model("tiny", "default", precision)
        drafter = model.proposer._drafter
        made, _ = drafter._embedding.run({drafter._ids: np.array([[7, 300]])}, {}, [drafter._rows], {})
        copied = shutil.copytree(pairs("tiny", "default", precision), tmp_path / precision)
        proto = onnx.load(copied / "token_embedding.onnx")  # which reads no file that has two names
        table = onnx.numpy_helper.to_array(max(proto.graph.initializer, key=lambda t: len(t.raw_data)))
        np.testing.assert_array_equal(made[drafter._rows][0], table[[7, 300]] * table.dtype.type(scale))
