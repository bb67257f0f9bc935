"""The texts of placeholders and of what stands around them, from the tokenizer's files."""

import json

import pytest

from cabochon.errors import PackageError
from cabochon.runtime.marks import Marks, read_marks
from cabochon.runtime.tokens import Tokens
from packages import TINY

FOLDER = TINY / "target"
SAID = json.loads((FOLDER / "tokenizer_config.json").read_text())
IDS = {"image": 8, "video": 13, "audio": 11}


def tokens(**changes: str | None) -> Tokens:
    config = {k: v for k, v in {**SAID, **changes}.items() if v is not None}
    return Tokens(FOLDER / "tokenizer.json", config, placeholders=IDS.values())


def test_marks_by_name():
    assert read_marks(IDS, tokens(), {}, "config.json") == {
        "image": Marks("<|image|>", "<|image>", "<image|>"),
        "video": Marks("<|video|>", "<|image>", "<image|>"),
        "audio": Marks("<|audio|>", "<|audio>", "<audio|>"),
    }


def test_marks_by_id_where_no_name_is_given():
    unnamed = tokens(boi_token=None, eoa_token=None)
    marks = read_marks(IDS, unnamed, {"boi_token_id": 7, "eoa_token_id": 12}, "config.json")
    assert (marks["image"].begin, marks["audio"].end) == ("<|image>", "<audio|>")
    with pytest.raises(PackageError, match=r"^config\.json: boi_token_id: None; expected a control token"):
        read_marks(IDS, unnamed, {}, "config.json")


def test_a_placeholder_is_a_control_token_whatever_the_files_say():
    """Published tokenizers have the token of video among the words."""
    words = Tokens(FOLDER / "tokenizer.json", SAID, placeholders=[359])
    (text,) = (t for t, i in words.controls.items() if i == 359)
    assert words.marked_up(text) == [359]
    assert 359 not in words.text(text)
    assert read_marks({"image": 99_999}, words, {}, "") == {}
