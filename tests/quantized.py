"""Quantized graphs for tests: written as packages have them, and the oracle on what their blocks stand for."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

import oracle
from cabochon.dialects import TARGETS
from cabochon.package.graph_file import serialize, stored_weights
from cabochon.package.layout import GRAPH, lay_out
from cabochon.package.writer import Silent, write_weights
from cabochon.parity.dequantized import Dequantized
from cabochon.recipes import PRECISIONS, Precision


def precision(name: str, target: str, **changes: Any) -> Precision:
    """A precision as it is built for a target; `changes` of it, such as another type of activations."""
    return replace(PRECISIONS[name], **changes).on(TARGETS[target].storage)


def write(model: ir.Model, folder: Path) -> Path:
    """model.onnx and its weights, as a build writes them, and nothing else; the path of the former."""
    weights = stored_weights(model)
    layout = lay_out(weights)
    folder.mkdir(parents=True, exist_ok=True)
    write_weights(weights, layout, folder, Silent())
    (folder / GRAPH).write_bytes(serialize(model, layout))
    return folder / GRAPH


def span(graph: Path, name: str) -> slice:
    """Where the bytes of an initializer stand in the data file."""
    tensors = {tensor.name: tensor for tensor in onnx.load(graph, load_external_data=False).graph.initializer}
    said = {entry.key: entry.value for entry in tensors[name].external_data}
    start = int(said["offset"])
    return slice(start, start + int(said["length"]))


class Stand:
    """The oracle's weights where those in blocks are what the bytes of graphs say. `prefix`: of names in the file."""

    def __init__(self, weights: oracle.Weights, found: Dequantized, prefix: str = "model.") -> None:
        self.own = weights
        names = {name: name.replace(prefix, "model.", 1) for name in weights.t}
        shapes = {names[name]: tuple(entry[4]) for name, entry in weights.t.items()}
        spelled = {canonical: name for name, canonical in names.items()}
        placed = found.place(shapes)
        self.replaced: Mapping[str, np.ndarray] = {spelled.get(name, name): x for name, x in placed}

    def __call__(self, name: str) -> np.ndarray:
        return self.replaced[name] if name in self.replaced else self.own(name)

    def __contains__(self, name: str) -> bool:
        return name in self.replaced or name in self.own

    @property
    def apart(self) -> dict[str, float]:
        """How far each weight in blocks is from the checkpoint's, relatively."""
        table = next(name for name in self.own.t if name.endswith("embed_tokens.weight"))
        own = {name: self.own(name if name in self.own else table) for name in self.replaced}
        return {
            name: float(np.linalg.norm(x - own[name]) / np.linalg.norm(own[name]))
            for name, x in self.replaced.items()
        }
