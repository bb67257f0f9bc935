"""Semantic identity: what does not change it, what does, and its exact spelling."""

import hashlib
import random
from typing import Any

import pytest

from cabochon.metadata import forms, yaml
from cabochon.metadata.identity import canonical, identity
from documents import decoder

SPELLED: dict[str, tuple[Any, str]] = {
    "keys are sorted": ({"b": 1, "a": {"d": 1, "c": 2}}, '{"a":{"c":2,"d":1},"b":1}'),
    "in the order of their characters": ({"é": 1, "z": 2, "Z": 3}, '{"Z":3,"z":2,"é":1}'),
    "nulls say nothing": ({"a": None, "b": {"c": None}}, "{}"),
    "nor do empty containers": ({"a": [], "b": {"c": {"d": []}}, "e": 0}, '{"e":0}'),
    "items keep their places": ({"a": [None, 1]}, '{"a":[null,1]}'),
    "ignorable profiles are ignored": (
        {"profiles": {"a": {"requirement": "ignorable"}, "b": {"requirement": "required"}}},
        '{"profiles":{"b":{"requirement":"required"}}}',
    ),
    "only at the top": ({"a": {"profiles": {"b": {"requirement": "ignorable"}}}}, None),
    "integral numbers": ({"a": [1.0, -2.0, 1e17, 0.0]}, '{"a":[1,-2,100000000000000000,0]}'),
    "others": (
        {"a": [39.191835, 0.1, 1e18, 1.5e-7, 0.00012, -1e300]},
        '{"a":[39.191835,0.1,1e18,1.5e-7,0.00012,-1e300]}',
    ),
    "texts": ({"a": 'é"\\\n'}, '{"a":"é\\"\\\\\\n"}'),
    "truth": ({"a": [True, False]}, '{"a":[true,false]}'),
}  # fmt: skip


@pytest.mark.parametrize("name", SPELLED)
def test_spelling(name: str) -> None:
    data, text = SPELLED[name]
    text = text or '{"a":{"profiles":{"b":{"requirement":"ignorable"}}}}'
    assert canonical(data) == text
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert identity(data) == f"onnx-genai-metadata-identity-v1:sha256:{digest}"


def shuffled(data: Any, order: random.Random) -> Any:
    if isinstance(data, dict):
        keys = list(data)
        order.shuffle(keys)
        return {key: shuffled(data[key], order) for key in keys}
    return [shuffled(child, order) for child in data] if isinstance(data, list) else data


def test_layout_order_and_comments_change_nothing() -> None:
    data = forms.dump(decoder(), "v1")
    other = yaml.write(shuffled(data, random.Random(1)), {("model",): ["a comment"]})
    assert other != yaml.write(data)
    assert identity(yaml.read(other, "m.yaml")) == identity(data)


def test_what_is_said_does() -> None:
    data = forms.dump(decoder(), "v1")
    before = identity(data)
    data["model"]["vocab_size"] += 1
    assert identity(data) != before
    assert identity(forms.dump(decoder(), "v1.8")) != before


def test_the_order_of_a_sequence_is_said() -> None:
    assert identity({"a": [1, 2]}) != identity({"a": [2, 1]})
