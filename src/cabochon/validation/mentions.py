"""Every file that a file of the package names: in graphs, documents, IR and JSON alike."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from cabochon.validation.memo import once
from cabochon.validation.net import weights_of
from cabochon.validation.ranges import external

if TYPE_CHECKING:
    from cabochon.validation.opened import Opened

__all__ = ["Mention", "index_path", "mentions"]

_YAML_KEYS = ("artifact", "location", "path")
_JSON_FILES = ("genai_config.json",)


@dataclass(frozen=True)
class Mention:
    """`at` says that there is a file `name`, relative to `folder`, a path inside the package."""

    at: str
    folder: str
    name: str | None


def index_path(graph: str) -> str:
    """The path of the index of the external data of the graph in this file; see `weight_index`."""
    return f"{graph}.data.index.json"


def mentions(package: "Opened") -> tuple[Mention, ...]:
    """Every mention, once for each place that makes it; of external data one for each file and graph."""
    return once(package, _mentions)


def _mentions(package: "Opened") -> tuple[Mention, ...]:
    return tuple(_made(package))


def _made(package: "Opened") -> Iterator[Mention]:
    yield from _external(package)
    yield from _contexts(package)
    for name in package.files:
        if name.endswith(".xml"):
            yield Mention(name, PurePosixPath(name).parent.as_posix(), weights_of(name))
    for name, document in package.raw.items():
        for at, _, value in _strings(document, "", _YAML_KEYS.__contains__):
            yield Mention(f"{name}: {at}", ".", value)
    for name in _JSON_FILES:
        for at, key, value in _strings(package.json(name), "", lambda key: key.endswith("filename")):
            if value or key != "config_filename":  # "": no processor is to be opened
                yield Mention(f"{name}: {at}", ".", value)
    yield from _provenance(package)
    yield from _indexes(package)


def _external(package: "Opened") -> Iterator[Mention]:
    """One for each graph and location, named by the first tensor that lies there."""
    seen = set[tuple[str, str | None]]()
    for one in external(package):
        path = one.at.partition(": ")[0]
        if one.location is not None and (path, one.location) not in seen:
            seen.add((path, one.location))
            yield Mention(one.at, one.folder, one.location)


def _contexts(package: "Opened") -> Iterator[Mention]:
    """The compiled blobs that EPContext nodes refer to; with embed_mode 1, its default, the blob is in the node."""
    for graph in (*package.graphs.values(), *package.contexts.values()):
        for node in graph.nodes:
            if node.op_type == "EPContext":
                said = {a.name: a for a in node.attribute}
                context = said["ep_cache_context"].s if "ep_cache_context" in said else b""
                if "embed_mode" in said and said["embed_mode"].i == 0 and context:
                    name = context.decode("utf-8", "replace")
                    yield Mention(
                        f"{graph.path}: {node.name or 'EPContext'}", graph.folder().as_posix(), name
                    )


def _provenance(package: "Opened") -> Iterator[Mention]:
    files = (package.json("provenance.json") or {}).get("files")
    for name in files if isinstance(files, dict) else ():
        yield Mention(f"provenance.json: files.{name}", ".", name)


def _indexes(package: "Opened") -> Iterator[Mention]:
    for graph in package.graphs.values():
        files = (package.json(index_path(graph.path)) or {}).get("files")
        for name in files if isinstance(files, dict) else ():
            yield Mention(f"{index_path(graph.path)}: files.{name}", graph.folder().as_posix(), name)


def _strings(value: Any, at: str, wanted: Callable[[str], bool]) -> Iterator[tuple[str, str, str]]:
    """Every text under a key that is `wanted` in nested data: its address, the key, the text."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if isinstance(inner, dict | list):
                yield from _strings(inner, f"{at}.{key}" if at else str(key), wanted)
            elif isinstance(inner, str) and wanted(str(key)):
                yield f"{at}.{key}" if at else str(key), str(key), inner
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            if isinstance(inner, dict | list):
                yield from _strings(inner, f"{at}[{i}]", wanted)
