"""The rules on evidence: of this package, and no more than its results show."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from cabochon.sums import SUMS
from cabochon.validation.findings import Severity
from cabochon.validation.opened import Opened
from cabochon.validation.rules import Found, rule
from cabochon.validation.statements import NEEDS, entries, facts, inside, sums_of

__all__: list[str] = []


@rule("HON018", Severity.ERROR, NEEDS)
def evidence_of_another(package: Opened) -> Iterator[Found]:
    """Evidence was measured on another package.

    Causes: evidence was copied; the package was built again and kept its evidence.
    Remedy: run `cabochon parity` again, or remove the file.
    """
    listed = sums_of(package)
    for name in evidence(package):
        data = package.json(name)
        for file, digest in entries(data, "sha256").items():
            if file not in package.files:
                yield Found(f"{name}: sha256.{file}", "no such file", "a file of the package")
            elif listed.get(file, digest) != digest:
                yield Found(f"{name}: sha256.{file}", str(digest), f"{listed[file]}, as {SUMS} says")
        for found in facts(package):
            for key in ("target", "precision"):
                said, real = inside(data, key), found.graph.properties.get(f"cabochon.{key}")
                if isinstance(said, str) and real is not None and said != real:
                    yield Found(f"{name}: {key}", said, real)


def evidence(package: Opened) -> list[str]:
    """The evidence files that hold JSON."""
    return [
        name for name in package.files if re.fullmatch(r"evidence/[^/]+\.json", name) and package.json(name)
    ]


@rule("HON019", Severity.ERROR)
def evidence_without_runs(package: Opened) -> Iterator[Found]:
    """Evidence claims what its own results do not show.

    Causes: `passed` was set by hand; a check was listed that was not run.
    Remedy: run the check again.
    """
    for name in evidence(package):
        data = package.json(name) or {}
        trials = data.get("trials")
        if data.get("passed") is True and isinstance(trials, list):
            failed = [t for t in trials if not isinstance(t, Mapping) or t.get("passed") is not True]
            if failed or not trials:
                yield Found(
                    f"{name}: passed", "true", f"false: {len(failed)} of {len(trials)} trials did not pass"
                )
        yield from _prompts(name, trials if isinstance(trials, list) else [])
        yield from _validated(name, data)


def _prompts(name: str, trials: list[Any]) -> Iterator[Found]:
    for i, trial in enumerate(trials):
        rows = inside(trial, "prompts")
        failed = [r for r in rows if inside(r, "passed") is False] if isinstance(rows, list) else []
        if inside(trial, "passed") is True and (failed or rows == []):
            found = "no prompt" if not rows else f"{len(failed)} of {len(rows)} prompts that did not pass"
            yield Found(f"{name}: trials[{i}].passed", f"true, with {found}", "false")


def _validated(name: str, data: Mapping[str, Any]) -> Iterator[Found]:
    """A verdict of this validator: no rule both run and skipped, none passed that lists errors."""
    if inside(data, "validator", "name") != "cabochon":
        return
    ran, skipped = data.get("rules"), data.get("skipped")
    if (
        isinstance(ran, list)
        and isinstance(skipped, Mapping)
        and (both := sorted(set(map(str, ran)) & set(skipped)))
    ):
        yield Found(f"{name}: rules", f"{both[0]} as run and as skipped", "one of both")
    findings = data.get("findings")
    errors = [f for f in findings if inside(f, "severity") == "error"] if isinstance(findings, list) else []
    if data.get("passed") is True and errors:
        yield Found(f"{name}: passed", f"true, with {len(errors)} errors", "false")
    if data.get("passed") is True and isinstance(ran, list) and not ran:
        yield Found(f"{name}: passed", "true, with no rule run", "rules that were run")
