"""From what a child process told to probes: tokens are compared with those of cabochon's own runtime."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cabochon.clients.child import Ended
from cabochon.clients.probes import Outcome, Probe

__all__ = ["Expected", "judged", "same"]

Rows = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Expected:
    """What is tried under a name, and the tokens of each row that cabochon's own runtime gives; None: any will do.

    `texts`: what they are as text, for a runtime that says nothing else: decoded all at once, or one by one.
    """

    tried: str
    rows: Rows | None = None
    texts: tuple[str, ...] = ()


def judged(ended: Ended, expected: Mapping[str, Expected]) -> Iterator[Probe]:
    """A probe for everything that began, in order; what a program did not come to is not spoken of."""
    begun = dict[str, dict[str, Any] | None]()
    for line in ended.told:
        begun[line["name"]] = None if line["event"] == "begins" else line
    for name, line in begun.items():
        tried = expected[name].tried
        if line is None:
            yield Probe(name, tried, ended.fault or "crashed", _end(ended), ended.seconds)
        elif line["event"] == "raised":
            yield Probe(name, tried, "refused", line["error"], line["seconds"])
        else:
            outcome, happened = _compared(line["found"], expected[name])
            yield Probe(name, tried, outcome, happened, line["seconds"])
    if not begun:
        yield Probe(
            "start", "start its process and import it", ended.fault or "crashed", _end(ended), ended.seconds
        )


def _compared(found: Any, expected: Expected) -> tuple[Outcome, str]:
    if expected.texts:
        if found["text"] in expected.texts:
            return "worked", "the same text as cabochon's own runtime"
        return (
            "differs",
            f"{found['text']!r} instead of {expected.texts[0]!r}, the text of cabochon's own runtime",
        )
    if expected.rows is None:
        return "worked", "no error"
    rows = [found["ids"]] if isinstance(found, dict) else found
    return same(rows if rows and isinstance(rows[0], list) else [rows], expected.rows)


def same(found: Rows, expected: Rows) -> tuple[Outcome, str]:
    """Whether each row begins with what is expected of it. Rows end at different times: what follows is padding."""
    for number, (row, wanted) in enumerate(zip(found, expected, strict=False)):
        if list(row[: len(wanted)]) != list(wanted):
            at = next((i for i, (a, b) in enumerate(zip(row, wanted, strict=False)) if a != b), len(row))
            place = f"row {number}, token {at}" if len(expected) > 1 else f"token {at}"
            return (
                "differs",
                f"from cabochon's own runtime, at {place}: {_near(row, at)} instead of {_near(wanted, at)}",
            )
    if len(found) < len(expected):
        return "differs", f"{len(found)} rows instead of {len(expected)}"
    count = " and ".join(str(len(row)) for row in expected)
    return "worked", f"the same {count} tokens as cabochon's own runtime"


def _near(row: Sequence[int], at: int) -> str:
    return " ".join(map(str, row[at : at + 3])) or "nothing"


def _end(ended: Ended) -> str:
    last = ended.words.splitlines()[-1:] if ended.fault != "hung" else []
    return "; ".join([ended.how, *last])
