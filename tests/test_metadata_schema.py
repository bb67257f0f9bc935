"""The JSON Schema takes what the model takes, differs by version as the gates say, has the upstream schema's keys."""

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from cabochon.errors import MetadataError
from cabochon.metadata import forms, yaml
from cabochon.metadata import schema as room
from documents import CONTRACT, GROUP, OTHERS, SHARED, at, decoder, need_others, pair

json_schema = cache(room.json_schema)
UPSTREAM = SHARED / "inference_metadata.v1-2026-08-22.schema.json"
TYPES = {
    "object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool,
    "null": type(None),
}  # fmt: skip


def fits(schema: Any, value: Any, top: Any) -> bool:
    """Whether a value fits a schema: as much of draft 2020-12 as ours and the upstream one use."""
    if isinstance(schema, bool):
        return schema
    if "$ref" in schema and not fits(at(top, *schema["$ref"].removeprefix("#/").split("/")), value, top):
        return False
    kinds = schema.get("type", [])
    if kinds and not any(is_a(value, kind) for kind in ([kinds] if isinstance(kinds, str) else kinds)):
        return False
    checks = (
        "enum" not in schema or value in schema["enum"],
        "const" not in schema or value == schema["const"],
        all(fits(s, value, top) for s in schema.get("allOf", ())),
        "anyOf" not in schema or any(fits(s, value, top) for s in schema["anyOf"]),
        "oneOf" not in schema or sum(fits(s, value, top) for s in schema["oneOf"]) == 1,
        "not" not in schema or not fits(schema["not"], value, top),
        not isinstance(value, str) or len(value) >= schema.get("minLength", 0),
        not isinstance(value, int | float) or value >= schema.get("minimum", value),
        not isinstance(value, int | float) or value <= schema.get("maximum", value),
    )
    return all(checks) and object_fits(schema, value, top) and array_fits(schema, value, top)


def is_a(value: Any, kind: str) -> bool:
    return isinstance(value, TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))


def object_fits(schema: Any, value: Any, top: Any) -> bool:
    if not isinstance(value, dict):
        return True
    known, more = schema.get("properties", {}), schema.get("additionalProperties", True)
    return all(key in value for key in schema.get("required", ())) and all(
        fits(known.get(key, more), child, top) for key, child in value.items()
    )


def array_fits(schema: Any, value: Any, top: Any) -> bool:
    return not isinstance(value, list) or (
        len(value) >= schema.get("minItems", 0)
        and all(fits(schema.get("items", True), v, top) for v in value)
    )


@pytest.mark.parametrize("dialect", ["v1", "v1.8"])
@pytest.mark.parametrize("document", [decoder(), pair()], ids=["decoder", "pair"])
def test_ours_fit_their_version_alone(document: Any, dialect: str) -> None:
    data = forms.dump(document, dialect)
    assert fits(json_schema(dialect), data, json_schema(dialect))
    other = json_schema({"v1": "v1.8", "v1.8": "v1"}[dialect])
    assert not fits(other, data, other)


BROKEN = {
    "unknown key": ((*CONTRACT, "strides"), 1),
    "wrong word": ((*GROUP, "kind"), "full"),
    "wrong type": (("model", "vocab_size"), "16"),
    "no element type": ((*CONTRACT, "dtype"), "int4"),
    "a negative dimension": ((*CONTRACT, "shape"), [-1]),
}


@pytest.mark.parametrize("name", BROKEN)
def test_the_schema_refuses_what_the_model_refuses(name: str) -> None:
    path, value = BROKEN[name]
    data, schema = forms.dump(decoder(), "v1"), json_schema("v1")
    at(data, *path[:-1])[path[-1]] = value
    assert not fits(schema, data, schema)
    with pytest.raises(MetadataError):
        forms.load(data, "m.yaml")


