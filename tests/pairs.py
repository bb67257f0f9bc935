"""Pairs of a target and its drafter on disk, each built once a session: `pairs("tiny", "default", "f32")` is its path."""

import shutil
from functools import cache
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper

import cabochon
from drafters import traced
from packages import MINIATURE, TINY, Packages

SOURCES = {"tiny": TINY / "assistant", "tiny-dense": TINY / "assistant-dense", "miniature": MINIATURE / "assistant"}
TABLE = "model.embed_tokens.weight"
OURS = {"tiny": "tiny", "tiny-dense": "tiny", "miniature": "miniature"}


class Pairs:
    """Builds what is asked for under one folder, each once."""

    def __init__(self, packages: Packages) -> None:
        self.packages = packages
        self.model = cache(self._model)

    def __call__(self, source: str = "tiny", target: str = "default", precision: str = "f32") -> Path:
        out = self.packages.root / f"pair-{source}-{target}-{precision}"
        if not out.exists():
            write(out, self.packages(OURS[source], target, precision), SOURCES[source], target, precision)
        return out

    def _model(
        self, source: str = "tiny", target: str = "default", precision: str = "f32", **options: Any
    ) -> "cabochon.runtime.Model":
        return cabochon.load(self(source, target, precision), threads=1, provider="cpu", **options)


def write(out: Path, package: Path, assistant: Path, target: str, precision: str) -> None:
    """A pair in `out`: the drafter of `assistant`, and a copy of the package it drafts for."""
    shutil.copytree(package, out / "target")
    ir.save(traced(assistant, target, precision), out / "model.onnx")
    (out / "token_embedding.onnx").write_bytes(token_embedding(out / "target").SerializeToString())
    shutil.copy(assistant / "config.json", out / "config.json")
    shutil.copy(assistant / "generation_config.json", out / "assistant_generation_config.json")


def token_embedding(package: Path) -> onnx.ModelProto:
    """ids [batch, sequence] -> scaled embeddings [batch, sequence, hidden] over the table in the package's own data."""
    decoder = onnx.load(package / "model.onnx", load_external_data=False)
    table = next(t for t in decoder.graph.initializer if t.name == TABLE)
    for entry in table.external_data:
        if entry.key == "location":
            entry.value = f"{package.name}/{entry.value}"
    scale = float(next(p.value for p in decoder.metadata_props if p.key == "cabochon.embed_scale"))
    dtype = helper.tensor_dtype_to_np_dtype(table.data_type)
    nodes = [
        helper.make_node("Gather", [TABLE, "input_ids"], ["rows"]),
        helper.make_node("Mul", ["rows", "scale"], ["inputs_embeds"]),
    ]
    graph = helper.make_graph(
        nodes,
        "token_embedding",
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "sequence"])],
        [helper.make_tensor_value_info("inputs_embeds", table.data_type, ["batch", "sequence", table.dims[1]])],
        [table, numpy_helper.from_array(dtype.type(scale), "scale")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
