"""Packages converted to OpenVINO: their files, their layers, and what of them fits together."""

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from cabochon.validation.assembled import COMPONENTS, CONFIGS
from cabochon.validation.converted import Converted, parts
from cabochon.validation.findings import Severity
from cabochon.validation.inside import resolved
from cabochon.validation.layer_types import LAYER_TYPES, OPENVINO, WRITTEN_AS
from cabochon.validation.opened import DECODER, DOCUMENTS, NET, Opened
from cabochon.validation.ranges import constants
from cabochon.validation.rules import Found, rule

__all__: list[str] = []

# They describe graphs of ONNX, or weights beside them: for readers that know nothing of IR.
_FOREIGN = {*DOCUMENTS, "genai_config.json", "image_processor.json", "audio_feature_extraction.json"}


@rule("OVN001", Severity.ERROR)
def foreign_document(package: Opened) -> Iterator[Found]:
    """A package that was converted to OpenVINO holds what belongs to graphs of ONNX.

    Causes: Files of the package that it was converted from were copied along. Whoever finds them by their names tries
    to run graphs that are not there, or that have other ports.
    Remedy: Delete the file, or convert the package again.
    """
    inner = f"{package.inner}/" if package.inner else None  # a package of its own, which is judged by itself
    for name in package.files if package.converted else ():
        if inner and name.startswith(inner):
            continue
        graph = PurePosixPath(name).suffix == ".onnx" and name not in package.contexts
        if name in _FOREIGN or graph or name.endswith(".onnx.data"):
            yield Found(name, f"{package.files[name]} bytes", "nothing that describes or is a graph of ONNX")


@rule("OVN002", Severity.WARNING)
def unread_bytes(package: Opened) -> Iterator[Found]:
    """The weights of an IR file hold bytes that no constant refers to.

    Causes: A .bin file of another conversion; a constant that was taken out of the XML; bytes that somebody hid there.
    Remedy: Convert the graph again.
    """
    read = dict[str, list[tuple[int, int]]]()
    for one in constants(package):
        if name := resolved(package, one.folder, one.location):
            read.setdefault(name, []).append((one.start or 0, (one.start or 0) + max(one.nbytes, 0)))
    for name, spans in read.items():
        for start, end in _gaps(spans, package.files.get(name, 0)):
            yield Found(name, f"bytes {start} to {end}", "bytes that belong to constants")


def _gaps(spans: list[tuple[int, int]], size: int) -> Iterator[tuple[int, int]]:
    """What no span covers of a file."""
    reached = 0
    for start, end in sorted(spans):
        if reached < min(start, size):
            yield reached, min(start, size)
        reached = max(reached, end)
    if reached < size:
        yield reached, size


@rule("OVN003", Severity.ERROR)
def part_missing(package: Opened) -> Iterator[Found]:
    """A graph of a converted package is not there.

    Causes: A folder was left out of a copy or a download, or the package was converted in part.
    Remedy: Put the folder back, or convert the package again.
    """
    if not package.converted:
        return
    there = {str(PurePosixPath(path).parent) for path in (*package.files,) if _is_graph(path)}
    for folder, why in _needed(package, there).items():
        if folder not in there:
            yield Found(NET if folder == "." else f"{folder}/{NET}", "no such graph", why)


def _is_graph(path: str) -> bool:
    return PurePosixPath(path).name in (NET, DECODER)


def _needed(package: Opened, there: set[str]) -> Mapping[str, str]:
    """The folders that must hold a graph, and why."""
    if not there & {*COMPONENTS}:
        return {".": "the graph of the package"}
    raw = package.json("config.json") or {}
    encoders = {
        name: f"that of the {key} of config.json"
        for name, key in CONFIGS.items()
        if isinstance(raw.get(key), Mapping)
    }
    return {"decoder": "the graph that decodes", "embedding": "the graph that looks tokens up", **encoders}


@rule("OVN004", Severity.ERROR)
def parts_apart(package: Opened) -> Iterator[Found]:
    """The graphs of a converted package are not of one build.

    Causes: Components of two packages, of two precisions or of two conversions in one folder; of a stateful decoder,
    which takes one row, beside graphs that say the same of themselves.
    Remedy: Convert the package again: its graphs are made together.
    """
    found = parts(package)
    for part in found[1:]:
        first = found[0]
        for key in ("target", "precision", "activations"):
            ours, theirs = (p.properties.get(f"cabochon.{key}") for p in (first, part))
            if ours != theirs:
                yield Found(
                    f"{part.net.path}: cabochon.{key}", str(theirs), f"{ours}, as {first.net.path} says"
                )
        if part.net.version != first.net.version:
            expected = f"{first.net.version}, as of {first.net.path}"
            yield Found(f"{part.net.path}: rt_info", f"OpenVINO {part.net.version}", expected)


@rule("OVN005", Severity.ERROR)
def layer_not_known(package: Opened) -> Iterator[Found]:
    """A layer is of a type that OpenVINO does not have.

    Causes: A conversion with an extension, whose library whoever loads the package would have to load as well; a newer
    OpenVINO; a file that was edited. What is compared with is the operator sets of OpenVINO 2026.4.1.
    Remedy: Convert the graph with OpenVINO alone.
    """
    for net in package.nets.values():
        unknown = dict[tuple[str, str], list[str]]()
        for layer in net.layers:
            if not _known(layer.type, layer.version):
                unknown.setdefault((layer.type, layer.version), []).append(layer.name)
        for (kind, version), names in unknown.items():
            found = f"{kind or 'no type'} of {version or 'no opset'}: {len(names)} layers, such as {names[0]}"
            yield Found(net.path, found[:300], f"layers of the operator sets of OpenVINO {OPENVINO}")


def _known(kind: str, version: str) -> bool:
    number = version.removeprefix("opset")
    known = LAYER_TYPES.get(WRITTEN_AS.get(kind, kind), frozenset())
    return (
        version.startswith("opset") and number.isascii() and number.isdecimal() and int(number[:4]) in known
    )


@rule("OVN006", Severity.ERROR)
def states_differ(package: Opened) -> Iterator[Found]:
    """The states of a graph are not what it says of itself.

    Causes: A stateful conversion whose property was lost, or the reverse; a state that is read and never written; a
    cache that has no state.
    Remedy: Convert the package again, with or without --stateful.
    """
    for part in parts(package):
        read, written = (_variables(part, kind) for kind in ("ReadValue", "Assign"))
        at = part.net.path
        if (read or written) and not part.stateful:
            found = f"{len(read | written)} states, and no cabochon.stateful"
            yield Found(at, found, "no states, or the property")
        for name in sorted(read ^ written):
            yield Found(
                f"{at}: {name}", "only read" if name in read else "only written", "a state that is both"
            )
        if part.stateful and part.text:
            halves = ((i, half) for i in part.text.owners for half in ("key", "value"))
            wanted = {f"past_key_values.{i}.{half}present.{i}.{half}" for i, half in halves}
            for name in sorted(wanted - read):
                yield Found(at, f"no state {name}", "one for the keys and the values of each cache")
            for name in sorted(read - wanted):
                yield Found(f"{at}: {name}", "a state", "states of the caches of config.json alone")


def _variables(part: Converted, kind: str) -> set[str]:
    return {layer.said.get("variable_id", "") for layer in part.net.layers if layer.type == kind}
