"""Sessions: providers, threads, and what is refused at loading."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import cabochon
from cabochon.errors import PackageError, RequestError
from cabochon.runtime.session import CPU, Session, chosen_provider, peek

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


def test_threads_start_at_one(package: Path):
    with pytest.raises(RequestError, match="threads: 0 threads"):
        cabochon.load(package, threads=0)


def test_options_of_onnxruntime_are_passed_on(package: Path):
    model = cabochon.load(package, threads=1, session_options={"session.disable_prepacking": 1})
    assert (
        model.session._session.get_session_options().get_session_config_entry("session.disable_prepacking")
        == "1"
    )


def test_values_are_bound_not_copied(package: Path):
    session = Session(package / "model.onnx", threads=1)
    array = np.ones((1, 1, 4, 16), np.float32)
    value = session.put(array)
    assert np.shares_memory(value.numpy(), array)
    assert session.provider == CPU


def test_a_step_that_fails_is_an_error_of_ours(package: Path):
    session = Session(package / "model.onnx", threads=1)
    ids = np.full((1, 1), 7)
    with pytest.raises(RequestError, match=r"CPUExecutionProvider: onnxruntime .* failed in a step"):
        session.run({"input_ids": ids, "attention_mask": ids}, {}, ["logits"], {})
