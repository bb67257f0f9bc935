"""Options over the package's defaults."""

import pytest

from cabochon.errors import RequestError
from cabochon.runtime.request import read_request


def test_what_is_left_out():
    request = read_request({}, {"do_sample": True, "top_k": 64})
    assert (request.how.greedy, request.how.top_k) == (False, 64)
    assert (request.limit, request.stop, request.ignore_eos, request.chunk) == (None, (), False, 512)
    assert (request.speculation, request.num_draft_tokens) == (None, None)


def test_none_is_left_out():
    assert read_request({"top_k": None, "stop": None, "prefill_chunk": None}, {}) == read_request({}, {})


def test_draft_tokens_are_a_number_or_left_open():
    assert read_request({"num_draft_tokens": "auto"}, {}).num_draft_tokens is None
    assert read_request({"num_draft_tokens": 3, "speculation": False}, {}).num_draft_tokens == 3


def test_one_stop_string_or_many():
    assert read_request({"stop": "END"}, {}).stop == ("END",)
    assert read_request({"stop": ["a", "b"]}, {}).stop == ("a", "b")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_tokens": 3}, "max_tokens: unknown option; expected max_new_tokens, greedy"),
        ({"max_new_tokens": 0}, "max_new_tokens: 0; expected a whole number from 1"),
        ({"num_draft_tokens": 0}, "num_draft_tokens: 0; expected a whole number from 1 to 64, or 'auto'"),
        ({"speculation": "no"}, "speculation: 'no'; expected true or false"),
        ({"prefill_chunk": 2.5}, "prefill_chunk: 2.5; expected a whole number from 1"),
        ({"top_p": 7.0}, "top_p: 7.0"),
        ({"stop": [1]}, "stop: [1]; expected text or a list of texts"),
        ({"hooks": max}, "hooks: <built-in function max>; expected a list of functions"),
    ],
)
def test_options_are_refused(options: dict[str, object], message: str):
    with pytest.raises(RequestError) as caught:
        read_request(options, {})
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("limit", "tokens", "room"), [(None, 10, 50), (None, 90, 10), (None, 99, 1), (7, 10, 7), (90, 10, 90)]
)
def test_room(limit: int | None, tokens: int, room: int):
    assert read_request({"max_new_tokens": limit}, {}).room(tokens, positions=100, usual=50) == room


@pytest.mark.parametrize(
    ("limit", "tokens", "message"),
    [
        (None, 100, "context: a prompt of 100 tokens, which leaves no room for an answer; the model has 100 positions\n"
         "  -> shorten the prompt"),
        (91, 10, "context: a prompt of 10 tokens and 91 new ones; the model has 100 positions\n"
         "  -> shorten the prompt or ask for fewer new tokens"),
        (1, 0, "prompt: an empty prompt; expected at least one token\n  -> give text or token ids"),
    ],
)  # fmt: skip
def test_no_room(limit: int | None, tokens: int, message: str):
    with pytest.raises(RequestError) as caught:
        read_request({"max_new_tokens": limit}, {}).room(tokens, positions=100, usual=50)
    assert str(caught.value) == message
