"""web.json: what the page must know of a package, derived from its graphs and small files; no weight is read."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cabochon import sums
from cabochon.dialects.targets import WEBGPU_FILE
from cabochon.errors import PackageError
from cabochon.runtime.components import EMBEDDING, component_file
from cabochon.runtime.draft_length import FIRST
from cabochon.runtime.drafter import SHARED, anchors
from cabochon.runtime.folder import Folder, open_folder
from cabochon.runtime.pair import TARGET, is_pair, num_assistant_tokens
from cabochon.runtime.ports import REBUILD, Ports, read_contract, read_ports
from cabochon.web.graph_file import GraphFile, Port, read_graph

__all__ = ["FILES", "FORMAT", "manifest"]

FORMAT = 1
FILES = "package/"  # where the files of a package stand beside the page
TARGETS = ("default", "onnx-standard", "cuda", "webgpu")
PLACEHOLDERS = ("image", "video", "audio")


def manifest(package: str | Path) -> dict[str, Any]:
    """What web.json says of a package, in the types of JSON; docs/web.md says what each entry means.

    Raises PackageError where the package is none, is a drafter alone, or cannot run in a browser: bfloat16, a data file
    of 2 GiB or more.
    """
    path = Path(package)
    pair = is_pair(path)
    folder = open_folder(path / TARGET if pair else path)
    decoder = _readable(folder.graph)
    contract = read_contract(decoder.metadata, str(folder.graph))
    ports = read_ports(decoder.inputs.values(), decoder.optional.values(), decoder.outputs.values(), contract)
    graphs = _graphs(path, folder, decoder, pair=pair)
    held = _Held(path)
    said = {name: held.graph(graph) for name, graph in graphs.items()}
    return {
        "format": FORMAT,
        "name": path.resolve().name,
        "kind": "pair" if pair else "full" if folder.full else "text",
        "target": contract.target,
        "precision": contract.precision,
        "activations": {"float32": "f32", "float16": "f16"}[ports.dtype.name],
        "needs_f16": any("float16" in graph.types for graph in graphs.values()),
        "graphs": said,
        "decoder": _decoder(decoder, ports),
        "embedding": _embedding(graphs.get(EMBEDDING)),
        "drafter": _drafter(path, graphs["drafter"], ports) if pair else None,
        "tokenizer": _tokenizer(folder, held),
        "chat_template": _template(folder, held),
        "generation": _generation(folder),
        "remarks": list(folder.remarks),
        "total_bytes": held.total,
    }


def _graphs(path: Path, folder: Folder, decoder: GraphFile, *, pair: bool) -> dict[str, GraphFile]:
    """The graphs that text needs, by their role, in the order of loading."""
    found = {"decoder": decoder}
    if folder.full:
        found[EMBEDDING] = _readable(component_file(folder.path, EMBEDDING))
    if pair:
        found["drafter"] = _readable(path / "model.onnx")
        found["token_embedding"] = _readable(path / "token_embedding.onnx")
    return found


def _readable(path: Path) -> GraphFile:
    """A graph that a browser can run; PackageError for any other."""
    if path.suffix == ".xml":
        raise PackageError(
            f"this package is OpenVINO's IR; a browser runs {', '.join(TARGETS)}",
            at=str(path),
            remedy="build it with --target webgpu",
        )
    graph = read_graph(path)
    if "bfloat16" in graph.types:
        raise PackageError(
            "this package is bfloat16; neither WebGPU nor the wasm of onnxruntime-web has kernels for it",
            at=str(path),
            remedy="build it with --target webgpu and --precision f16, f32 or Q4_K_M",
        )
    if (target := graph.property("target")) not in (*TARGETS, None):
        raise PackageError(
            f"this package is of target {target!r}; a browser runs {', '.join(TARGETS)}",
            at=str(path),
            remedy="build it with --target webgpu",
        )
    return graph


class _Held:
    """Files of a package as the page asks for them; `total` counts the bytes of all, each once."""

    def __init__(self, package: Path) -> None:
        self._package, self._root = package, package.resolve()
        self._sums = sums.read(package)
        self._bytes: dict[str, int] = {}

    @property
    def total(self) -> int:
        return sum(self._bytes.values())

    def graph(self, graph: GraphFile) -> dict[str, Any]:
        data = [
            {"path": name, **self._data(graph.path.parent / name, end)} for name, end in graph.data.items()
        ]
        inputs = {**graph.inputs, **graph.optional}
        return {
            **self.file(graph.path),
            "data": data,
            "inputs": _ports(inputs.values()),
            "outputs": _ports(graph.outputs.values()),
        }

    def _data(self, path: Path, end: int) -> dict[str, Any]:
        """A file of weights, which the graph reads up to byte `end`."""
        found = self.file(path)
        if found["bytes"] < end:
            raise PackageError(
                f"{found['bytes']:,} bytes; the graph reads {end:,}", at=str(path), remedy=REBUILD
            )
        return found

    def file(self, path: Path) -> dict[str, Any]:
        """Where the page finds a file, its bytes and its sum; raise PackageError for one that a browser cannot load."""
        if not path.is_file():
            raise PackageError("it is missing", at=str(path), remedy=REBUILD)
        name = path.relative_to(self._package).as_posix()
        self._require_inside(path)
        if name not in self._sums:
            raise PackageError(
                f"SHA256SUMS does not know {name}; expected every file of the package",
                at=str(self._package),
                remedy=REBUILD,
            )
        nbytes = path.stat().st_size
        if nbytes > WEBGPU_FILE:
            raise PackageError(
                f"{nbytes:,} bytes in one file; a browser loads files below 2 GiB",
                at=str(path),
                remedy="build it with --target webgpu, whose data files are all smaller, or with --precision Q4_K_M",
            )
        self._bytes[name] = nbytes
        return {"file": FILES + quote(name), "bytes": nbytes, "sha256": self._sums[name]}

    def _require_inside(self, path: Path) -> None:
        if not path.resolve().is_relative_to(self._root):
            raise PackageError(
                "a symlink that leaves the package; expected a file of it",
                at=str(path),
                remedy="put the file itself, or a hard link to it, in its place",
            )


def _ports(ports: Iterable[Port]) -> dict[str, Any]:
    return {port.name: {"type": port.element, "shape": port.shape} for port in ports}


def _decoder(graph: GraphFile, ports: Ports) -> dict[str, Any]:
    contract = ports.contract
    return {
        "mask": contract.mask,
        "window": contract.window,
        "max_positions": contract.max_positions,
        "vocabulary": ports.vocabulary,
        "keeps": ports.keeps,
        "last_only": ports.last_only,
        "takes": sorted(ports.takes),
        "hidden": ports.hidden,
        "hidden_size": graph.width(ports.hidden) if ports.hidden else None,
        "caches": [
            {"past": c.past, "present": c.present, "heads": c.heads, "size": c.size, "sliding": c.sliding}
            for c in ports.caches
        ],
    }


def _embedding(graph: GraphFile | None) -> dict[str, Any] | None:
    """Ids of tokens that stand for features, and what stands in their place where there are none."""
    if graph is None:
        return None
    ids = {name: _id(graph, f"{name}_token_id") for name in PLACEHOLDERS}
    return {
        "pad": _id(graph, "pad_token_id") or 0,
        "placeholders": {name: number for name, number in ids.items() if number is not None},
    }


def _id(graph: GraphFile, key: str) -> int | None:
    value = graph.property(key)
    if value is not None and not value.isdecimal():
        raise PackageError(f"{key} is {value!r}; expected a token id", at=str(graph.path), remedy=REBUILD)
    return None if value is None else int(value)


def _drafter(path: Path, graph: GraphFile, target: Ports) -> dict[str, Any]:
    """Which present output of the target each of the drafter's shared inputs reads."""
    shared: dict[str, dict[str, str]] = {}
    for name, cache in anchors(graph.inputs, target.caches).items():
        kind, part = name.removeprefix(SHARED).rsplit(".", 1)
        shared.setdefault(kind, {})[part] = cache.present
    if target.hidden is None:
        raise PackageError(
            "the target has no output hidden_states; expected one, which the drafter reads",
            at=str(path),
            remedy=REBUILD,
        )
    window = graph.property("sliding_window")
    return {
        "window": int(window) if window else None,
        "num_assistant_tokens": num_assistant_tokens(path) or FIRST,
        "shared": shared,
    }


