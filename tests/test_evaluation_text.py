"""The text: what is read, what is refused, where it is cut."""

import hashlib
from pathlib import Path

import pytest

from cabochon.errors import RequestError
from cabochon.evaluation.text import cut, read_text


def test_a_file_is_read_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "t.txt"
    file.write_bytes("a\r\nß".encode())
    text = read_text(file)
    assert (text.content, text.name) == ("a\r\nß", "t.txt")
    assert text.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    given = read_text("a\r\nß")
    assert (given.content, given.name, given.sha256) == ("a\r\nß", None, text.sha256)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (None, "cannot be read: No such file or directory; expected a file of text"),
        (b"", "empty; expected a text"),
        (b"gr\xfc\xdfe", "byte 2 is 0xfc, which is no UTF-8; expected text"),
    ],
)
def test_what_is_no_text_is_refused(tmp_path: Path, data: bytes | None, said: str) -> None:
    file = tmp_path / "t.txt"
    if data is not None:
        file.write_bytes(data)
    with pytest.raises(RequestError) as refused:
        read_text(file)
    assert (refused.value.message, refused.value.at) == (said, str(file))
    assert "UTF-8 text of at least two tokens" in refused.value.remedy


def test_half_a_character_is_no_text() -> None:
    with pytest.raises(RequestError, match="byte 1 is 0xed, which is no UTF-8"):
        read_text("a\udcff")


@pytest.mark.parametrize(
    ("tokens", "size", "bos", "limit", "windows", "left_out"),
    [
        (7, 3, 99, None, [[99, 0, 1, 2], [99, 3, 4, 5]], 1),
        (7, 3, 99, 1, [[99, 0, 1, 2]], 4),
        (6, 3, 99, 5, [[99, 0, 1, 2], [99, 3, 4, 5]], 0),
        (2, 3, 99, None, [[99, 0, 1]], 0),
        (2, 1, 99, None, [[99, 0], [99, 1]], 0),
        (7, 2, None, None, [[0, 1, 2], [3, 4, 5]], 1),
        (2, 5, None, None, [[0, 1]], 0),
    ],
)
def test_windows(
    tokens: int, size: int, bos: int | None, limit: int | None, windows: list[list[int]], left_out: int
) -> None:
    found = cut(range(tokens), size, bos, limit, "t.txt")
    assert (found.ids, found.left_out) == (windows, left_out)
    assert found.scored == sum(len(window) - 1 for window in windows)


@pytest.mark.parametrize(("count", "said"), [(0, "0 tokens"), (1, "1 token")])
def test_one_token_is_no_text(count: int, said: str) -> None:
    with pytest.raises(RequestError) as refused:
        cut([5] * count, 3, 99, None, "t.txt")
    assert (refused.value.message, refused.value.at) == (f"{said}; expected at least two", "t.txt")
