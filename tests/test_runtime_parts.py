"""Parts of messages: what each shows, and what is left for the template."""

from typing import Any

import pytest

from cabochon.errors import RequestError
from cabochon.runtime.parts import check, separated

TEXT = {"type": "text", "text": "x"}


def test_media_are_taken_out_and_their_places_kept():
    messages = [
        {"role": "system", "content": "s"},
        {
            "role": "user",
            "content": [{"type": "image", "path": "a.png"}, TEXT, {"type": "audio", "url": "b.wav"}],
        },
        {"role": "assistant", "content": None},
        {"role": "user", "content": ({"type": "image", "image": 5},), "name": "n"},
    ]
    apart, taken = separated(messages, {})
    assert taken == {"image": ["a.png", 5], "audio": ["b.wav"]}
    assert apart[1]["content"] == [{"type": "image"}, TEXT, {"type": "audio"}]
    assert apart[3] == {"role": "user", "content": [{"type": "image"}], "name": "n"}
    assert (apart[0], apart[2]) == (messages[0], messages[2])
    assert messages[1]["content"][0] == {"type": "image", "path": "a.png"}


def test_what_is_given_fills_parts_in_order():
    messages = [
        {"role": "user", "content": [{"type": "image"}, {"type": "image", "image": 2}, {"type": "image"}]}
    ]
    assert separated(messages, {"image": [1, 3], "audio": []})[1] == {"image": [1, 2, 3]}
    with pytest.raises(RequestError, match="3 of kind image and 2 parts that ask for one"):
        separated(messages, {"image": [1, 3, 4]})
    with pytest.raises(
        RequestError, match=r"messages\[0\]\.content\[2\]: {'type': 'image'}; expected one of"
    ):
        separated(messages, {"image": [1]})


@pytest.mark.parametrize(
    ("content", "kinds", "message"),
    [
        ([{"type": "image"}], (), "this package takes parts of type 'text' only"),
        ([{"type": "audio"}], ("image",), "this package takes parts of type 'text', 'image'"),
        ([{"type": "text"}], ("image",), "part {'type': 'text'}"),
        (["x"], ("image",), "part 'x'"),
        ([{"type": "image", "image": "x" * 999}], (), "xxx...; this package"),
    ],
)
def test_other_parts_are_refused(content: Any, kinds: Any, message: str):
    with pytest.raises(RequestError) as caught:
        check({"role": "user", "content": content}, "messages[0]", kinds)
    assert message in str(caught.value) and len(str(caught.value)) < 500
    check({"role": "user", "content": [TEXT, {"type": "image"}]}, "messages[0]", ("image",))
