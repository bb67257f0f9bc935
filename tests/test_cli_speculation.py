"""run and chat with a pair: the same answer, and what was guessed ahead."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import cabochon.runtime as runtime
from pairs import Pairs
from test_cli import call, succeed

ASKED = ("--prompt", "And it came to pass", "--max-new-tokens", "24", "--greedy", "--threads", "1")


@pytest.fixture
def pair(pairs: Pairs) -> Path:
    return pairs("miniature")


def test_run_says_what_was_guessed(pair: Path):
    done = call("run", pair, *ASKED, "--num-draft-tokens", "4")
    assert done.returncode == 0
    assert " proposed by drafter accepted (" in done.stderr
    plain = call("run", pair, *ASKED, "--no-speculation")
    assert plain.stdout == done.stdout
    assert "proposed" not in plain.stderr


@pytest.mark.parametrize(
    "options", [("--num-draft-tokens", "3"), ("--proposer", "prompt-lookup"), ("--speculation",)]
)
def test_run_as_json(pair: Path, options: tuple[str, ...]):
    said, plain = (
        json.loads(succeed("run", pair, *ASKED, "--json", *o)) for o in (options, ("--no-speculation",))
    )
    assert said["ids"] == plain["ids"]
    did = said["speculation"]
    assert did["proposed"] == did["accepted"] + did["rejected"] > 0
    assert did["proposer"] == ("prompt-lookup" if "prompt-lookup" in options else "drafter")
    assert plain["speculation"] is None and said["remarks"] == []


def test_a_warning_where_nothing_was_accepted(pair: Path, monkeypatch: pytest.MonkeyPatch):
    class Wrong:
        name, reads_hidden = "drafter", False

        def propose(self, state: Any, ids: Any, hidden: Any, count: int, guess: Any) -> list[int]:
            return [3] * count  # <unk>, which no answer holds

    real = runtime.load
    monkeypatch.setattr(runtime, "load", lambda package, **how: real(package, **how | {"proposer": Wrong()}))
    done = call("run", pair, *ASKED, "--num-draft-tokens", "4")
    said = re.search(
        r"^cabochon: speculation: 0 of (\d+) proposed tokens were accepted; (.+)$", done.stderr, re.M
    )
    assert said is not None and int(said[1]) >= 16
    assert said[2] == "is this the drafter of this target?" and done.returncode == 0
    monkeypatch.undo()
    assert done.stdout == succeed("run", pair, *ASKED, "--no-speculation")


def test_chat_says_what_was_guessed(pair: Path):
    done = call("chat", pair, "--greedy", "--max-new-tokens", "12", "--threads", "1", input="Hello\nAgain\n")
    assert done.returncode == 0
    assert done.stderr.count("proposed by drafter accepted") == 2


def test_a_target_alone_guesses_by_lookup(pair: Path):
    lookup = call("run", pair / "target", *ASKED, "--proposer", "prompt-lookup")
    assert lookup.stdout == succeed("run", pair / "target", *ASKED)
    assert "proposed by prompt-lookup" in lookup.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--num-draft-tokens", "many"),
            "num_draft_tokens: 'many'; expected a whole number from 1 to 64, or 'auto'",
        ),
        (("--num-draft-tokens", "0"), "num_draft_tokens: 0; expected a whole number from 1 to 64, or 'auto'"),
        (("--proposer", "oracle"), "proposer: 'oracle'; expected 'prompt-lookup' or an object"),
    ],
)
def test_options_are_refused(pair: Path, options: tuple[str, ...], message: str):
    done = call("run", pair, *ASKED, *options)
    assert done.returncode in (1, 2)
    assert message in done.stderr


def test_speculation_without_a_proposer_is_refused(pair: Path):
    done = call("run", pair / "target", *ASKED, "--speculation")
    assert done.returncode in (1, 2)
    assert "speculation: nobody is there to propose tokens" in done.stderr


def test_bench_of_a_pair(pairs: Pairs) -> None:
    pair = pairs("miniature", "default", "f32")
    asked = (
        "bench",
        pair,
        "--rounds",
        "1",
        "--max-new-tokens",
        "12",
        "--prefill-tokens",
        "16",
        "--threads",
        "1",
    )
    found = json.loads(succeed(*asked, "--json"))
    assert found["same"] is True and found["speculation"]["proposed"] > 0
    said = succeed(*asked)
    assert "prefill of 16 tokens" in said and "the same tokens" in said and "drafts accepted" in said
