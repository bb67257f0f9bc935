"""The f32 package run over a text: the mean square of every input channel of every weight that is multiplied with."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from cabochon.calibration.session import Run, keep_needed, products, read_graph, read_windows
from cabochon.errors import PackageError
from cabochon.gemma4.names import HEAD, TABLE
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
    means = _means(weights, sums, sum(map(len, windows.ids)))
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
        width = [shapes[weights[0]][1]]
        graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, width))
    keep_needed(graph)  # not the head's: its logits are the largest values of all
    return sums


def _means(
    weights: Mapping[str, Sequence[str]], sums: Iterable[np.ndarray], positions: int
) -> dict[str, np.ndarray]:
    found = dict[str, np.ndarray]()
    for names, total in zip(weights.values(), sums, strict=True):
        mean = (total / positions).astype(np.float32)
        if not np.isfinite(mean).all():
            raise PackageError(
                "it is multiplied with what is no finite number: the model is broken", at=names[0]
            )
        found |= dict.fromkeys(names, mean)
    return {HEAD: found[TABLE], **found} if TABLE in found else found