def test_versions_differ_by_the_gates() -> None:
    old, middle, new = (json_schema(version) for version in ("v1", "v1.3", "v1.8"))
    contract = [schema["$defs"]["TensorContract"] for schema in (old, middle, new)]
    assert ["rank" in c["properties"] for c in contract] == [True, False, False]
    assert [sorted(c["required"]) for c in contract] == [
        ["dtype", "rank"],
        ["dtype", "shape"],
        ["dtype", "shape"],
    ]
    assert ["speculative" in schema["properties"] for schema in (old, middle, new)] == [True, False, True]
    assert ["SpecialToken" in schema["$defs"] for schema in (old, middle, new)] == [True, False, False]
    assert ["SpecialTokenIds" in schema["$defs"] for schema in (old, middle, new)] == [False, True, True]
    assert "compressed_attention" not in middle["$defs"]["Group"]["properties"]["kind"]["enum"]
    assert "compressed_attention" in new["$defs"]["Group"]["properties"]["kind"]["enum"]
    assert "class" in new["$defs"]["Cell"]["properties"]
    assert new["title"] == "inference_metadata v1.8"


@pytest.mark.parametrize("version", ["v1", *(f"v1.{minor}" for minor in range(1, 9))])
def test_every_reference_is_defined(version: str) -> None:
    schema = json_schema(version)
    text = json.dumps(schema)
    assert {name for name in re.findall(r"#/\$defs/(\w+)", text)} == set(schema["$defs"])


def test_unknown_version() -> None:
    with pytest.raises(MetadataError, match=r"v1 to v1\.8"):
        json_schema("v2")


def test_documents_of_others_fit() -> None:
    need_others()
    for path in OTHERS:
        data = yaml.read(path.read_bytes(), path.name)
        schema = json_schema(data["schema_version"])
        assert fits(schema, data, schema), path.name


def test_ours_fit_the_upstream_schema() -> None:
    need_others()
    schema = json.loads(UPSTREAM.read_text())
    for document in (decoder(), pair()):
        assert fits(schema, forms.dump(document, "v1"), schema)
        assert not fits(schema, forms.dump(document, "v1.8"), schema)


def test_the_keys_are_those_of_the_upstream_schema() -> None:
    """All of them, place by place; `model.io`, which was before the workflow, is the one that v1 refuses."""
    need_others()
    ours, theirs = json_schema("v1"), json.loads(UPSTREAM.read_text())
    found = set(differences([ours], [theirs], ours, theirs, (), set()))
    assert found == {("theirs", ("model", "io"))}


def differences(a: Any, b: Any, ours: Any, theirs: Any, path: Any, seen: set[Any]) -> Iterator[Any]:
    left, right = keys(a, ours), keys(b, theirs)
    if (both := (tuple(sorted(left)), tuple(sorted(right)))) in seen:
        return
    seen.add(both)
    for key in left.keys() ^ right.keys():
        yield ("ours" if key in left else "theirs", (*path, key))
    for key in left.keys() & right.keys():
        yield from differences(left[key], right[key], ours, theirs, (*path, key), seen)


def keys(nodes: Any, top: Any) -> dict[str, list[Any]]:
    """The keys that any alternative of the nodes has, with the schemas of their values."""
    found: dict[str, list[Any]] = {}
    unique = {json.dumps(node): node for node in nodes if isinstance(node, dict)}
    for node in (inner for outer in unique.values() for inner in alternatives(outer, top)):
        children = [
            *node.get("properties", {}).items(),
            ("*", node.get("additionalProperties")),
            ("[]", node.get("items")),
        ]
        for key, child in children:
            if isinstance(child, dict):
                found.setdefault(key, []).append(child)
    return found


def alternatives(node: Any, top: Any) -> Iterator[Any]:
    yield node
    if "$ref" in node:
        yield from alternatives(at(top, *node["$ref"].removeprefix("#/").split("/")), top)
    for key in ("anyOf", "oneOf", "allOf"):
        for inner in node.get(key, ()):
            yield from alternatives(inner, top)
