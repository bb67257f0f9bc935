"""The JSON Schema of a version of the document: the model's, with the gates of the version applied."""

from collections.abc import Callable, Iterator
from typing import Any

from cabochon.metadata import versions
from cabochon.metadata.document import Document
from cabochon.metadata.versions import GATES, Gate
from cabochon.metadata.walking import key_of

__all__ = ["json_schema"]

_DEFS = "#/$defs/"
Node = dict[str, Any]


def json_schema(dialect: str) -> dict[str, Any]:
    """The schema (draft 2020-12) of "v1", "v1.1" ... "v1.8". MetadataError for a version that is not known."""
    minor = versions.number(dialect)
    schema = Document.model_json_schema(by_alias=True)
    for gate in GATES:
        node = schema if gate.part is Document else schema["$defs"].get(gate.part.__name__)
        if node is not None:
            _apply(gate, node, minor)
    about = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"inference_metadata {versions.name(minor)}",
    }
    return about | {k: v for k, v in schema.items() if k not in about} | {"$defs": _reachable(schema)}


def _apply(gate: Gate, node: Node, minor: int) -> None:
    key = key_of(gate.part, gate.field)
    if minor not in gate.known:
        if gate.only is None:
            node["properties"].pop(key, None)
        elif key in node["properties"]:
            node["properties"][key] = _without(node["properties"][key], _concerned(gate))
    elif minor in gate.needed:
        node["properties"][key] = _without(node["properties"][key], _null)
        node["properties"][key].pop("default", None)
        node["required"] = [*node.get("required", ()), key]


def _null(node: Any) -> bool:
    return node == {"type": "null"}


def _concerned(gate: Gate) -> Callable[[Any], bool]:
    """Whether an alternative of a schema is what a gate is about."""
    if isinstance(gate.only, str):
        return lambda node: node == gate.only
    name = getattr(gate.only, "__name__", "")
    plain = {"dict": "object", "str": "string"}.get(name)
    return lambda node: (
        isinstance(node, dict) and (node.get("type") == plain if plain else node.get("$ref") == _DEFS + name)
    )


def _without(node: Any, refused: Callable[[Any], bool]) -> Any:
    """A schema without the alternatives that are refused; one that is left stands for itself."""
    if not isinstance(node, dict):
        return node
    kept: Node = {}
    for key, value in node.items():
        if key in ("anyOf", "oneOf", "enum"):
            kept[key] = [_without(child, refused) for child in value if not refused(child)]
        elif key == "discriminator" and "mapping" in value:
            mapping = {k: ref for k, ref in value["mapping"].items() if not refused({"$ref": ref})}
            kept[key] = value | {"mapping": mapping}
        else:
            kept[key] = _without(value, refused) if key == "items" else value
    return _alone(kept)


def _alone(node: Node) -> Node:
    for key in ("anyOf", "oneOf"):
        if len(node.get(key, ())) == 1:
            rest = {k: v for k, v in node.items() if k not in (key, "discriminator")}
            return node[key][0] | rest
    return node


def _reachable(schema: Node) -> Node:
    """The definitions that are still referred to, in their order."""
    found: set[str] = set()
    waiting = list(_references({k: v for k, v in schema.items() if k != "$defs"}))
    while waiting:
        if (name := waiting.pop()) not in found:
            found.add(name)
            waiting.extend(_references(schema["$defs"][name]))
    return {name: node for name, node in schema["$defs"].items() if name in found}


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(reference := node.get("$ref"), str):
            yield reference.removeprefix(_DEFS)
        for child in node.values():
            yield from _references(child)
    elif isinstance(node, list):
        for child in node:
            yield from _references(child)
