"""Bytes and parameters of the weights of packages of all kinds."""

import json
import math
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto

from cabochon.checkpoint import open_checkpoint
from cabochon.evaluation.weights import Weights, weigh
from packages import MINIATURE, TINY, Packages


@pytest.mark.parametrize(
    ("how", "source", "bits"),
    [
        (("miniature", "default", "f16"), MINIATURE / "target", 16),
        (("tiny", "cuda", "f32"), TINY / "text", 32),
        (("tiny-full", "default", "f32"), TINY / "target", 32),
    ],
)
def test_parameters_are_those_of_the_checkpoint_each_once(
    packages: Packages, how: tuple[str, str, str], source: Path, bits: int
) -> None:
    """The table of a tied head lies in a file with two names, or twice in one graph."""
    package = packages(*how)
    used = json.loads((package / "provenance.json").read_text("utf-8"))["tensors"]["used"]
    tensors = open_checkpoint(source).tensors
    expected = sum(math.prod(tensors[name].shape) for name in set(used.values()))
    assert weigh(package) == Weights(expected * bits // 8, expected)
    assert weigh(package).bits == bits


def test_a_pair_is_weighed_without_its_target(packages: Packages) -> None:
    pair = packages("tiny-pair")
    assert weigh(pair).nbytes < weigh(pair / "target").nbytes
    assert weigh(pair / "target") == weigh(packages("tiny"))


@pytest.fixture
def in_blocks(tmp_path: Path) -> Path:
    """A graph with 64 codes of 4 bits under two names, and their scales."""
    (tmp_path / "model.onnx.data").write_bytes(bytes(36))
    tensors = []
    for name, kind, dims, offset, length in (
        ("w", TensorProto.UINT8, [2, 16], 0, 32),
        ("w_blocks", TensorProto.UINT8, [2, 1, 16], 0, 32),
        ("w_scales", TensorProto.FLOAT16, [2, 1], 32, 4),
    ):
        tensor = TensorProto(name=name, data_type=kind, dims=dims, data_location=TensorProto.EXTERNAL)
        for key, value in (("location", "model.onnx.data"), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))
        tensors.append(tensor)
    graph = onnx.helper.make_graph([], "g", [], [], tensors)
    (tmp_path / "model.onnx").write_bytes(onnx.helper.make_model(graph).SerializeToString())
    return tmp_path


@pytest.mark.parametrize(
    ("stored", "parameters"),
    [
        ({"bytes": 4096, "parameters": 64, "weights": [{"role": "w", "parameters": 64, "bytes": 36}]}, 64),
        ({"parameters": "many"}, None),
        ({}, None),
        (None, None),
    ],
)
def test_parameters_of_weights_in_blocks_are_those_of_the_record(
    in_blocks: Path, stored: object, parameters: int | None
) -> None:
    (in_blocks / "provenance.json").write_text(json.dumps({"build": {"stored": stored}}))
    found = weigh(in_blocks)
    assert found == Weights(36, parameters)
    assert found.bits == (None if parameters is None else 4.5)


def test_without_a_record_nobody_knows(in_blocks: Path) -> None:
    assert weigh(in_blocks).bits is None
