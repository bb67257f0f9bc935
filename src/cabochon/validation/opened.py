"""A package opened to be judged: whatever cannot be read becomes a fault under a rule's code, never an exception."""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from cabochon.checkpoint import Checkpoint
from cabochon.errors import CabochonError, MetadataError, PackageError
from cabochon.gemma4 import DrafterConfig, TextConfig, read_config
from cabochon.strict_json import parse_object
from cabochon.validation.graph import Graph, read_graph
from cabochon.validation.net import Net, read_net
from cabochon.validation.rules import Found

if TYPE_CHECKING:
    from cabochon.metadata.document import Document
    from cabochon.validation.scan import Scan

__all__ = [
    "CANONICAL",
    "DECODER",
    "DOCUMENTS",
    "DRAFTER",
    "FED",
    "LOOKUP",
    "NET",
    "WRAPPED",
    "Graph",
    "Opened",
    "open_package",
]

CANONICAL = "inference_metadata.yaml"
DOCUMENTS = (CANONICAL, "inference_metadata.loop.yaml", "inference_metadata.annotated.yaml")
DECODER = "model.onnx"
FED, LOOKUP = "decoder/model.onnx", "embedding/model.onnx"  # of a full package
NET, WRAPPED = "openvino_model.xml", "model.xml"  # OpenVINO's graph; the one that an EPContext node refers to
DRAFTER, TARGET = "drafter", "target"  # cabochon.model of a graph; the folder in a pair
_LOCATED, _LONG = (
    20,
    1 << 18,
)  # faults and bytes of a document; for each fault it is read again to find the line
_LARGEST_JSON = 256 << 20  # bytes; the tokenizer of the largest model has 33 MB


@dataclass(frozen=True)
class Opened:
    """What could be read of a package. Names are paths inside it, with forward slashes.

    `files`: size in bytes of every regular file; `documents`, `raw`: those of `DOCUMENTS` that are typed, and that are
    YAML; `graphs`: every .onnx file that could be parsed, weights not loaded, but for `contexts`, those that wrap what
    another runtime made; `nets`: every OpenVINO IR file that could be read; `config`: config.json as a text model,
    `drafter`: as a drafter.
    `faults`: what opening found, by the code of the rule that reports it. `source`: the checkpoint to compare with.
    `kept`: what rules share, computed once.
    """

    root: Path
    files: Mapping[str, int]
    documents: Mapping[str, "Document"]
    raw: Mapping[str, Any]
    graphs: Mapping[str, Graph]
    contexts: Mapping[str, Graph]
    nets: Mapping[str, Net]
    config: TextConfig | None
    faults: Mapping[str, tuple[Found, ...]]
    source: Checkpoint | None = None
    drafter: DrafterConfig | None = None
    kept: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def document(self) -> "Document | None":
        """The canonical document."""
        return self.documents.get(CANONICAL)

    @property
    def converted(self) -> bool:
        """Its graphs are OpenVINO's: IR files, or IR files that an ONNX graph wraps. No document describes those."""
        names = {PurePosixPath(name).name for name in self.files if name not in self.graphs}
        return bool(self.contexts) or NET in names

    @cached_property
    def components(self) -> Mapping[str, Graph]:
        """The graph of each ONNX component of the canonical document, of those that could be read."""
        return self.components_of(self.document) if self.document else {}

    def components_of(self, document: "Document") -> Mapping[str, Graph]:
        """The graph of each ONNX component of a document, of those that could be read."""
        found = artifacts(document)
        return {name: self.graphs[path] for name, path in found.items() if path in self.graphs}

    @property
    def decoder(self) -> Graph | None:
        """model.onnx of a text package, decoder/model.onnx of a full one."""
        graph = self.graphs.get(DECODER, self.graphs.get(FED))
        return None if graph is None or graph.properties.get("cabochon.model") == DRAFTER else graph

    @property
    def inner(self) -> str | None:
        """The folder of a pair that holds the target, a package of its own; None for another package."""
        decoders = any(f"{TARGET}/{name}" in self.files for name in (DECODER, FED))
        files = (NET, f"decoder/{NET}", WRAPPED, f"decoder/{WRAPPED}")
        nets = any(f"{TARGET}/{name}" in self.files for name in files)
        return TARGET if nets or (decoders and f"{TARGET}/{CANONICAL}" in self.files) else None

    def again(self) -> "Opened | None":
        """The package with the files that it has now. None where a document or a graph came or went meanwhile."""
        faults = {code: list(found) for code, found in self.faults.items() if code != "FIL004"}
        files = dict(_files(self.root, faults))
        if _judged(files) != _judged(self.files):
            return None
        frozen = {code: tuple(found) for code, found in faults.items()}
        return replace(self, files=files, faults=frozen, kept={})

    def path(self, name: str) -> Path:
        """Where a file of `files` lies."""
        return self.root / name

    def bytes(self, name: str) -> bytes:
        """The content of a file of `files`."""
        return self.path(name).read_bytes()

    def text(self, name: str) -> str | None:
        """The text of a file; None where it is absent or no UTF-8."""
        try:
            return self.bytes(name).decode() if name in self.files else None
        except UnicodeDecodeError:
            return None

    def json(self, name: str) -> dict[str, Any] | None:
        """The object in a JSON file, parsed once; None where the file is absent or holds none."""
        read = self._read_json(name)
        return read if isinstance(read, dict) else None

    def json_fault(self, name: str) -> str:
        """Why a JSON file of `files` holds no object; "" where it does."""
        read = self._read_json(name)
        return read if isinstance(read, str) else ""

    def _read_json(self, name: str) -> dict[str, Any] | str:
        key = f"json {name}"
        if key not in self.kept:
            self.kept[key] = self._parse(name)
        return self.kept[key]

    def _parse(self, name: str) -> dict[str, Any] | str:
        if name not in self.files:
            return "no such file"
        if self.files[name] > _LARGEST_JSON:
            return f"{self.files[name]} bytes"
        try:
            return parse_object(self.bytes(name))
        except (ValueError, OSError) as error:
            return str(error)

    @cached_property
    def scan(self) -> "Scan":
        """Every file read once, in blocks: its SHA-256, and what the weights in it hold."""
        from cabochon.validation.scan import scan

        return scan(self)

    @cached_property
    def met(self) -> frozenset[str]:
        """Those needs of a rule that reading could meet: "document", "graphs", "config"."""
        named = artifacts(self.document).values() if self.document else ()
        read = bool(self.graphs) and all(path in self.graphs for path in (*named, *self._decoder_file))
        known = {"document": self.document is not None, "graphs": read, "config": self.config is not None}
        return frozenset(name for name, found in known.items() if found)

    @property
    def _decoder_file(self) -> tuple[str, ...]:
        return tuple(name for name in (DECODER, FED) if name in self.files)


