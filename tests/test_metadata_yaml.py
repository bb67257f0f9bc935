"""YAML in and out: what is refused, at which address, at what cost; and texts that no reader takes for another."""

import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml as pyyaml
from hypothesis import given, settings
from hypothesis import strategies as st

from cabochon.errors import MetadataError
from cabochon.metadata import events, yaml
from cabochon.metadata.scalars import resolve, spell
from documents import OTHERS, need_others

WORDS = {
    "null": None, "~": None, "": None, "Null": None, "true": True, "False": False, "TRUE": True,
    "no": "no", "on": "on", "y": "y", "Off": "Off", "=": "=", "1:30": "1:30", "2001-12-14": "2001-12-14",
    "0": 0, "-12": -12, "+3": 3, "007": 7, "0o17": 15, "0x1F": 31, "1_000": "1_000", "0b1": "0b1",
    "18446744073709551615": 2**64 - 1, "-9223372036854775808": -(2**63),
    "1.5": 1.5, "1e10": 1e10, "1E-3": 1e-3, ".5": 0.5, "1.": 1.0, "-0.0": -0.0, "e3": "e3", "1e": "1e", "v1.8": "v1.8",
}  # fmt: skip
REFUSED_WORDS = (
    "710e4927",
    "1e400",
    ".inf",
    "-.Inf",
    ".nan",
    "18446744073709551616",
    "0x1ffffffffffffffff",
    "9" * 5000,
)


@pytest.mark.parametrize("word", WORDS)
def test_words_mean_what_yaml_1_2_says(word: str) -> None:
    value = yaml.read(f"a: {word}\n".encode(), "m.yaml")["a"]
    assert (value, type(value)) == (WORDS[word], type(WORDS[word]))


@pytest.mark.parametrize("word", REFUSED_WORDS)
def test_words_that_are_no_number_here(word: str) -> None:
    with pytest.raises(ValueError, match="64 bits"):
        resolve(word)
    with pytest.raises(MetadataError) as raised:
        yaml.read(f"a:\n  b: {word}\n".encode(), "m.yaml")
    assert raised.value.at == "m.yaml:2:6" and raised.value.found == word[:60]
    assert yaml.read(f"a: '{word}'".encode(), "m.yaml") == {"a": word}


