"""The verdict as text, JSON and SARIF, in the package, and through the command line."""

import json
import re
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

import cabochon
from broken import CANONICAL, copied, edit_document, resum, write
from cabochon import sums
from cabochon.cli.app import app
from cabochon.validation import Finding, Severity, Verdict, reports
from cabochon.validation.lines import path
from cabochon.validation.rules import load
from packages import Packages

RUNNER = CliRunner()


def run(*arguments: object, code: int = 0) -> str:
    """The output of `cabochon validate ARGUMENTS`, which must end with this exit code."""
    result = RUNNER.invoke(app, ["validate", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture
def warned(package: Path, tmp_path: Path) -> Path:
    """A package with a warning."""
    copy = copied(package, tmp_path / "package")
    write("notes.txt", "hello")(copy)
    resum(copy)
    return copy


@pytest.fixture
def broken(warned: Path) -> Path:
    """A package with a warning, and errors in a document."""
    edit_document(lambda d: d["model"].update(vocab_size="64"))(warned)
    resum(warned)
    return warned


def verdict(*findings: Finding) -> Verdict:
    return Verdict(Path("p"), findings, ("FIL001",), {"FIL017": "why", "HYG001": "why"}, 1.25)


def finding(at: str, code: str = "FIL001", severity: Severity = Severity.ERROR) -> Finding:
    return Finding(code, severity, "A title", at, "this", "that", "do it")


def test_text_groups_by_rule_and_says_a_remedy_once() -> None:
    assert reports.text(verdict(finding("a: x"), finding("b: y"))) == (
        "error FIL001: A title\n"
        "  a: x\n    found this\n    expected that\n"
        "  b: y\n    found this\n    expected that\n"
        "  -> do it\n"
        "\n"
        "not run: FIL017, HYG001: why\n"
        "p: FAILED: 2 errors, 0 warnings, 0 notes; 1 rules in 1.2 s"
    )


def test_text_names_rules_that_follow_one_another_as_a_span() -> None:
    skipped = dict.fromkeys(("FIL017", "REF012", "REF013", "REF015", "BEH001", "BEH002", "BEH003"), "why")
    said = reports.text(Verdict(Path("p"), (), (), skipped, 1.0))
    assert "not run: FIL017, REF012-013, REF015, BEH001-003: why\n" in said


def test_text_of_many_findings_is_short() -> None:
    said = reports.text(verdict(*(finding(f"a: {i}") for i in range(500))))
    assert "  and 480 more\n" in said and said.count("\n") < 80
    assert "500 errors" in said


def test_json_has_everything(broken: Path) -> None:
    said = json.loads(run(broken, "--quick", "--json", code=1))
    assert not said["passed"] and said["counts"] == {"error": 2, "warning": 1, "note": 0}
    assert {f["code"] for f in said["findings"]} == {"SCH003", "FIL005"}
    first = said["findings"][0]
    assert set(first) == {"code", "severity", "rule", "at", "found", "expected", "remedy"}
    assert set(said["rules"]) | set(said["skipped"]) == set(load())


def test_sarif_is_what_scanners_read(broken: Path) -> None:
    log = json.loads(run(broken, "--quick", "--sarif", code=1))
    assert log["version"] == "2.1.0" and log["$schema"].endswith("sarif-2.1.0.json")
    (one,) = log["runs"]
    rules = one["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == list(load())
    manual = (Path(__file__).parents[1] / "docs" / "rules.md").read_text("utf-8")
    for rule in rules:
        file, _, anchor = rule["helpUri"].partition("#")
        assert file == "docs/rules.md" and f"\n### {anchor.upper()}\n" in manual
    for result in one["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("error", "warning", "note") and result["message"]["text"]
    typed = [result for result in one["results"] if result["ruleId"] == "SCH003"]
    physical = typed[0]["locations"][0]["physicalLocation"]
    assert physical["artifactLocation"] == {"uri": CANONICAL}
    lines = (broken / CANONICAL).read_text().splitlines()
    region = physical["region"]
    assert "vocab_size" in lines[region["startLine"] - 1] and region["startColumn"] > 0
    assert {
        note["associatedRule"]["id"] for note in one["invocations"][0]["toolConfigurationNotifications"]
    } >= {"FIL017"}


@pytest.mark.parametrize(
    "at, uri, region, inside",
    [
        ("a.yaml:3:7: model", "a.yaml", {"startLine": 3, "startColumn": 7}, "model"),
        ("a.yaml:3: model", "a.yaml", {"startLine": 3}, "model"),
        ("a.yaml: model.x", "a.yaml", None, "model.x"),
        ("policies/a b.onnx: node", "policies/a%20b.onnx", None, "node"),
        ("model.onnx", "model.onnx", None, None),
        ("a:b: c", "a%3Ab", None, "c"),
    ],
)
def test_an_address_is_a_location(at: str, uri: str, region: object, inside: str | None) -> None:
    (result,) = reports.sarif(verdict(finding(at)))["runs"][0]["results"]
    (location,) = result["locations"]
    assert location["physicalLocation"]["artifactLocation"]["uri"] == uri
    assert location["physicalLocation"].get("region") == region
    named = [one["fullyQualifiedName"] for one in location.get("logicalLocations", ())]
    assert named == ([inside] if inside else [])


def test_a_finding_in_a_document_has_its_line(package: Path, tmp_path: Path) -> None:
    copy = copied(package, tmp_path / "package")
    edit_document(lambda d: d["pipeline"]["workflow"]["state"]["kv.0.key"].update(initializer="nothing"))(
        copy
    )
    log = json.loads(run(copy, "--quick", "--sarif", "--select", "REF002", code=1))
    (result,) = log["runs"][0]["results"]
    (location,) = result["locations"]
    region = location["physicalLocation"]["region"]
    assert (copy / CANONICAL).read_text().splitlines()[
        region["startLine"] - 1
    ].strip() == "initializer: nothing"
    assert location["logicalLocations"][0]["fullyQualifiedName"].endswith("state.kv.0.key.initializer")


@pytest.mark.parametrize(
    "address, expected",
    [
        ("a.b", ("a", "b")),
        ("a.b.c", ("a", "b.c")),
        ("a.b.c[1].d", ("a", "b.c", 1, "d")),
        ("a.b.cc", ("a", "b")),
        ("a.nothing.b", ("a",)),
        ("", ()),
    ],
)
def test_an_address_is_a_path(address: str, expected: tuple[str | int, ...]) -> None:
    assert path({"a": {"b": {"x": 1}, "b.c": [0, {"d": 1}]}}, address) == expected


def test_exit_codes(package: Path, warned: Path) -> None:
    assert run(package).endswith(" s\n") and "passed: 0 errors" in run(package, "--quick")
    assert "warning FIL005" in run(warned, "--quick")
    assert "error FIL005" in run(warned, "--quick", "--strict", code=1)
    run(warned, "--quick", "--strict", "--ignore", "FIL005")
    run(warned, "--quick", "--strict", "--select", "SCH", "--select", "FIL00", code=1)
    for usage in (
        ["--select", "nothing"],
        ["--json", "--sarif"],
        ["--record", "--select", "FIL"],
        ["--quick", "--source", "x"],
        ["--colour"],
    ):
        run(package, *usage, code=2)


def test_what_is_no_package_is_an_error(tmp_path: Path) -> None:
    result = RUNNER.invoke(app, ["validate", str(tmp_path / "nowhere")])
    assert result.exit_code == 1
    assert isinstance(result.exception, cabochon.CabochonError) and "expected a package" in str(
        result.exception
    )


def test_a_build_keeps_its_verdict(package: Path) -> None:
    record = json.loads((package / reports.EVIDENCE).read_bytes())
    assert record["passed"] and record["findings"] == []
    validator = record["validator"]
    assert validator["name"] == "cabochon" and validator["version"] == cabochon.__version__
    assert validator["rules"] == len(load()) == len(record["rules"]) + len(record["skipped"])
    installed = {name: version(name) for name in ("numpy", "onnx", "onnxruntime", "pydantic")}
    assert validator["versions"].items() >= installed.items()
    others = ("onnx-genai", "onnxruntime-genai")
    assert not any(name in json.dumps(record["validator"]) for name in others), "none of them ran"
    assert "seconds" not in record and not re.search(r"20\d\d-", json.dumps(record))
    assert record["skipped"]["FIL017"] == "needs the bytes of the weights: not with --quick"
    assert record["skipped"]["BEH001"].startswith("needs to run the graphs")
    assert reports.EVIDENCE in sums.read(package) and sums.verify(package) == []


def test_record_replaces_the_verdict_and_its_checksum(packages: Packages, tmp_path: Path) -> None:
    copy = copied(packages(), tmp_path / "package")
    before = (copy / reports.EVIDENCE).read_bytes()
    run(copy, "--record")
    first = (copy / reports.EVIDENCE).read_bytes()
    assert before != first and "HYG001" in json.loads(first)["rules"]
    run(copy, "--record")
    assert (copy / reports.EVIDENCE).read_bytes() == first
    assert sums.verify(copy) == [] and cabochon.validate(copy).findings == ()


def test_the_source_is_compared_with(packages: Packages, tmp_path: Path) -> None:
    from broken import edit_weight
    from packages import SOURCES

    copy = copied(packages(), tmp_path / "package")
    run(copy, "--source", SOURCES["tiny"])
    edit_weight("model.norm.weight", lambda data: data.__setitem__(5, data[5] ^ 1))(copy)
    resum(copy)
    said = json.loads(run(copy, "--source", SOURCES["tiny"], "--json", code=1))
    (found,) = said["findings"]
    assert found["code"] == "SRC001" and found["found"].startswith("another byte at 5 of ")


def test_rules_are_listed() -> None:
    rows = json.loads(RUNNER.invoke(app, ["list", "rules", "--json"]).output)
    assert [row["rule"] for row in rows] == list(load())
    assert rows[0] == {"rule": "FIL001", "severity": "error", "what": load()["FIL001"].title, "needs": ""}
