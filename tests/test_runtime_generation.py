"""The loop: text, stop strings, end-of-sequence and lengths, without a model."""

from typing import Any

import numpy as np
import pytest

from cabochon.runtime.flow import Stops
from cabochon.runtime.generation import Row, Timings
from cabochon.runtime.sampling import Sampler, Sampling
from packages import Packages


@pytest.fixture
def row(packages: Packages) -> Any:
    """A row that draws what it is told."""
    tokens = packages.model().tokens

    def make(limit: int = 99, eos: tuple[int, ...] = (1,), stop: tuple[str, ...] = ()) -> Row:
        return Row([2], Sampler(Sampling()), limit, frozenset(eos), tokens, Stops(stop))

    return make


def feed(row: Row, ids: list[int]) -> list[str]:
    pieces = []
    for token in ids:
        pieces.append(row.take(np.eye(512, dtype=np.float32)[token]))
        if row.finish_reason:
            break
    return pieces


def ids_of(row: Row, text: str) -> list[int]:
    assert row.tokens is not None
    return row.tokens.text(text)


@pytest.mark.parametrize(
    ("text", "options", "said", "reason"),
    [
        ("Hello world", {}, "Hello world", ""),
        ("Hello world", {"stop": ("o w",)}, "Hell", "stop"),
        ("say 😀 END more", {"stop": ("😀 E",)}, "say ", "stop"),
        ("the end😀", {"limit": 4}, None, "length"),
    ],
)
def test_pieces_are_the_text(row: Any, text: str, options: dict[str, Any], said: str | None, reason: str):
    one = row(**options)
    pieces = feed(one, ids_of(one, text))
    answer = one.generation()
    assert "".join(pieces) == answer.text
    assert answer.finish_reason == (reason or "closed")
    if said is not None:
        assert answer.text == said
    else:
        assert len(answer.ids) == 4


def test_eos_ends_and_is_an_id_but_no_text(row: Any):
    one = row(eos=(1, ids_of(row(), "x")[0]))
    feed(one, [*ids_of(one, "abx"), 7])
    answer = one.generation()
    assert (answer.text, answer.finish_reason, answer.ids) == ("ab", "eos", ids_of(one, "abx"))


def test_held_bytes_are_said_at_the_end(row: Any):
    one = row(eos=(1,))
    pieces = feed(one, [*ids_of(one, "é"), 1])
    assert pieces == ["", "", "é"]


def test_a_held_stop_is_said_when_it_does_not_come(row: Any):
    one = row(stop=("abc",))
    assert "".join(feed(one, [*ids_of(one, "xab"), 1])) == "xab"
    assert one.finish_reason == "eos"


def test_a_stop_in_held_bytes_is_found_at_the_end(row: Any):
    one = row(stop=("é",))
    feed(one, [*ids_of(one, "xé"), 1])
    assert (one.text, one.finish_reason) == ("x", "stop")


def test_speed_is_of_the_tokens_after_the_first():
    assert Timings(4, 0, 11, prefill_seconds=9.0, decode_seconds=2.0).tokens_per_second == 5.0
    assert Timings(4, 0, 1, prefill_seconds=9.0, decode_seconds=0.0).tokens_per_second == 0.0