def _judged(files: Iterable[str]) -> set[str]:
    """The documents and graphs among them."""
    return {name for name in files if name in DOCUMENTS or PurePosixPath(name).suffix in (".onnx", ".xml")}


def artifacts(document: "Document") -> dict[str, str]:
    """The .onnx file of each ONNX component, as it is written in the document."""
    if document.pipeline is None:
        return {}
    found = {name: c.implementation for name, c in document.pipeline.workflow.components.items()}
    return {name: i.artifact for name, i in found.items() if i.kind == "onnx"}


def open_package(root: str | Path, *, source: Checkpoint | None = None) -> Opened:
    """Open a package. Raises PackageError where `root` is no folder; whatever is wrong inside is a fault."""
    folder = Path(root)
    if not folder.is_dir():
        found = "is not a folder" if os.path.lexists(folder) else "does not exist"
        raise PackageError(
            f"{found}; expected a package", at=str(root), remedy="make one with `cabochon build`"
        )
    folder, faults = folder.resolve(), dict[str, list[Found]]()
    files = dict(_files(folder, faults))
    graphs = dict(_graphs(folder, files, faults))
    contexts = {name: graph for name, graph in graphs.items() if _wraps(graph)}
    graphs = {name: graph for name, graph in graphs.items() if name not in contexts}
    nets = dict(_nets(folder, files, faults))
    raw, documents = _documents(folder, files, faults)
    config = _config(folder, files, faults)
    text = config if isinstance(config, TextConfig) else None
    drafter = config if isinstance(config, DrafterConfig) else None
    frozen = {code: tuple(found) for code, found in faults.items()}
    return Opened(folder, files, documents, raw, graphs, contexts, nets, text, frozen, source, drafter)


Faults = dict[str, list[Found]]


def _files(root: Path, faults: Faults) -> Iterator[tuple[str, int]]:
    """Every regular file; an entry that is none, or that leads out of the package, is a fault."""
    for folder, folders, names in os.walk(root):
        folders.sort()
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        for name in sorted([*names, *links]):
            path = Path(folder) / name
            shown = path.relative_to(root).as_posix()
            if what := _strange(path, root):
                faults.setdefault("FIL004", []).append(Found(shown, what, "a regular file of the package"))
            else:
                yield shown, path.stat().st_size


