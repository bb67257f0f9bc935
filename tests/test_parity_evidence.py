"""Verdicts of a check."""

from pathlib import Path

from cabochon.parity.evidence import Evidence, Verdict


def test_passing_needs_every_verdict_and_at_least_one() -> None:
    good, bad = Verdict("L4", True, "fine"), Verdict("L5", False, "not", "evidence/l5_generation.json")
    assert Evidence(Path("p"), (good,)).passed
    assert not Evidence(Path("p"), (good, bad)).passed
    assert not Evidence(Path("p"), ()).passed
    told = Evidence(Path("p"), (good, bad)).as_json()
    assert told["passed"] is False
    assert told["verdicts"][1] == {
        "level": "L5", "passed": False, "summary": "not", "file": "evidence/l5_generation.json",
    }  # fmt: skip
