"""Rules as such, how a package is opened, and what becomes of what no rule expects."""

import importlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cabochon
from broken import CANONICAL, Break, codes, copied, edit_json, resum
from cabochon.errors import PackageError, RequestError, SourceError
from cabochon.validation import Severity, rules, validate
from cabochon.validation.checking import begin, finish, judge
from cabochon.validation.manual import manual
from cabochon.validation.opened import open_package
from cabochon.validation.rules import FAMILIES, MODULES, NEEDS, RULES, Found, load, rule
from packages import Packages

TESTS, ROOT = Path(__file__).parent, Path(__file__).parents[1]


ELSEWHERE = {"FIL024"}  # a file of 2 GiB: test_validation_files has it with a smaller limit


def tables() -> list[Break]:
    """Every break of every table of the tests."""
    modules = [importlib.import_module(file.stem) for file in sorted(TESTS.glob("test_validation_*.py"))]
    found = [b for m in modules for table in vars(m).values() if isinstance(table, tuple) for b in table]
    return [b for b in found if isinstance(b, Break)]


def test_every_rule_refuses_some_package() -> None:
    refused = {code for broken in tables() for code in broken.codes} | ELSEWHERE
    assert not load().keys() - refused, "rules without a package that they refuse"
    assert not refused - load().keys(), "codes that no rule has"


@pytest.mark.parametrize("code", load())
def test_a_rule_is_a_section_of_the_manual(code: str) -> None:
    found = RULES[code]
    assert found.code[:3] in FAMILIES and found.needs <= NEEDS.keys()
    assert not found.title.endswith(".") and len(found.title) < 110
    for part in (found.causes, found.remedy):
        assert part.endswith((".", ".)")) and len(part) > 10


def test_the_manual_is_what_the_rules_say() -> None:
    assert (ROOT / "docs" / "rules.md").read_text("utf-8") == manual(), (
        "python -m cabochon.validation.manual > docs/rules.md"
    )


def test_titles_are_not_the_same() -> None:
    titles = [found.title for found in load().values()]
    assert len(titles) == len(set(titles))


@pytest.mark.parametrize(
    "code, doc, message",
    [
        ("FIL1", "A title.\n\nCauses: some.\nRemedy: one.", "no code"),
        ("FIL001", "A title.\n\nCauses: some.\nRemedy: one.", "taken"),
        ("XYZ001", "A title.\n\nCauses: some.\nRemedy: one.", "no module of that family"),
        ("FIL999", "A title.\n\nCauses: some.", "is not a title"),
        ("FIL999", "A title without its end\n\nCauses: some.\nRemedy: one.", "is not a title"),
    ],
)
def test_a_rule_without_its_section_is_refused(code: str, doc: str, message: str) -> None:
    def check(package: object) -> list[Found]:
        return []

    check.__doc__, check.__module__ = doc, "cabochon.validation.files"
    with pytest.raises(ValueError, match=message):
        rule(code, Severity.ERROR)(check)
    assert "FIL999" not in RULES


def test_a_rule_lives_with_its_family() -> None:
    for code, found in load().items():
        assert MODULES[found.check.__module__.removeprefix("cabochon.validation.")] == code[:3]


def test_a_good_package_has_no_findings(package: Path) -> None:
    verdict = cabochon.validate(package)
    assert verdict.findings == () and verdict.passed
    assert set(verdict.rules) | set(verdict.skipped) == set(load())
    unasked = {code for code, found in load().items() if found.needs & {"source", "execute"}}
    assert (
        verdict.skipped.keys() - unasked
        == {c for c, why in verdict.skipped.items() if not why.startswith("needs")} - unasked
    )


@pytest.mark.parametrize(
    "target, precision, caveats",
    [
        ("default", "f16", set()),
        ("default", "bf16", {"RUN002"}),
        ("onnx-standard", "f32", set()),
        ("cuda", "f32", {"RUN002"}),
        ("cuda", "f16", set()),
        ("webgpu", "f32", set()),
        ("webgpu", "f16", {"RUN012"}),
    ],
)
def test_packages_of_every_target_are_good(
    packages: Packages, target: str, precision: str, caveats: set[str]
) -> None:
    """But for what the target's provider cannot do, which is no error."""
    verdict = cabochon.validate(packages("tiny", target, precision))
    assert verdict.passed and codes(verdict) == caveats


