"""What a process told becomes probes; what it did not come to is not spoken of."""

import json
from typing import Any

import pytest

from cabochon.clients.child import Ended
from cabochon.clients.judging import Expected, judged, same
from cabochon.clients.probes import Client, Probe, Probes

EXPECTED = {
    "load": Expected("load"),
    "greedy": Expected("3 tokens", [[1, 2, 3]]),
    "more": Expected("more", [[4]]),
}


def begins(name: str) -> dict[str, Any]:
    return {"name": name, "event": "begins"}


def gave(name: str, found: Any = None) -> dict[str, Any]:
    return {"name": name, "event": "gave", "found": found, "seconds": 0.5}


LOADED = (begins("load"), gave("load"))


def probes(*told: dict[str, Any], code: int | None = 0, words: str = "") -> list[Probe]:
    return list(judged(Ended(told, code, words, 9.0), EXPECTED))


def test_the_same_tokens_worked() -> None:
    found = probes(*LOADED, begins("greedy"), gave("greedy", [[1, 2, 3]]))
    assert found == [
        Probe("load", "load", "worked", "no error", 0.5),
        Probe("greedy", "3 tokens", "worked", "the same 3 tokens as cabochon's own runtime", 0.5),
    ]


def test_an_answer_with_a_reason_is_its_ids() -> None:
    assert (
        probes(*LOADED, begins("greedy"), gave("greedy", {"ids": [1, 2, 3], "finish": "eos"}))[1].outcome
        == "worked"
    )


def test_an_error_is_refused_and_others_follow() -> None:
    raised = {"name": "greedy", "event": "raised", "error": "RuntimeError: no", "seconds": 0.1}
    found = probes(*LOADED, begins("greedy"), raised, begins("more"), gave("more", [[4]]))
    assert found[1] == Probe("greedy", "3 tokens", "refused", "RuntimeError: no", 0.1)
    assert found[2].outcome == "worked"


@pytest.mark.parametrize(
    "code, outcome, happened",
    [
        (-11, "crashed", "its process died of SIGSEGV; last words"),
        (None, "hung", "no answer after 9 s; its process was ended"),
    ],
)
def test_what_began_and_did_not_end(code: int | None, outcome: str, happened: str) -> None:
    found = probes(*LOADED, begins("greedy"), code=code, words="first words\nlast words")
    assert found[1:] == [Probe("greedy", "3 tokens", outcome, happened, 9.0)]


def test_a_process_that_tells_nothing() -> None:
    (found,) = probes(code=1, words="Traceback\nImportError: libfoo.so")
    assert (found.name, found.outcome) == ("start", "crashed")
    assert found.happened == "its process ended with exit code 1; ImportError: libfoo.so"


@pytest.mark.parametrize(
    "found, expected, outcome, happened",
    [
        ([[1, 2, 3, 0]], [[1, 2, 3]], "worked", "the same 3 tokens"),
        ([[1, 9, 3]], [[1, 2, 3]], "differs", "at token 1: 9 3 instead of 2 3"),
        ([[1]], [[1, 2, 3]], "differs", "at token 1: nothing instead of 2 3"),
        ([[]], [[1]], "differs", "at token 0: nothing instead of 1"),
        ([], [[1]], "differs", "0 rows instead of 1"),
        ([[1], [3]], [[1], [2]], "differs", "at row 1, token 0: 3 instead of 2"),
        (
            [[1], [2, 0]],
            [
                [
                    1,
                ],
                [2],
            ],
            "worked",
            "the same 1 and 1 tokens",
        ),
    ],
)
def test_rows_are_compared(found: Any, expected: Any, outcome: str, happened: str) -> None:
    said = same(found, expected)
    assert said[0] == outcome and happened in said[1]


def test_limitations_are_only_what_was_tried_and_did_not_work(tmp_path: Any) -> None:
    worked = Probe("load", "load", "worked", "no error", 0.1)
    refused = Probe("rewind", "rewind_to 3", "refused", "RuntimeError: too long", 0.1)
    found = Probes(
        tmp_path, {"versions": {}}, (Client("genai", "0.18.0", (worked, refused)), Client("other", None, ()))
    )
    assert found.limitations == ("genai 0.18.0: rewind_to 3: refused: RuntimeError: too long",)
    assert found["genai"]["rewind"] is refused
    assert json.loads(json.dumps(found.as_json())) == {
        "versions": {},
        "clients": [
            {"name": "genai", "version": "0.18.0", "probes": [vars(worked), vars(refused)]},
            {"name": "other", "version": None, "probes": []},
        ],
        "limitations": list(found.limitations),
    }