def _tokenizer(folder: Folder, held: _Held) -> dict[str, Any] | None:
    path, config = folder.path / "tokenizer.json", folder.path / "tokenizer_config.json"
    if not path.is_file():
        return None
    found = held.file(path)
    return {**found, "config": held.file(config)["file"] if config.is_file() else None}


def _template(folder: Folder, held: _Held) -> str | None:
    """The file of the chat template; None where there is none, or tokenizer_config.json has it."""
    path = folder.path / "chat_template.jinja"
    return held.file(path)["file"] if path.is_file() else None


def _generation(folder: Folder) -> Mapping[str, Any]:
    """How an answer ends and tokens are drawn, where the package says so."""
    ends, bos = set(folder.eos_token_ids), folder.text_config.get("bos_token_id")
    tokenizer = folder.path / "tokenizer.json"
    if tokenizer.is_file():
        from cabochon.metadata.vocabulary import read_vocabulary

        named = read_vocabulary(tokenizer, names=folder.tokenizer).special
        ends |= {named["eos"].id} if "eos" in named else set()
        bos = named["bos"].id if "bos" in named else bos
    drawn = ("do_sample", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "max_new_tokens")
    stated = {key: folder.generation[key] for key in drawn if folder.generation.get(key) is not None}
    pad = folder.generation.get("pad_token_id", folder.text_config.get("pad_token_id"))
    return {"eos": sorted(ends), "bos": bos, "pad": pad, **stated}
