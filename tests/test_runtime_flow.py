"""Streaming: characters stay whole; stop strings may span pieces and are not said."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cabochon.runtime.flow import Detokenizer, Stops
from cabochon.runtime.tokens import Tokens
from packages import TINY

FOLDER = TINY / "text"
TOKENS = Tokens(FOLDER / "tokenizer.json", json.loads((FOLDER / "tokenizer_config.json").read_text()))


def pieces(ids: list[int]) -> list[str]:
    flow = Detokenizer(TOKENS)
    return [*[flow.add(i) for i in ids], flow.finish()]


@pytest.mark.parametrize("text", ["Hello world", "日本語です 😀👩‍👩‍👧 é", " spaces  and\nlines ", ""])
def test_characters_stay_whole(text: str):
    said = pieces(TOKENS.text(text))
    assert "".join(said) == text
    assert not any("\ufffd" in piece for piece in said)


def test_text_is_said_as_soon_as_it_is_certain():
    ids = [*TOKENS.text("a"), *TOKENS.text("😀"), *TOKENS.text("b")]
    assert pieces(ids) == ["a", "", "", "", "", "😀b", ""]


@given(st.lists(st.integers(0, 511), max_size=40))
def test_pieces_are_the_decoded_ids(ids: list[int]):
    """Broken bytes and control tokens among them included."""
    assert "".join(pieces(ids)) == TOKENS.decode(ids)


@pytest.mark.parametrize(
    ("stops", "given_pieces", "said", "found"),
    [
        (["END"], ["abc", "def"], "abcdef", False),
        (["END"], ["abcEND", "def"], "abc", True),
        (["END"], ["abcE", "N", "Ddef"], "abc", True),
        (["END"], ["abcE", "N", "def"], "abcENdef", False),
        (["END"], ["abcEN"], "abcEN", False),
        (["\n\n"], ["a\n", "\nb"], "a", True),
        (["aab"], ["aaa", "ab"], "aa", True),
        (["xyz", "y"], ["axyz"], "a", True),
        (["", "b"], ["ab"], "a", True),
        ([], ["ab"], "ab", False),
        (["stop", "op"], ["st", "op"], "", True),
    ],
)
def test_stops(stops: list[str], given_pieces: list[str], said: str, found: bool):
    flow = Stops(stops)
    out = [flow.add(p) for p in given_pieces]
    assert "".join(out) + flow.finish() == said
    assert flow.found is found


def test_only_a_possible_beginning_is_held_back():
    flow = Stops(["END", "EXIT"])
    assert [flow.add(p) for p in ("abE", "x", "EX", "I")] == ["ab", "Ex", "", ""]
    assert flow.finish() == "EXI"


@given(st.text("abc", max_size=12), st.text("abc", min_size=1, max_size=3), st.integers(1, 4))
def test_stops_equal_a_search_in_the_whole(text: str, stop: str, size: int):
    flow = Stops([stop])
    out = "".join(flow.add(text[n : n + size]) for n in range(0, len(text), size)) + flow.finish()
    assert out == text.split(stop)[0]
