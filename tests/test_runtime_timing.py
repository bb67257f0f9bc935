"""How fast a package is: figures that follow from what was generated."""

from typing import Any

import pytest

import cabochon
from cabochon.errors import RequestError
from cabochon.runtime import timing
from cabochon.runtime.timing import time_model
from packages import Packages
from pairs import Pairs


def test_a_package_alone(packages: Packages) -> None:
    model = packages.model("miniature")
    found = time_model(model, "And it came to pass", prefill_tokens=40, new_tokens=6, rounds=2)
    assert (found.prefill_tokens, found.prompt_tokens, found.new_tokens, found.rounds) == (40, 7, 6, 2)
    assert found.prefill > 0 and found.decoding > 0
    assert (found.speculating, found.speculation, found.same, found.speed_up) == (None, None, None, None)
    assert found.provider == "CPUExecutionProvider"


def test_a_pair(pairs: Pairs) -> None:
    model = cabochon.load(pairs("miniature", "default", "f32"), threads=1, provider="cpu")
    found = time_model(model, "And it came to pass", prefill_tokens=8, new_tokens=24, rounds=1)
    assert found.same is True
    assert found.speculation is not None and found.speculation.proposed > 0
    assert found.speed_up == pytest.approx((found.speculating or 0) / found.decoding)


def test_end_tokens_do_not_end_it(packages: Packages) -> None:
    """All tokens are decoded, or rates of short answers would be compared."""
    model = packages.model("miniature")
    model.eos_token_ids, kept = frozenset(range(2048)), model.eos_token_ids
    try:
        assert time_model(model, [2, 5], prefill_tokens=4, new_tokens=5, rounds=1).decoding > 0
    finally:
        model.eos_token_ids = kept


def test_memory_is_the_systems_word(
    packages: Packages, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    (tmp_path / "status").write_text("Name:\tpython\nRssAnon:\t  12 kB\n")
    monkeypatch.setattr(timing, "STATUS", tmp_path / "status")
    assert time_model(packages.model("miniature"), [2], new_tokens=2, rounds=1).anonymous == 12 * 1024
    monkeypatch.setattr(timing, "STATUS", tmp_path / "nowhere")
    assert time_model(packages.model("miniature"), [2], new_tokens=2, rounds=1).anonymous is None


def test_one_token_is_not_decoding(packages: Packages) -> None:
    with pytest.raises(RequestError, match="expected at least 2"):
        time_model(packages.model("miniature"), [2], new_tokens=1)
