"""Prompts: several scripts, both sides of the window, the package's own tokenizer, one BOS."""

import shutil
import unicodedata
from pathlib import Path

from cabochon.parity.prompts import prompts

TINY = Path(__file__).parent / "data" / "tiny" / "text"
MINIATURE = Path(__file__).parents[1] / "src" / "cabochon" / "demo" / "miniature" / "target"


def test_scripts_emoji_and_code_are_among_them() -> None:
    asked = prompts(TINY, vocabulary=512, window=8, first_id=2)
    text = "".join(p.text or "" for p in asked)
    names = {unicodedata.name(c, "").partition(" ")[0] for c in text}
    assert {"LATIN", "CYRILLIC", "ARABIC", "DEVANAGARI", "CJK", "HIRAGANA"} <= names
    assert {"\u200d", "\N{ROCKET}", "\N{EMOJI MODIFIER FITZPATRICK TYPE-4}"} <= set(text)
    assert "\n    " in text
    assert "\t" in text
    assert sum(p.generates for p in asked) >= 8
    assert len({p.name for p in asked}) == len(asked)
    assert len({p.ids for p in asked}) == len(asked)


def test_lengths_stand_around_the_window() -> None:
    for package, vocabulary, window in ((TINY, 512, 8), (MINIATURE, 2048, 32)):
        asked = {p.name: p for p in prompts(package, vocabulary=vocabulary, window=window, first_id=2)}
        lengths = [len(asked[name].ids) for name in ("window -1", "window", "window +1", "beyond the window")]
        assert lengths == [window - 1, window, window + 1, 2 * window + 3]
        assert asked["window +1"].ids == asked["beyond the window"].ids[: window + 1]


def test_each_text_begins_with_one_bos_and_reads_back() -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(MINIATURE / "tokenizer.json"))
    for p in prompts(MINIATURE, vocabulary=2048, window=32, first_id=2):
        if p.name != "drawn ids":
            assert p.ids[0] == 2, p.name
            assert p.ids.count(2) == 1, p.name
        if p.name in ("russian", "hindi", "emoji", "code"):
            assert tokenizer.decode(p.ids[1:], skip_special_tokens=False) == p.text


def test_without_a_tokenizer_ids_are_drawn_and_described_as_ids(tmp_path: Path) -> None:
    asked = prompts(tmp_path, vocabulary=512, window=8, first_id=2)
    assert [p.name for p in asked] == ["drawn ids", "window -1", "window", "window +1", "beyond the window"]
    for p in asked:
        assert p.described()["ids"] == list(p.ids)
        assert all(0 <= i < 512 for i in p.ids)
    assert asked == prompts(tmp_path, vocabulary=512, window=8, first_id=2)


def test_only_the_package_is_read(tmp_path: Path) -> None:
    shutil.copy(TINY / "tokenizer.json", tmp_path)
    copied = prompts(tmp_path, vocabulary=512, window=8, first_id=2)
    assert copied == prompts(TINY, vocabulary=512, window=8, first_id=2)