REFUSED = {
    "a key twice": (b"a: 1\nb:\n  c: 1\n  c: 2\n", "4:3", "the key 'c' a second time"),
    "a key twice in a row": (b"{a: 1, 'a': 2}", "1:8", "the key 'a' a second time"),
    "a number as a key": (b"a:\n  1: x\n", "2:3", "the key 1"),
    "true as a key": (b"true: x\n", "1:1", "the key True"),
    "null as a key": (b"? \n: x\n", "1:2", "the key None"),
    "a sequence as a key": (b"? [a]\n: x\n", "1:3", "the key a sequence"),
    "an anchor": (b"a: &x 1\n", "1:4", "the anchor &x"),
    "an alias": (b"a: *x\n", "1:4", "the alias *x"),
    "a merge key": (b"a:\n  <<: {b: 1}\n", "2:3", "the merge key <<"),
    "a tag": (b"a: !!str 1\n", "1:4", "the tag tag:yaml.org,2002:str"),
    "a tag of one's own": (b"a: !x 1\n", "1:4", "the tag !x"),
    "a tag without a name": (b"a: ! 1\n", "1:4", "the tag !"),
    "two documents": (b"a: 1\n---\nb: 1\n", "2:1", "a second document"),
    "another version": (b"%YAML 1.1\n---\na: no\n", "1:1", "%YAML 1.1"),
    "an open bracket": (b"a: [1,\nb: 2\n", "3:1", "no YAML: did not find expected ',' or ']'"),
    "a tab": (b"a:\n\tb: 1\n", "2:1", "no YAML: found character that cannot start any token"),
    "no UTF-8": (b"a: 1\nb: \xff\n", "2:4", "the byte 0xff"),
    "a control character": (b"a: 1\nb: \x07\n", "2:4", "the control character 0x07"),
    "a line separator": ("a: x\u2028b: y\n".encode(), "1:5", "the control character 0x2028"),
    "half a pair": (b'a: "\\ud800"\n', None, "no YAML: "),
    "too deep": (b"[" * 65 + b"]" * 65, "1:65", "more than 64 levels"),
    "too long": (b" " * (yaml.LONGEST + 1), "1:1", "2,097,153 bytes"),
    "too many": (b"[" + b"1," * (2 * yaml.MOST) + b"]", None, "more than 100,000 values"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    text, where, found = REFUSED[name]
    with pytest.raises(MetadataError) as raised:
        yaml.read(text, "m.yaml")
    assert raised.value.found.startswith(found)
    assert where is None or raised.value.at == f"m.yaml:{where}"
    assert raised.value.expected and raised.value.remedy


JSON = {
    "a key twice": (b'{"a": 1,\n "a": 2}', "2:2", "the key 'a' a second time"),
    "NaN": (b'{"a": NaN}', "1:1", "no JSON: the value NaN"),
    "a number too large": (b'{"a":\n  1e999}', "2:3", "1e999"),
    "an integer too large": (b'{"a": 99999999999999999999}', "1:7", "99999999999999999999"),
    "half a pair": (b'{"a": "\\ud800"}', "1:7", "half of a surrogate pair"),
    "no JSON": (b"{'a': 1}", "1:2", "no JSON"),
    "too deep": (b"[" * 100_000, "1:1", "a nest too deep to read"),
    "deep": (b"[" * 70 + b"]" * 70, "1:65", "more than 64 levels"),
}


@pytest.mark.parametrize("name", JSON)
def test_json_refused(name: str) -> None:
    text, where, found = JSON[name]
    with pytest.raises(MetadataError) as raised:
        yaml.read(text, "m.json")
    assert raised.value.found.startswith(found) and raised.value.at == f"m.json:{where}"


def test_json_read() -> None:
    text = b'\xef\xbb\xbf{"a": [1, -2.5e3, true, null, "\\u00e9\\/ \\ud83d\\ude00 no"],\n\t"b": {}}'
    assert yaml.read(text, "m.json") == {"a": [1, -2500.0, True, None, "é/ 😀 no"], "b": {}}
    assert yaml.address(text, "m.json", ("b",)) == "m.json:2:2"


def test_address() -> None:
    text = b"a:\n  b:\n  - x\n  - {c: 1, d: 2}\n"
    assert yaml.address(text, "m", ("a", "b", 1, "d")) == "m:4:12"
    assert yaml.address(text, "m", ("a", "b", 0)) == "m:3:5"
    assert yaml.address(text, "m", ("a", "missing", "more")) == "m:1:1"
    assert yaml.address(text, "m", ()) == "m:1:1"


SIZE = 1 << 20
HOSTILE = {
    "opening brackets": b"[" * SIZE,
    "mappings in mappings": b"{a: " * (SIZE // 4),
    "one word": b"a: " + b"b" * SIZE,
    "escapes": b'a: "' + b"\\x41" * (SIZE // 4) + b'"',
    "an open quote": b'a: "' + b"\\u0041" * (SIZE // 6),
    "keys": b"".join(b"k%x: 1\n" % i for i in range(SIZE // 10)),
    "keys in a row": b"{" + b"".join(b"k%x: 1," % i for i in range(SIZE // 10)) + b"}",
    "empty sequences": b"[" + b"[]," * (SIZE // 3) + b"]",
    "dashes": b"- \n" * (SIZE // 3),
    "question marks": b"? " * (SIZE // 2),
    "colons": b":" * SIZE,
    "anchors": b"- &a x\n" * (SIZE // 7),
    "bangs": b"!" * SIZE,
    "percents": b"%" * SIZE,
    "comments": b"#\n" * (SIZE // 2),
    "a long key": b"a" * SIZE + b": 1",
    "digits": b"a: " + b"1" * SIZE,
    "objects": b'{"a":' * (SIZE // 5),
    "quotes": b'"' * SIZE,
}


@pytest.mark.parametrize("ending", ["yaml", "json"])
@pytest.mark.parametrize("name", HOSTILE)
def test_a_megabyte_of_anything(name: str, ending: str) -> None:
    before = time.process_time()
    try:
        yaml.read(HOSTILE[name], f"m.{ending}")
    except MetadataError as error:
        assert error.at.startswith(f"m.{ending}:") and len(str(error)) < 400
    assert time.process_time() - before < 10


MEMORY = """
import sys
from contextlib import suppress
from pathlib import Path
from cabochon.errors import MetadataError
from cabochon.metadata import yaml
from test_metadata_yaml import HOSTILE
for name, text in HOSTILE.items():
    with suppress(MetadataError):
        yaml.read(text, "m." + sys.argv[1])
lines = Path("/proc/self/status").read_text().splitlines()
print(next(line.split()[1] for line in lines if line.startswith("VmHWM")))
"""


@pytest.mark.parametrize("ending", ["yaml", "json"])
def test_no_megabyte_takes_a_gigabyte(ending: str) -> None:
    """In a process of its own, by its own peak: the maximum that getrusage tells is inherited from this one."""
    tests = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, ending], cwd=tests, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 2**20  # kB


def test_without_libyaml_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {name: row for name, row in REFUSED.items() if not name.startswith("too") and row[1]}
    found = {name: outcome(text) for name, (text, *_) in kept.items()}
    monkeypatch.setattr(events, "_LOADER", pyyaml.SafeLoader)
    for name, (text, *_) in kept.items():
        ours, theirs = found[name], outcome(text)
        assert ours[0] == theirs[0] or ours[1].startswith("no YAML"), name
    with pytest.raises(MetadataError):
        yaml.read(REFUSED["half a pair"][0], "m.yaml")


def outcome(text: bytes) -> tuple[str, str]:
    with pytest.raises(MetadataError) as raised:
        yaml.read(text, "m.yaml")
    return raised.value.at, raised.value.found


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=40)
    | st.sampled_from(
        [*WORDS, *REFUSED_WORDS[:-1], "<<", "1.0", "-", "? a", "a: b", "a #b", "*a", "&a", "!a", "'", '"']
    )
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=20), inner, max_size=5),
    max_leaves=25,
)


@settings(max_examples=150, deadline=None)
@given(values)
def test_what_is_written_is_read_by_all(value: Any) -> None:
    from ruamel.yaml import YAML

    text = yaml.write(value)
    assert same(yaml.read(text, "m.yaml"), value)
    assert same(pyyaml.load(text, Loader=pyyaml.SafeLoader), value)
    reader = YAML(typ="safe", pure=True)
    reader.version = (1, 2)  # pyright: ignore
    assert same(reader.load(text.decode()), value)
    assert yaml.write(yaml.read(text, "m.yaml")) == text


def same(a: Any, b: Any) -> bool:
    """Equal, types included."""
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return (
        type(a) is type(b)
        and a == b
        and (not isinstance(a, float) or math.copysign(1, a) == math.copysign(1, b))
    )


def test_layout() -> None:
    data = {
        "schema_version": "v1",
        "package": {"eos": [1, 106], "text": ["no", "1e10", "710e4927", "a b", "v1.8", "1.0"], "none": {}},
        "steps": [{"kind": "invoke", "inputs": {"a": {"b": 1.0}}}, [], "two\nlines", 1e22],
    }
    comments = {
        (): ["what this is"],
        ("package", "eos"): ["ends", "", "so"],
        ("steps", 0, "inputs", "a", "b"): ["why"],
    }
    assert yaml.write(data, comments).decode() == (
        "# what this is\n"
        "schema_version: v1\n"
        "package:\n"
        "  # ends\n"
        "  #\n"
        "  # so\n"
        "  eos: [1, 106]\n"
        "  text: ['no', '1e10', '710e4927', 'a b', v1.8, '1.0']\n"
        "  none: {}\n"
        "steps:\n"
        "- kind: invoke\n"
        "  inputs:\n"
        "    a:\n"
        "      # why\n"
        "      b: 1.0\n"
        "- []\n"
        '- "two\\nlines"\n'
        "- 1.0e+22\n"
    )
    assert yaml.read(yaml.write(data, comments), "m") == data


def test_a_comment_is_one_line_whatever_it_says() -> None:
    text = yaml.write({"a": [1]}, {("a",): ["x\nb: 2\rc\x00"], ("a", 0): ["é"]})
    assert text.decode() == "# x\n# b: 2\n# c?\na:\n# é\n- 1\n"


def test_a_long_key() -> None:
    data = {"k" * 2000: {"a": [{"b": 1}]}, "é" * 1001: "x"}
    text = yaml.write(data)
    assert text.startswith(b"? kkk") and yaml.read(text, "m") == data == pyyaml.safe_load(text)


@pytest.mark.parametrize(
    ("data", "where"),
    [
        ({"a": {1: 2}}, "a.1"),
        ({"a": [math.nan]}, "a.0"),
        ({"a": 2**64}, "a"),
        ({"a": "\ud800"}, "a"),
        ({"a": {1}}, "a"),
    ],
)
def test_what_cannot_be_written(data: Any, where: str) -> None:
    with pytest.raises(MetadataError) as raised:
        yaml.write(data)
    assert raised.value.at == where


def test_a_nest_too_deep_to_write() -> None:
    data: Any = 1
    for _ in range(64):
        data = [data]
    assert yaml.read(yaml.write(data), "m") == data
    with pytest.raises(MetadataError, match="too deep"):
        yaml.write([data])


def test_spelling() -> None:
    assert [spell(v) for v in (None, True, 3, -0.5, 1e-7, "a", "No", "", " a", "it's", "\t", "\u2028")] == [
        "null", "true", "3", "-0.5", "1.0e-07", "a", "'No'", "''", "' a'", "'it''s'", '"\\t"', '"\\u2028"',
    ]  # fmt: skip


def quick(text: bytes) -> Any:
    return pyyaml.load(text, Loader=getattr(pyyaml, "CSafeLoader", pyyaml.SafeLoader))


def test_documents_of_others_mean_the_same_to_other_readers() -> None:
    need_others()
    for path in OTHERS:
        data = yaml.read(path.read_bytes(), path.name)
        assert data == quick(path.read_bytes()), path.name
        assert quick(yaml.write(data)) == data, path.name
