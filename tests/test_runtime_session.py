"""Sessions: providers, threads, and what is refused at loading."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cabochon
from cabochon.errors import PackageError, RequestError
from cabochon.runtime.onnx_graph import CPU, chosen_provider
from cabochon.runtime.properties import peek
from cabochon.runtime.session import Session

CUDA = "CUDAExecutionProvider"


@pytest.mark.parametrize(
    ("asked", "target", "available", "chosen"),
    [
        (None, "default", [CUDA, CPU], CPU),
        (None, "cuda", [CUDA, CPU], CUDA),
        (None, "cuda", [CPU], CPU),
        (None, None, [CPU], CPU),
        ("cpu", "cuda", [CUDA, CPU], CPU),
        ("CUDA", "default", [CUDA, CPU], CUDA),
        (CUDA, "default", [CUDA, CPU], CUDA),
    ],
)
def test_the_provider_is_the_one_asked_for_or_the_targets(asked, target, available: list[str], chosen: str):
    assert chosen_provider(asked, target, available) == chosen


def test_a_provider_that_is_not_there_is_refused():
    with pytest.raises(
        RequestError, match=r"provider 'cuda' is not in this onnxruntime .*CPUExecutionProvider"
    ):
        chosen_provider("cuda", "cuda", [CPU])


def test_metadata_is_read_before_loading(package: Path, tmp_path: Path):
    assert peek(package / "model.onnx", "precision") == "f32"
    assert peek(package / "model.onnx", "target") == "default"
    assert peek(package / "model.onnx", "absent") is None
    (tmp_path / "empty").write_bytes(b"x")
    assert peek(tmp_path / "empty", "precision") is None


@pytest.mark.parametrize("length", range(5))
def test_metadata_that_breaks_off_is_absent(package: Path, tmp_path: Path, length: int):
    graph = (package / "model.onnx").read_bytes()
    end = graph.index(b"cabochon.precision\x12\x03f32") + len(b"cabochon.precision\x12")
    (tmp_path / "model.onnx").write_bytes(graph[: end + length])
    assert peek(tmp_path / "model.onnx", "precision") == ("f32" if length == 4 else None)
    with pytest.raises(PackageError, match=r"onnxruntime .* cannot load it"):
        cabochon.load(tmp_path)


def test_bfloat16_is_refused_with_what_to_do(package: Path, tmp_path: Path):
    graph = (package / "model.onnx").read_bytes()
    mark = b"cabochon.precision\x12\x03f32"
    assert graph.count(mark) == 1
    (tmp_path / "model.onnx").write_bytes(graph.replace(mark, b"cabochon.precision\x12\x04bf16"))
    with pytest.raises(RequestError) as caught:
        cabochon.load(tmp_path)
    assert "no bfloat16 kernels on the CPU" in str(caught.value)
    assert "--precision f32" in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"\x08\x0anonsense"])
def test_a_broken_graph_is_named(tmp_path: Path, content: bytes):
    (tmp_path / "model.onnx").write_bytes(content)
    with pytest.raises(PackageError) as caught:
        cabochon.load(tmp_path)
    assert str(tmp_path / "model.onnx") in str(caught.value)
    assert "onnxruntime" in str(caught.value)


def test_missing_weights_are_named(package: Path, tmp_path: Path):
    shutil.copy(package / "model.onnx", tmp_path)
    with pytest.raises(PackageError, match=r"model\.onnx\.data"):
        cabochon.load(tmp_path)


def test_a_graph_without_our_metadata_is_refused(package: Path, tmp_path: Path):
    graph = (package / "model.onnx").read_bytes()
    for name in ("cabochon.mask", "cabochon.max_positions"):
        (tmp_path / "model.onnx").write_bytes(graph.replace(name.encode(), b"x" * len(name)))
        shutil.copy(package / "model.onnx.data", tmp_path)
        with pytest.raises(PackageError, match=f"{name} is missing"):
            cabochon.load(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threads": 0}, "threads: 0; expected a whole number from 1 to 1024"),
        ({"threads": 100_000}, "threads: 100000; expected a whole number from 1 to 1024"),
        ({"provider": 5}, "provider: 5; expected a name"),
        ({"provider_options": "device_id"}, "provider_options: 'device_id'; expected an object"),
        ({"session_options": {"": 1}}, "session_options: '' = 1 is refused"),
    ],
)
def test_options_of_loading_are_refused(package: Path, options: dict[str, Any], message: str):
    with pytest.raises(RequestError) as caught:
        cabochon.load(package, **options)
    assert str(caught.value).startswith(message)


def test_options_of_onnxruntime_are_passed_on(package: Path):
    model = cabochon.load(package, threads=1, session_options={"session.disable_prepacking": 1})
    assert (
        model.session.graph._session.get_session_options().get_session_config_entry(
            "session.disable_prepacking"
        )
        == "1"
    )


def test_values_are_bound_not_copied(package: Path):
    session = Session(package / "model.onnx", threads=1)
    array = np.ones((1, 1, 4, 16), np.float32)
    value = session.put(array)
    assert np.shares_memory(value.numpy(), array)
    assert session.provider == CPU


def test_a_value_of_a_view_outlives_what_was_viewed(package: Path):
    """onnxruntime's numpy() is a view that keeps no array alive, and a slice of one row and head needs no copy."""
    session = Session(package / "model.onnx", threads=1)
    array = np.arange(400_000, dtype=np.float32).reshape(1, 1, -1, 16)
    whole = session.put(array)
    rest = session.put(whole.numpy()[:, :, 10:])
    assert not np.shares_memory(rest.numpy(), array)


def test_kept_values_are_those_that_were_given(package: Path):
    """A value of the binding's own would not keep the memory alive that it is written to."""
    session = Session(package / "model.onnx", threads=1)
    caches, ids = session.ports.caches, np.ones((1, 1), np.int64)
    given = {c.present: session.put(np.empty((1, c.heads, 1, c.size), np.float32)) for c in caches}
    arrays = {"input_ids": ids, "attention_mask": ids}
    _, kept = session.run(arrays, {c.past: session.empty(c, 1) for c in caches}, ["logits"], given)
    assert all(kept[name] is value for name, value in given.items())


def test_a_step_that_fails_is_an_error_of_ours(package: Path):
    session = Session(package / "model.onnx", threads=1)
    ids = np.full((1, 1), 7)
    with pytest.raises(RequestError, match=r"CPUExecutionProvider: onnxruntime .* failed in a step"):
        session.run({"input_ids": ids, "attention_mask": ids}, {}, ["logits"], {})
