"""The f32 package run over a text: the mean square of every input channel of every weight that is multiplied with."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from cabochon.calibration.session import (
    Run,
    keep_needed,
    loops,
    products,
    read_graph,
    read_windows,
    row_products,
)
from cabochon.errors import PackageError
from cabochon.gemma4.names import EXPERTS, HEAD, TABLE
from cabochon.recipes.statistics import Statistics
from cabochon.runtime.folder import open_folder

__all__ = ["collect"]


def collect(
    package: str | Path,
    text: str | Path,
    *,
    limit: int | None = None,
    threads: int | None = None,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> Statistics:
    """Run the f32 text package `package` over the file `text`, or its first `limit` windows of 511 tokens.

    What does not fill a window is left out, unless it is all there is. Nothing but one number a channel leaves the
    graph in a run, and nothing is padded; <bos> counts like any other token. `progress` is told the windows done and of
    all. Raises PackageError for a package that is another, RequestError for a text that is none.
    """
    folder = open_folder(package)
    model, (said, windows) = read_graph(folder), read_windows(folder, Path(text), limit)
    weights = _sums_alone(model.graph)
    run, names = Run(model, folder.path, threads), list(weights)
    sums = [np.zeros(1)] * len(names)
    for done, ids in enumerate(windows.ids, 1):
        sums = [a + b for a, b in zip(sums, run.window(ids, names), strict=True)]
        progress(done, len(windows.ids))
    chosen = folder.text_config.get("top_k_experts") or 1
    means = _means(weights, sums, sum(map(len, windows.ids)), chosen)
    return Statistics(means, said.name or "", said.sha256, windows.scored, len(windows.ids))


def _sums_alone(graph: onnx.GraphProto) -> dict[str, list[str]]:
    """Let the graph put out nothing but the sums of squares over its positions of what is multiplied, and compute
    nothing else; the weights that each of them is for."""
    shapes = {weight.name: weight.dims for weight in graph.initializer}
    del graph.output[:]
    sums = dict[str, list[str]]()
    axes = onnx.numpy_helper.from_array(np.array([0, 1], np.int64), "sum_squares.axes")
    graph.initializer.append(axes)
    for value, weights in products(graph).items():
        name = f"sum_squares.{value}"
        sums[name] = weights
        graph.node.append(onnx.helper.make_node("ReduceSumSquare", [value, axes.name], [name], keepdims=0))
    for value, weights in _of_experts(graph).items():
        name = f"sum_squares.{value}"
        sums[name] = weights
        graph.node.append(onnx.helper.make_node("ReduceSum", [value, axes.name], [name], keepdims=0))
    for name, weights in sums.items():
        width = [shapes[weights[0]][1]]
        graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, width))
    keep_needed(graph)  # not the head's: its logits are the largest values of all
    return sums


def _of_experts(graph: onnx.GraphProto) -> dict[str, list[str]]:
    """Let the loops over experts put out the sums of squares of each turn, [turns, 1, width]; the weights of each."""
    found = dict[str, list[str]]()
    for name, (loop, body) in loops(graph).items():
        for value, weights in row_products(graph, body).items():
            square, out = f"{value}.squares", f"{name}.{value}"
            axes = onnx.numpy_helper.from_array(np.array([0], np.int64), f"{value}.axes")
            body.initializer.append(axes)
            body.node.append(
                onnx.helper.make_node("ReduceSumSquare", [value, axes.name], [square], keepdims=1)
            )
            body.output.append(onnx.helper.make_tensor_value_info(square, onnx.TensorProto.FLOAT, None))
            loop.output.append(out)
            found[out] = weights
    return found


def _means(
    weights: Mapping[str, Sequence[str]], sums: Iterable[np.ndarray], positions: int, chosen: int
) -> dict[str, np.ndarray]:
    """Over all positions; each of them comes to `chosen` experts, which have one mean together."""
    found = dict[str, np.ndarray]()
    for names, total in zip(weights.values(), sums, strict=True):
        rows = positions * chosen if EXPERTS in names[0] else positions
        mean = (total / rows).astype(np.float32)
        if not np.isfinite(mean).all():
            raise PackageError(
                "it is multiplied with what is no finite number: the model is broken", at=names[0]
            )
        found |= dict.fromkeys(names, mean)
    return {HEAD: found[TABLE], **found} if TABLE in found else found
