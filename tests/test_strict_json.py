import pytest

from cabochon.strict_json import parse_object

WRONG = {
    b"": "not JSON: Expecting value at line 1, column 1",
    b"[]": "the top is a list",
    b"3": "the top is a int",
    b'{"a": 1,}': "not JSON",
    b'{"a": {"b": 1, "b": 2}}': "the key 'b' is given twice",
    b'{"a": Infinity}': "not JSON: the value Infinity",
    b'{"a": "\xff"}': "not UTF-8 text: byte 7",
    b'{"a":' * 50_000: "nested too deeply",
}


@pytest.mark.parametrize("text", WRONG, ids=WRONG.values())
def test_what_is_not_strict_json_is_refused(text):
    with pytest.raises(ValueError, match=r"not |the top|given twice|nested") as caught:
        parse_object(text)
    assert WRONG[text] in str(caught.value)


def test_an_object_is_read_in_order():
    assert list(parse_object('{"b": [1, 2.5, null], "ä": true}  '.encode())) == ["b", "ä"]
