"""A verdict for people, for programs, for code-scanning services, and for the package's own record."""

import json
import platform
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from cabochon import __version__, files, sums
from cabochon.validation.checking import Verdict
from cabochon.validation.findings import Finding, Severity
from cabochon.validation.lines import Lines
from cabochon.validation.rules import load

__all__ = ["EVIDENCE", "MANUAL", "as_json", "evidence", "record", "sarif", "text"]

EVIDENCE = "evidence/validation.json"
MANUAL = "docs/rules.md"  # where a rule's section is: the anchor is its code in lower case
_SHOWN = 20  # findings of one rule that are printed
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "note"}
_TOOLS = ("numpy", "onnx", "onnx_ir", "onnxruntime", "protobuf", "pydantic")


def text(verdict: Verdict) -> str:
    """Findings grouped by rule, then what was not looked at, then one line that sums up."""
    return "\n".join([*_grouped(verdict), *_skipped(verdict), _summary(verdict)])


def _grouped(verdict: Verdict) -> Iterator[str]:
    by_rule = dict[tuple[str, Severity], list[Finding]]()
    for finding in verdict.findings:
        by_rule.setdefault((finding.code, finding.severity), []).append(finding)
    for (code, severity), found in by_rule.items():
        yield f"{severity} {code}: {found[0].rule}"
        for one in found[:_SHOWN]:
            yield f"  {one.at}"
            yield f"    found {one.found}"
            yield f"    expected {one.expected}"
        if len(found) > _SHOWN:
            yield f"  and {len(found) - _SHOWN} more"
        yield from (f"  -> {remedy}" for remedy in dict.fromkeys(one.remedy for one in found[:_SHOWN]))
        yield ""


def _skipped(verdict: Verdict) -> Iterator[str]:
    by_reason = dict[str, list[str]]()
    for code, why in verdict.skipped.items():
        by_reason.setdefault(why, []).append(code)
    for why, codes in by_reason.items():
        yield f"not run: {', '.join(_spans(codes))}: {why}"


def _spans(codes: Iterable[str]) -> Iterator[str]:
    """BEH001, BEH002, BEH003, HYG001 -> "BEH001-003", "HYG001" """
    runs: list[list[str]] = []
    for code in codes:
        if runs and code == f"{runs[-1][-1][:3]}{int(runs[-1][-1][3:]) + 1:03d}":
            runs[-1].append(code)
        else:
            runs.append([code])
    return (run[0] if len(run) == 1 else f"{run[0]}-{run[-1][3:]}" for run in runs)


def _summary(verdict: Verdict) -> str:
    notes = sum(f.severity is Severity.NOTE for f in verdict.findings)
    counts = ((len(verdict.errors), "error"), (len(verdict.warnings), "warning"), (notes, "note"))
    said = ", ".join(f"{count} {what}{'' if count == 1 else 's'}" for count, what in counts)
    state = "passed" if verdict.passed else "FAILED"
    return f"{verdict.package}: {state}: {said}; {len(verdict.rules)} rules in {verdict.seconds:.1f} s"


def as_json(verdict: Verdict) -> dict[str, Any]:
    """The verdict as plain data."""
    return {
        "package": str(verdict.package),
        "passed": verdict.passed,
        **_judged(verdict),
        "seconds": round(verdict.seconds, 3),
    }


def _judged(verdict: Verdict) -> dict[str, Any]:
    by_severity = {s.value: sum(f.severity is s for f in verdict.findings) for s in Severity}
    return {
        "counts": by_severity,
        "findings": [{**vars(f), "severity": f.severity.value} for f in verdict.findings],
        "rules": list(verdict.rules),
        "skipped": dict(verdict.skipped),
    }


def evidence(verdict: Verdict) -> bytes:
    """The verdict as it is kept in the package: the same bytes for the same package, rules and versions.

    It says which rules of which version ran here and which did not, and why. What other validators say is no part of
    it: each has a file of its own.
    """
    record = {
        "validator": {
            "name": "cabochon",
            "version": __version__,
            "rules": len(load()),
            "versions": {"python": platform.python_version()} | {name: _installed(name) for name in _TOOLS},
        },
        "passed": verdict.passed,
        **_judged(verdict),
    }
    return (json.dumps(record, indent=2, ensure_ascii=False) + "\n").encode()


def record(verdict: Verdict, package: Path) -> Path:
    """Write the verdict into the package, with its checksum. Returns the file.

    Raises PackageError where the package cannot be written.
    """
    file = package / EVIDENCE
    file.parent.mkdir(exist_ok=True)
    files.replace(file, evidence(verdict))
    sums.note(package, EVIDENCE)
    return file


@cache
def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def sarif(verdict: Verdict) -> dict[str, Any]:
    """The verdict in the Static Analysis Results Interchange Format (SARIF) 2.1.0 of OASIS."""
    rules = load()
    driver = {
        "name": "cabochon",
        "version": __version__,
        "rules": [
            {
                "id": code,
                "shortDescription": {"text": f"{rule.title}."},
                "fullDescription": {"text": rule.causes},
                "help": {"text": rule.remedy},
                "helpUri": f"{MANUAL}#{code.lower()}",
                "defaultConfiguration": {"level": _LEVELS[rule.severity]},
            }
            for code, rule in rules.items()
        ],
    }
    index, lines = {code: i for i, code in enumerate(rules)}, Lines(verdict.package)
    notices = [
        {"level": "note", "message": {"text": f"{code} was not run: {why}"}, "associatedRule": {"id": code}}
        for code, why in verdict.skipped.items()
    ]
    run = {
        "tool": {"driver": driver},
        "results": [_result(finding, index[finding.code], lines) for finding in verdict.findings],
        "invocations": [{"executionSuccessful": True, "toolConfigurationNotifications": notices}],
        "columnKind": "unicodeCodePoints",
    }
    schema = "https://json.schemastore.org/sarif-2.1.0.json"
    return {"$schema": schema, "version": "2.1.0", "runs": [run]}


def _result(finding: Finding, index: int, lines: Lines) -> dict[str, Any]:
    said = (
        f"{finding.rule}: {finding.at}: found {finding.found}; expected {finding.expected}. {finding.remedy}"
    )
    return {
        "ruleId": finding.code,
        "ruleIndex": index,
        "level": _LEVELS[finding.severity],
        "message": {"text": said},
        "locations": [_location(finding.at, lines)],
    }


def _location(at: str, lines: Lines) -> dict[str, Any]:
    """The file, the line and column where they are known, and the address inside of it as it is written."""
    file, _, inside = at.partition(": ")
    name, line, column = _position(lines.find(file, inside) if inside else file)
    physical: dict[str, Any] = {"artifactLocation": {"uri": _uri(name)}}
    if line:
        physical["region"] = {"startLine": line} | ({"startColumn": column} if column else {})
    logical: Mapping[str, Any] = {"logicalLocations": [{"fullyQualifiedName": inside}]} if inside else {}
    return {"physicalLocation": physical, **logical}


def _position(file: str) -> tuple[str, int, int]:
    """ "a.yaml:3:7" -> ("a.yaml", 3, 7); 0 for what is not said."""
    parts = file.split(":")
    numbers = [int(part) for part in parts[1:3] if part.isascii() and part.isdecimal() and int(part)]
    return (parts[0], *numbers, 0, 0)[:3] if len(numbers) == len(parts) - 1 else (file, 0, 0)  # type: ignore[return-value]


def _uri(name: str) -> str:
    from urllib.parse import quote

    return quote(name.encode("utf-8", "backslashreplace"))
