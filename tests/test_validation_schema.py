"""Documents that cannot be read, are of no known version, or do not say what their copy says."""

import copy
import time
from pathlib import Path

import pytest

from broken import (
    ANNOTATED,
    CANONICAL,
    Break,
    check,
    codes,
    copied,
    edit_bytes,
    edit_document,
    remove,
    steps,
    workflow,
    write,
)
from broken import write_document as edit
from cabochon.validation import validate
from packages import Packages


def text(old: str, new: str):
    """Replace the first occurrence in the canonical document's text, and leave the annotated copy as it is."""

    def change(content: bytes) -> bytes:
        assert old.encode() in content, old
        return content.replace(old.encode(), new.encode(), 1)

    return edit_bytes(CANONICAL, change)


def as_other_version(package: Path) -> None:
    edit_document(lambda d: d.update(schema_version="v1.8"))(package)


UNTYPED = {"SCH003", "SCH008"}
BREAKS = (
    Break("no document", remove(CANONICAL), {"SCH001"}),
    Break("no YAML", write(CANONICAL, "a: [1"), {"SCH002"}),
    Break("no UTF-8", write(CANONICAL, b"a: \xff"), {"SCH002"}),
    Break(
        "a key given twice",
        text("schema_version: v1\n", "schema_version: v1\nschema_version: v1\n"),
        {"SCH002"},
    ),
    Break("an alias", write(CANONICAL, "a: &x {b: 1}\nc: *x\n"), {"SCH002"}),
    Break("a deep nest", write(CANONICAL, "[" * 5000), {"SCH002"}),
    Break("no mapping", write(CANONICAL, "- 1\n"), UNTYPED),
    Break("an empty document", write(CANONICAL, "\n"), UNTYPED),
    Break("an unknown field", edit_document(lambda d: d.update(kv_cache={})), {"SCH003"}),
    Break("a role that there is not", edit_document(lambda d: roles(d).update(logits="logit")), {"SCH003"}),
    Break("a text for a number", edit_document(lambda d: d["model"].update(vocab_size="64")), {"SCH003"}),
    Break("a version to come", edit_document(lambda d: d.update(schema_version="v99")), {"SCH004"}),
    Break("a version that is a number", edit_document(lambda d: d.update(schema_version=1.1)), {"SCH004"}),
    Break("a version without rank and capabilities", as_other_version, {"SCH005"}),
    Break("no rank", edit_document(lambda d: first_contract(d).pop("rank")), {"SCH005"}),
    Break(
        "a field of a later version",
        edit_document(lambda d: workflow(d).update(publication_mode="commit_only")),
        {"SCH005"},
    ),
    Break("a hash", edit_document(lambda d: implementation(d).update(sha256="0" * 64)), {"SCH003", "SCH006"}),
    Break("comments", text("schema_version", "# by hand\nschema_version"), {"SCH007"}),
    Break("another order of keys", lambda p: edit(p / CANONICAL, reversed_keys), {"SCH007"}),
    Break(
        "another copy", lambda p: edit(p / ANNOTATED, lambda d: d["model"].update(vocab_size=7)), {"SCH008"}
    ),
    Break(
        "an edited document",
        lambda p: edit(p / CANONICAL, lambda d: d["model"].update(max_sequence_length=7)),
        {"HON010", "SCH008"},
    ),
    Break("a rival", write("inference_metadata.json", "{}"), {"FIL005", "SCH009"}),
)


def roles(document):
    return workflow(document)["components"]["decoder"]["ports"]["roles"]


def implementation(document):
    return workflow(document)["components"]["decoder"]["implementation"]


def first_contract(document):
    return next(iter(workflow(document)["inputs"].values()))["contract"]


def reversed_keys(document):
    items = list(document.items())
    document.clear()
    document.update(reversed(items))


@pytest.mark.parametrize("broken", BREAKS, ids=str)
def test_a_broken_package_is_found_out(broken: Break, packages: Packages, tmp_path: Path) -> None:
    check(broken, packages, tmp_path)


def test_several_mistakes_are_said_at_once_with_their_lines(package: Path, tmp_path: Path) -> None:
    copy = copied(package, tmp_path / "package")
    edit_document(
        lambda d: (
            d["model"].update(vocab_size="64"),
            d.update(colour="red"),
            roles(d).update(logits="logit"),
        )
    )(copy)
    verdict = validate(copy, quick=True, select=["SCH"])
    found = [f for f in verdict.findings if f.code == "SCH003" and f.at.startswith(CANONICAL)]
    assert len(found) == 3
    lines = (copy / CANONICAL).read_text().splitlines()
    for finding, word in zip(
        sorted(found, key=lambda f: f.at.partition(": ")[2]), ("colour", "vocab_size", "logit"), strict=True
    ):
        name, line, _ = finding.at.partition(": ")[0].split(":")
        assert name == CANONICAL and word in lines[int(line) - 1]


@pytest.mark.parametrize(
    "form", ["a: b\n", "- {a: b}\n", "- - a\n", "? a\n", "{a: 1, ", "'a': \"b\"\n", "# comment\n", "&a b\n"]
)
def test_a_document_of_a_megabyte_takes_seconds(package: Path, tmp_path: Path, form: str) -> None:
    copy = copied(package, tmp_path / "package")
    (copy / CANONICAL).write_text(form * (1_000_000 // len(form)))
    start = time.process_time()
    verdict = validate(copy, quick=True, select=["SCH"])
    assert time.process_time() - start < 10
    assert codes(verdict) & {"SCH002", "SCH003"}


def test_many_mistakes_take_no_longer(package: Path, tmp_path: Path) -> None:
    """A field that is unknown in each of 15,000 inputs: 1 MB, one finding for each."""
    copied_to = copied(package, tmp_path / "package")

    def change(document):
        one = next(iter(workflow(document)["inputs"].values())) | {"colour": "red"}
        workflow(document)["inputs"] = {f"x{i}": copy.deepcopy(one) for i in range(4000)}

    edit(copied_to / CANONICAL, change)
    start = time.process_time()
    verdict = validate(copied_to, quick=True, select=["SCH003"])
    assert time.process_time() - start < 10
    assert len(verdict.findings) == 4000
    assert list(steps({"pipeline": {"workflow": {"steps": []}}}, "emit")) == []
