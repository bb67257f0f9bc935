"""All rules over one package, and the verdict."""

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from cabochon.checkpoint import open_checkpoint
from cabochon.errors import CabochonError, RequestError
from cabochon.gemma4 import DrafterConfig, read_config
from cabochon.validation.findings import Finding, Severity
from cabochon.validation.opened import Opened, open_package
from cabochon.validation.rules import NEEDS, Found, Rule, Skipped, load, selected

__all__ = ["Begun", "Verdict", "begin", "finish", "judge", "validate"]

_QUICK = {"weights": False, "source": False, "execute": False}
# Families, and rules of other families, that read documents, graphs and config.json alone.
_OF_GRAPHS = (
    *("SCH", "REF", "PRT", "STA", "ATT", "SPC"),
    *("FIL012", "FIL021", "RUN001", "RUN002", "RUN003", "RUN004", "RUN005", "RUN006"),
)


@dataclass(frozen=True)
class Verdict:
    """What the rules found in `package`. `rules`: codes of those that ran; `skipped`: of the others, why."""

    package: Path
    findings: tuple[Finding, ...]
    rules: tuple[str, ...]
    skipped: Mapping[str, str]
    seconds: float

    @property
    def errors(self) -> tuple[Finding, ...]:
        """What refuses the package."""
        return tuple(f for f in self.findings if f.severity is Severity.ERROR)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """What deserves a look."""
        return tuple(f for f in self.findings if f.severity is Severity.WARNING)

    @property
    def passed(self) -> bool:
        """There are no errors."""
        return not self.errors


def validate(
    package: str | Path,
    *,
    quick: bool = False,
    execute: bool = False,
    strict: bool = False,
    select: Collection[str] = (),
    ignore: Collection[str] = (),
    source: str | Path | None = None,
) -> Verdict:
    """Judge a package by its files.

    `quick` reads no bytes of weights; `execute` runs the graphs as well; `strict` makes warnings errors; `select` and
    `ignore` are codes of rules or their beginnings; `source` is the checkpoint it was built from, every weight is then
    derived again and compared.

    Raises PackageError where `package` is no folder, RequestError for a code that no rule has and for `source` with
    `quick`, SourceError for a source that cannot be read. What is wrong with the package is never an exception.
    """
    if quick and source is not None:
        raise RequestError("a source is given with quick; comparing with it reads every weight", at="source")
    left_out, started = selected(select, ignore), time.monotonic()
    checkpoint = None if source is None else open_checkpoint(source, check=read_config)
    opened = open_package(package, source=checkpoint)
    asked = {"weights": not quick, "source": checkpoint is not None, "execute": execute}
    verdict = _pair(opened, asked, left_out) if opened.inner else judge(opened, asked, left_out)
    findings = verdict.findings
    if strict:
        findings = tuple(
            replace(f, severity=Severity.ERROR) if f.severity is Severity.WARNING else f for f in findings
        )
    return replace(verdict, package=Path(package), findings=findings, seconds=time.monotonic() - started)


@dataclass(frozen=True)
class Begun:
    """A package of which the documents, the graphs and config.json stand, and what can be said of those."""

    opened: Opened
    verdict: Verdict


def begin(package: Path) -> Begun:
    """Judge what stands, while the rest of the package is still being written."""
    opened = open_package(package)
    return Begun(opened, judge(opened, _QUICK, _families(False)))


def finish(begun: Begun) -> Verdict:
    """The verdict of `validate(package, quick=True)` on the package as it stands now."""
    opened = begun.opened.again()
    if opened is None or opened.inner:
        return validate(begun.opened.root, quick=True)
    first, rest = begun.verdict, judge(opened, _QUICK, _families(True))
    codes, findings = list(load()), (*first.findings, *rest.findings)
    ran = {*first.rules, *rest.rules}
    skipped = {
        code: (first if code.startswith(_OF_GRAPHS) else rest).skipped for code in codes if code not in ran
    }
    return Verdict(
        opened.root,
        tuple(sorted(findings, key=lambda finding: codes.index(finding.code))),
        tuple(code for code in codes if code in ran),
        {code: reasons[code] for code, reasons in skipped.items()},
        0.0,
    )


def _families(of_graphs: bool) -> dict[str, str]:
    """The rules to leave out: those that read graphs and documents alone, or the others."""
    return {code: "at another time" for code in load() if code.startswith(_OF_GRAPHS) is of_graphs}


def _pair(pair: Opened, asked: Mapping[str, bool], left_out: Mapping[str, str]) -> Verdict:
    """The verdict on a pair, and that on the target as a package of its own: its bytes are read with those of the pair.

    A source is that of one of both, as its kind says. A rule counts as run where it ran on one of both.
    """
    assert pair.inner is not None
    target = open_package(pair.root / pair.inner, source=pair.source)
    drafts = pair.source is not None and isinstance(read_config(pair.source.config), DrafterConfig)
    verdict = judge(pair, {**asked, "source": asked["source"] and drafts}, left_out)
    inner = {**asked, "weights": False, "source": asked["source"] and not drafts}
    own = judge(target, inner, left_out)
    inside = (replace(f, at=f"{pair.inner}/{f.at}") for f in own.findings)
    ran = {*verdict.rules, *own.rules}
    skipped = {code: why for code, why in {**own.skipped, **verdict.skipped}.items() if code not in ran}
    rules = tuple(code for code in load() if code in ran)
    return replace(
        verdict, findings=tuple(dict.fromkeys((*verdict.findings, *inside))), rules=rules, skipped=skipped
    )


def judge(opened: Opened, asked: Mapping[str, bool], left_out: Mapping[str, str]) -> Verdict:
    """Run every rule whose needs are met; `asked`: which of "weights", "source" and "execute" are wanted."""
    skipped, findings, ran = dict[str, str](), list[Finding](), list[str]()
    for code, rule in load().items():
        if why := left_out.get(code) or _unmet(rule, opened, asked):
            skipped[code] = why
            continue
        try:
            found = list(_findings(rule, opened))
        except Skipped as cannot:
            skipped[code] = str(cannot)
        else:
            ran.append(code)
            findings += found
    return Verdict(opened.root, tuple(dict.fromkeys(findings)), tuple(ran), skipped, 0.0)


def _unmet(rule: Rule, opened: Opened, asked: Mapping[str, bool]) -> str:
    met = opened.met | {need for need, wanted in asked.items() if wanted}
    return "; ".join(f"needs {NEEDS[need]}" for need in NEEDS if need in rule.needs - met)


def _findings(rule: Rule, opened: Opened) -> Iterator[Finding]:
    """What a rule finds; what it stumbles over is a finding too."""
    try:
        for found in rule.check(opened):
            yield rule.finding(found)
    except Skipped:
        raise
    except CabochonError as error:
        yield rule.finding(Found(error.at, error.message, "files that the rule can read", error.remedy))
    except Exception as error:  # whatever a broken package makes of a rule, the others are worth their time
        where = _place(error)
        found = f"the rule itself fails: {type(error).__name__}: {error}"[:300]
        yield rule.finding(
            Found(str(opened.root.name), found, f"a rule that does not ({where})", "report it")
        )


def _place(error: BaseException) -> str:
    trace = error.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    return f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace else "nowhere"