def _strange(path: Path, root: Path) -> str:
    """What an entry is, if it is not a regular file whose bytes lie in the package; else ""."""
    try:
        mode = path.stat().st_mode
        if path.is_symlink() and not path.resolve().is_relative_to(root):
            return f"a link out of the package, to {path.readlink()}"
    except (OSError, RuntimeError) as error:  # a link to nothing, or in a circle
        return f"a link that leads nowhere ({getattr(error, 'strerror', None) or error})"
    if stat.S_ISREG(mode):
        return "" if _spelled(path) else "a name that is no UTF-8 text"
    return {stat.S_IFDIR: "a link to a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}.get(
        stat.S_IFMT(mode), "a device"
    )


def _spelled(path: Path) -> bool:
    try:
        path.name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _graphs(root: Path, files: Mapping[str, int], faults: Faults) -> Iterator[tuple[str, Graph]]:
    for name in files:
        if PurePosixPath(name).suffix == ".onnx":
            try:
                yield name, read_graph(root, name)
            except CabochonError as error:
                at = f"{name}: {error.at}" if error.at and error.at != name else name
                expected = "a graph whose ports have names, types and ranks"
                faults.setdefault("FIL011", []).append(Found(at, error.message, expected, error.remedy))


def _wraps(graph: Graph) -> bool:
    """Whether the graph of a package or of a component is a node that another runtime compiled."""
    return PurePosixPath(graph.path).name == DECODER and any(n.op_type == "EPContext" for n in graph.nodes)


def _nets(root: Path, files: Mapping[str, int], faults: Faults) -> Iterator[tuple[str, Net]]:
    for name in files:
        if PurePosixPath(name).suffix == ".xml":
            try:
                yield name, read_net(root, name)
            except (PackageError, OSError) as error:
                found = error.message if isinstance(error, PackageError) else str(error)
                faults.setdefault("FIL020", []).append(Found(name, found, "an OpenVINO IR file"))


def _documents(
    root: Path, files: Mapping[str, int], faults: Faults
) -> tuple[dict[str, Any], dict[str, "Document"]]:
    raw, documents = dict[str, Any](), dict[str, Any]()
    for name in (name for name in DOCUMENTS if name in files):
        read = _document(name, (root / name).read_bytes())
        if read.is_yaml:
            raw[name] = read.raw
        if read.document:
            documents[name] = read.document
        if read.faults:
            faults.setdefault(read.code, []).extend(read.faults)
    return raw, documents


@dataclass(frozen=True)
class _Read:
    """What could be read of one document; `faults` of the rule `code`, where it is not typed."""

    is_yaml: bool = False
    raw: Any = None
    document: "Document | None" = None
    code: str = ""
    faults: tuple[Found, ...] = ()


def _document(name: str, text: bytes) -> _Read:
    from cabochon.metadata import yaml

    try:
        raw = yaml.read(text, name)
    except MetadataError as error:
        return _Read(code="SCH002", faults=tuple(_faults(error)))
    try:
        return _Read(True, raw, _typed(raw, name, text))
    except MetadataError as error:
        code = "SCH004" if error.at.endswith(": schema_version") else "SCH003"
        return _Read(True, raw, None, code, tuple(_faults(error)))


def _typed(data: Any, name: str, text: bytes) -> "Document":
    """The document. Raises MetadataError, with lines where looking for them is no trouble."""
    from cabochon.metadata import forms

    try:
        return forms.load(data, name)
    except MetadataError as error:
        if len(error.others) > _LOCATED or len(text) > _LONG:
            raise
    return forms.load(data, name, text)


def _faults(error: MetadataError) -> Iterator[Found]:
    """What was wrong; one fault for each field, where several do not fit."""
    for one in (error, *error.others):
        yield Found(one.at, one.found, one.expected, one.remedy)


def _config(root: Path, files: Mapping[str, int], faults: Faults) -> TextConfig | DrafterConfig | None:
    if "config.json" not in files or files["config.json"] > _LARGEST_JSON:
        return None
    try:
        return read_config(parse_object((root / "config.json").read_bytes()))
    except ValueError:
        return None  # the rule on JSON files says so
    except CabochonError as error:
        at = error.at if error.at.startswith("config.json") else f"config.json: {error.at}"
        found = Found(at, error.message, "a model that cabochon builds", error.remedy)
        faults.setdefault("FIL019", []).append(found)
        return None
