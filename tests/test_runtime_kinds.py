"""Values from outside: what is taken, as what, and what is refused."""

from typing import Any

import numpy as np
import pytest

from cabochon.errors import PackageError, RequestError
from cabochon.runtime.kinds import KINDS, checked, read


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("max_new_tokens", np.int64(3), 3),
        ("top_k", 50.0, 50),
        ("top_k", 0, 0),
        ("temperature", 0, 0.0),
        ("temperature", np.float32(0.5), 0.5),
        ("top_p", 1, 1.0),
        ("do_sample", np.True_, True),
        ("stop", "END", ("END",)),
        ("stop", ["a", "b"], ("a", "b")),
        ("hooks", [max], (max,)),
        ("num_draft_tokens", 4.0, 4),
        ("num_draft_tokens", "auto", "auto"),
        ("proposer", "prompt-lookup", "prompt-lookup"),
        ("eos_token_id", 1, (1,)),
        ("eos_token_id", [1, 106], (1, 106)),
        ("chat_template", "x", "x"),
        ("chat_template", [{"name": "default", "template": "x"}, {"name": "rag", "template": "y"}], "x"),
        ("chat_template", [{"name": "rag", "template": "y"}], None),
    ],
)
def test_what_is_taken(name: str, value: Any, expected: Any):
    found = read(name, value)
    assert found == expected
    assert type(found) is type(expected)


def test_an_error_holds_no_file():
    """A picture's bytes in the place of a list of pictures."""
    with pytest.raises(RequestError, match="expected a list of images") as caught:
        read("images", bytes(1 << 20))
    assert len(str(caught.value)) < 500


NO_NUMBERS = ("hot", "1", True, [1], float("nan"), float("inf"), 10**400, 1j)
REFUSED = [
    *((name, value) for name in ("temperature", "top_p", "min_p", "repetition_penalty") for value in NO_NUMBERS),
    *((name, value) for name in ("max_new_tokens", "top_k", "seed", "keep", "chunk") for value in (*NO_NUMBERS, 1.5)),
    *(("temperature", value) for value in (-1.0, -1e-9)),
    *(("top_p", value) for value in (0.0, 1.1)),
    *(("min_p", value) for value in (-0.1, 2.0)),
    ("repetition_penalty", 0.0),
    *((name, -1) for name in ("top_k", "seed", "keep", "bos_token_id", "eos_token_id")),
    *((name, 0) for name in ("max_new_tokens", "chunk", "prefill_chunk", "threads", "num_attention_heads")),
    ("threads", 1025),
    *(("num_draft_tokens", value) for value in (0, 65, 1.5, "4", "all", True)),
    *(("proposer", value) for value in ("drafter", 5, object())),
    *((name, value) for name in ("greedy", "ignore_eos", "parse_special", "do_sample") for value in (1, "no")),
    *(("speculation", value) for value in (1, "no")),
    *(("stop", value) for value in ([1], 5, b"e", {"a": 1})),
    *(("hooks", value) for value in (max, [1], "x")),
    *(("eos_token_id", value) for value in ([[1]], "1", True)),
    *(("chat_template", value) for value in (5, ["x"], [{"name": "default"}], [{"template": "x"}])),
    *((name, value) for name in ("template", "session_options", "text_config") for value in (5, "x", [1])),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), REFUSED)
def test_what_is_refused(name: str, value: Any):
    with pytest.raises(RequestError) as caught:
        read(name, value)
    found = repr(value) if len(repr(value)) <= 200 else f"{repr(value)[:200]}..."
    assert (caught.value.at, caught.value.message) == (name, f"{found}; expected {KINDS[name].expected}")


def test_a_files_entry_is_an_error_of_the_package():
    with pytest.raises(
        PackageError, match=r"^generation_config\.json: seed: 1\.5; expected a whole number from 0\n"
    ):
        checked({"seed": 1.5}, ["seed"], "generation_config.json")


def test_others_and_none_are_left_alone():
    values = {"seed": None, "temperature": "read by nobody", "top_k": 3.0}
    assert checked(values, ["seed", "top_k", "top_p"]) == {**values, "top_k": 3}
