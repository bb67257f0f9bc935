"""A pytest plugin: every skip has a reason, and the run ends with how many there were and why."""

from collections import Counter
from collections.abc import Generator
from typing import TypeVar

import pytest

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)
NO_REASON = {"", "Skipped", "unconditional skip"}


def reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Why a report says that it was skipped; "" without a reason."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr or "")
    why = text.removeprefix("Skipped:").strip()
    return "" if why in NO_REASON else why


def refuse_silence(report: Report) -> Report:
    if report.skipped and not hasattr(report, "wasxfail") and not reason(report):
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid}: skipped without a reason; give one: pytest.skip('why')"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return refuse_silence((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return refuse_silence((yield))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    terminalreporter.write_sep("-", f"skips: {len(skipped)}")
    for why, times in Counter(map(reason, skipped)).most_common():
        terminalreporter.write_line(f"{times:4d}  {why}")