def test_the_miniature_is_good_and_is_what_its_checkpoint_gives(packages: Packages) -> None:
    source = Path(cabochon.__file__).parent / "demo" / "miniature" / "target"
    verdict = cabochon.validate(packages("miniature", "default", "f16"), source=source)
    assert verdict.findings == () and "SRC001" in verdict.rules


NAMED = """
import os, sys
import onnx, onnxruntime, pydantic  # once for all; cabochon itself anew in each

for first in sys.argv[2:]:
    if not os.fork():
        exec(first)
        import cabochon
        rules = cabochon.validate(sys.argv[1], quick=True).rules
        assert "onnx_ir" not in sys.modules, "most of a second to import"
        print(len(rules), flush=True)
        os._exit(0)
    os.wait()
"""


def test_the_function_is_called_by_the_name_of_its_room(tmp_path: Path) -> None:
    """Whichever was asked for first. Of an empty folder: where tests run, thousands of files may lie."""
    firsts = ("pass", "import cabochon.validation.rules", "import cabochon; cabochon.validate")
    command = [sys.executable, "-c", NAMED, str(tmp_path), *firsts, "import cabochon.package"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert [int(count) > 20 for count in found.stdout.split()] == [True] * 4, found.stderr


def test_quick_reads_no_weights(package: Path) -> None:
    verdict = cabochon.validate(package, quick=True)
    assert {code for code, found in load().items() if "weights" in found.needs} <= verdict.skipped.keys()
    assert verdict.skipped["FIL017"] == "needs the bytes of the weights: not with --quick"


def test_codes_are_selected_and_ignored_by_their_beginnings(package: Path, tmp_path: Path) -> None:
    chosen = cabochon.validate(package, select=["FIL00", "HYG"], ignore=["FIL002"])
    assert all(code.startswith(("FIL00", "HYG")) and code != "FIL002" for code in chosen.rules)
    assert chosen.skipped["FIL002"] == "ignored" and chosen.skipped["FIL011"] == "not selected"
    for wrong in ("FIL1000", "", "fil001"):
        with pytest.raises(RequestError, match="no rule's code begins with"):
            cabochon.validate(package, select=[wrong])


def test_strict_makes_warnings_errors(package: Path, tmp_path: Path) -> None:
    copy = copied(package, tmp_path / "package")
    (copy / "notes.txt").write_text("hello")
    resum(copy)
    lax, strict = cabochon.validate(copy), cabochon.validate(copy, strict=True)
    assert lax.passed and [f.code for f in lax.warnings] == ["FIL005"]
    assert not strict.passed and [f.code for f in strict.errors] == ["FIL005"]


def test_what_is_no_package_is_an_error_of_the_caller(package: Path, tmp_path: Path) -> None:
    with pytest.raises(PackageError, match="does not exist; expected a package"):
        cabochon.validate(tmp_path / "nowhere")
    with pytest.raises(PackageError, match="is not a folder"):
        cabochon.validate(package / "model.onnx")
    with pytest.raises(RequestError, match="reads every weight"):
        cabochon.validate(package, quick=True, source="anything")
    with pytest.raises(SourceError):
        cabochon.validate(package, source=tmp_path)


def test_an_empty_folder_is_a_package_with_nothing_in_it(tmp_path: Path) -> None:
    assert {"FIL001", "SCH001"} <= codes(cabochon.validate(tmp_path))


def test_a_rule_that_fails_is_a_finding(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(opened: object) -> list[Found]:
        raise KeyError("x")

    def erring(opened: object) -> list[Found]:
        raise PackageError("unreadable", at="there")

    for check, found in ((failing, "the rule itself fails: KeyError: 'x'"), (erring, "unreadable")):
        changed = rules.Rule("FIL001", Severity.ERROR, frozenset(), "t", "c", "r", check)
        monkeypatch.setitem(RULES, "FIL001", changed)
        (finding,) = judge(
            open_package(package), {}, {c: "not selected" for c in load() if c != "FIL001"}
        ).findings
        assert finding.found == found


def test_a_rule_whose_needs_are_not_met_is_named(package: Path, tmp_path: Path) -> None:
    copy = copied(package, tmp_path / "package")
    (copy / "model.onnx").write_bytes(b"nothing")
    (copy / "config.json").write_text("{}")
    verdict = cabochon.validate(copy)
    assert (
        verdict.skipped["STA004"]
        == "needs the graphs that the document names; needs config.json as a text model"
    )
    assert {"FIL011", "FIL019"} <= codes(verdict)


SMALL = (
    "inference_metadata.yaml",
    "inference_metadata.loop.yaml",
    "model.onnx",
    "config.json",
    "genai_config.json",
)
SMALL += ("provenance.json", "SHA256SUMS", "generation_config.json", "tokenizer_config.json")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_mutated_packages_give_findings_never_tracebacks(
    packages: Packages, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Bytes that are replaced, inserted, cut off or repeated anywhere in a small file."""
    copy = copied(packages(), tmp_path_factory.mktemp("mutated") / "package")
    name = data.draw(st.sampled_from([name for name in SMALL if (copy / name).exists()]))
    content = bytearray((copy / name).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, max(0, len(content) - 1)))
        how = data.draw(st.sampled_from(["replace", "insert", "cut", "repeat"]))
        new = data.draw(
            st.binary(min_size=1, max_size=12)
            | st.sampled_from([b"..", b"/", b"1e999", b"{", b"- ", b"&a", b"*a"])
        )
        if how == "replace":
            content[at : at + len(new)] = new
        elif how == "insert":
            content[at:at] = new
        elif how == "cut":
            del content[at:]
        else:
            content[at:at] = content[at : at + 200]
    (copy / name).write_bytes(content)
    verdict = cabochon.validate(copy, quick=True)
    for finding in verdict.findings:
        assert finding.at and "the rule itself fails" not in finding.found, str(finding)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00" * 1000,
        b"\xff\xfe",
        b"\x08\x0a" * 5000,
        b"[" * 100_000,
        b"a: " * 100_000,
        b'{"a":' * 50_000,
    ],
    ids=["empty", "zeros", "utf-16", "protobuf", "brackets", "colons", "objects"],
)
@pytest.mark.parametrize("name", SMALL)
def test_files_of_something_else_give_findings(
    package: Path, tmp_path: Path, name: str, content: bytes
) -> None:
    copy = copied(package, tmp_path / "package")
    (copy / name).write_bytes(content)
    for finding in cabochon.validate(copy, quick=True).findings:
        assert finding.at and "the rule itself fails" not in finding.found, str(finding)


def test_numbers_of_any_size_in_json(package: Path, tmp_path: Path) -> None:
    copy = copied(package, tmp_path / "package")
    edit_json(
        "generation_config.json", lambda c: c.update(eos_token_id=10**4000, top_k=-1, temperature="hot")
    )(copy)
    for finding in cabochon.validate(copy, quick=True).findings:
        assert finding.at and "the rule itself fails" not in finding.found, str(finding)
    assert json.loads((copy / "config.json").read_text()) and (copy / CANONICAL).exists()


@pytest.mark.parametrize("name", ["tiny", "tiny-pair"])
def test_a_verdict_in_two_parts_is_the_whole_one(name: str, packages: Packages, tmp_path: Path) -> None:
    """What a build says of graphs and documents while the weights are still being written."""
    package = copied(packages(name), tmp_path / "p")
    late = [
        path
        for path in package.iterdir()
        if path.suffix in (".md", ".data") or path.name == "provenance.json"
    ]
    bytes_of = {path: path.read_bytes() for path in late}
    for path in late:
        path.unlink()
    begun = begin(package)
    for path, content in bytes_of.items():
        path.write_bytes(content)
    edit_json("provenance.json", lambda record: record["build"].update(precision="f16"))(package)
    found, expected = finish(begun), validate(package, quick=True)
    assert replace(found, seconds=0.0) == replace(expected, seconds=0.0)
    assert found.errors


def test_a_graph_that_changed_meanwhile_is_judged_again(packages: Packages, tmp_path: Path) -> None:
    package = copied(packages(), tmp_path / "p")
    begun = begin(package)
    (package / "another.onnx").write_bytes(b"no graph")
    assert "FIL011" in codes(finish(begun))
