"""The graph of an f32 text package, changed in memory and run on windows of tokens."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort

from cabochon.errors import PackageError
from cabochon.evaluation.text import WINDOW, Text, Windows, cut, read_text
from cabochon.runtime.folder import Folder
from cabochon.runtime.properties import peek
from cabochon.runtime.tokens import Tokens

__all__ = ["Run", "keep_needed", "loops", "products", "read_graph", "read_windows", "row_products"]

_NEEDED = {"target": "default", "precision": "f32"}


def read_graph(folder: Folder) -> onnx.ModelProto:
    """The graph of a text package, its weights left in their file.

    Raises PackageError for one that is not of target default in f32, whose products are exact and easy to find.
    """
    found = {key: peek(folder.graph, key) for key in _NEEDED}
    if folder.full or found != _NEEDED:
        what = "a full package" if folder.full else f"{found['target']} {found['precision']}"
        raise PackageError(
            f"{what}; expected a text package, default f32",
            at=str(folder.path),
            remedy="build one with `cabochon build SOURCE OUT --precision f32`",
        )
    return onnx.load_model(folder.graph, load_external_data=False)


def read_windows(folder: Folder, path: Path, limit: int | None) -> tuple[Text, Windows]:
    """A text, and its tokens in windows of 511 behind <bos>; what looks like a control token is letters.

    Raises RequestError for a text that is none, PackageError for a package without a tokenizer.
    """
    text, tokenizer = read_text(path), folder.path / "tokenizer.json"
    if not tokenizer.is_file():
        raise PackageError("no tokenizer.json; expected one to read a text with", at=str(folder.path))
    tokens = Tokens(tokenizer, folder.tokenizer, folder.text_config.get("bos_token_id"))
    return text, cut(tokens.text(text.content), WINDOW, tokens.bos, limit, text.at)


def products(graph: onnx.GraphProto) -> dict[str, list[str]]:
    """The weights that each value is multiplied with."""
    weights, found = {weight.name for weight in graph.initializer}, dict[str, list[str]]()
    for node in graph.node:
        if node.op_type == "FusedMatMul" and node.input[1] in weights:
            found.setdefault(node.input[0], []).append(node.input[1])
    return found


def loops(graph: onnx.GraphProto) -> dict[str, tuple[onnx.NodeProto, onnx.GraphProto]]:
    """The loops over experts, by the name of their first output, with their bodies."""
    return {
        node.output[0]: (node, next(a.g for a in node.attribute if a.name == "body"))
        for node in graph.node
        if node.op_type == "Loop"
    }


def row_products(graph: onnx.GraphProto, body: onnx.GraphProto) -> dict[str, list[str]]:
    """The weights of `graph` whose rows each value of a loop's body is multiplied with."""
    weights = {weight.name for weight in graph.initializer}
    taken = {n.output[0]: n.input[0] for n in body.node if n.op_type == "Gather" and n.input[0] in weights}
    found = dict[str, list[str]]()
    for node in body.node:
        if node.op_type == "FusedMatMul" and node.input[1] in taken:
            found.setdefault(node.input[0], []).append(taken[node.input[1]])
    return found


def keep_needed(graph: onnx.GraphProto, given: Iterable[str] = ()) -> None:
    """Drop the nodes that no output needs, where some values are `given`."""
    wanted, kept = {output.name for output in graph.output}.difference(given), list[onnx.NodeProto]()
    for node in reversed(graph.node):
        if wanted.intersection(node.output):
            wanted.update(_read(node).difference(given))
            kept.append(node)
    del graph.node[:]
    graph.node.extend(reversed(kept))


def _read(node: onnx.NodeProto) -> set[str]:
    """What a node reads, in bodies as well."""
    bodies = [a.g.node for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]
    return {*node.input}.union(*(_read(each) for nodes in bodies for each in nodes))


class Run:
    """A graph on the CPU, which is run for one window at a time."""

    def __init__(
        self,
        model: onnx.ModelProto,
        folder: Path,
        threads: int | None = None,
        weights: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        """`model` with its weights from `folder`, but for the f32 `weights` by name, which are not copied."""
        options = ort.SessionOptions()
        options.log_severity_level = 4  # faults are raised
        options.intra_op_num_threads = threads or 0
        # packed forms would be a copy of every weight in memory
        options.add_session_config_entry("session.disable_prepacking", "1")
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
        if weights:
            self._weights = [ort.OrtValue.ortvalue_from_numpy(array) for array in weights.values()]
            for name, value in zip(weights, self._weights, strict=True):
                options.add_initializer(name, value)  # add_external_initializers would copy it
        self._session = ort.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        caches = {
            a.name: a.shape for a in self._session.get_inputs() if a.name.startswith("past_key_values.")
        }
        self._empty = {name: np.zeros((1, s[1], 0, s[3]), np.float32) for name, s in caches.items()}

    def window(self, ids: Sequence[int], fetched: Sequence[str]) -> list[np.ndarray]:
        """The outputs `fetched` of one row of tokens, from empty caches."""
        row = np.array([ids], np.int64)
        return self.once({**self._empty, "input_ids": row, "attention_mask": np.ones_like(row)}, fetched)

    def once(self, feeds: Mapping[str, np.ndarray], fetched: Sequence[str]) -> list[np.ndarray]:
        """The outputs `fetched` of these inputs."""
        return [np.asarray(array) for array in self._session.run(fetched, dict(feeds))]
