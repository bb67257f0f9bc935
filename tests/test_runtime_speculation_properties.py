"""Greedy answers over many prompts, lengths, windows kept and proposers; sampled answers against their distribution."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cabochon
from cabochon.runtime import Eviction, Model, Output, PromptLookup, State
from cabochon.runtime.draft_length import Fixed
from cabochon.runtime.generation import Row
from cabochon.runtime.proposers import Guess, Proposer
from cabochon.runtime.sampling import Sampling, candidates
from cabochon.runtime.speculation import speculate
from checkpoints import copy, write_config
from packages import MINIATURE
from pairs import Pairs
from speculating import Foreseeing, plainly, row, speculatively

WINDOW = 8
CASES = 520
PER_BATCH = 40


@pytest.mark.parametrize("seed", range(CASES // PER_BATCH))
def test_greedy_equals_plain(pairs: Pairs, seed: int):
    """40 prompts of 1 to 32 tokens: plain decoding answers them together, speculation one by one."""
    model = pairs.model("tiny-dense" if seed % 2 else "tiny", "cuda" if seed % 4 == 3 else "default")
    equals_plain(model, np.random.default_rng(seed), WINDOW, PER_BATCH)


@pytest.mark.parametrize("target", ["default", "cuda"])
@pytest.mark.parametrize("window", [2, 5, 21])
def test_greedy_equals_plain_in_other_windows(tmp_path: Path, window: int, target: str):
    """The same weights seen through another window, by the target and, one key further, by its drafter."""
    source, assistant = copy(tmp_path / "t", "text", sliding_window=window), copy(tmp_path / "a", "assistant")
    raw = json.loads((assistant / "config.json").read_text())
    raw["text_config"]["sliding_window"] = window
    write_config(assistant, raw)
    how: dict[str, Any] = {"assistant": assistant, "target": target, "precision": "f32", "license": "mit"}
    model = cabochon.load(cabochon.build(source, tmp_path / "pair", **how).path, threads=1, provider="cpu")
    assert model.session.ports.contract.window == window
    equals_plain(model, np.random.default_rng(window), window, rows=16)


def equals_plain(model: Model, random: np.random.Generator, window: int, rows: int) -> None:
    """So many random prompts, lengths, draft lengths, proposers, chunks and numbers of entries kept."""
    prompts = [random.integers(24, 512, random.integers(1, 33)).tolist() for _ in range(rows)]
    limits = random.integers(2, 9, rows).tolist()
    plain = model.generate(prompts, max_new_tokens=8, greedy=True, ignore_eos=True)
    texts = [answer.prompt_ids + answer.ids for answer in plain]
    proposers = [model.proposer, PromptLookup(), *(Foreseeing(texts, right) for right in (0.3, 0.8))]
    for n, (prompt, limit, answer) in enumerate(zip(prompts, limits, plain, strict=True)):
        count = int(random.integers(1, 8))
        kept = Eviction(window, int(random.integers(0, 12)), int(random.integers(0, 6)))
        chunk = int(random.choice([3, 7, 512]))
        proposer = proposers[int(random.choice(4, p=[0.4, 0.1, 0.2, 0.3]))]
        said = speculatively(model.session, row(prompt, limit), proposer, count, kept, chunk=chunk)
        assert said == answer.ids[:limit], (n, prompt, limit, count, kept, chunk, proposer.name)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    prompt=st.lists(st.integers(24, 511), min_size=1, max_size=24),
    limit=st.integers(1, 10),
    count=st.integers(1, 7),
    right=st.floats(0, 1),
    reserve=st.integers(0, 9),
    penalty=st.sampled_from([1.0, 1.2]),
    greedy=st.booleans(),
    end=st.integers(0, 9),
)
def test_any_request_equals_plain(
    pairs: Pairs, prompt: list[int], limit: int, count: int, right: float, reserve: int, penalty: float,
    greedy: bool, end: int,
):  # fmt: skip
    """Drawn tokens too, since a seed's noise belongs to places and not to steps; with an end within the answer."""
    session = pairs.model().session
    how = Sampling(greedy=greedy, temperature=0.8, top_k=20, repetition_penalty=penalty, seed=3)
    endless = plainly(session, row(prompt, limit, how))
    eos = frozenset(endless[end : end + 1])
    plain = plainly(session, row(prompt, limit, how, eos=eos))
    one = row(prompt, limit, how, eos=eos)
    proposer = Foreseeing([prompt + endless], right)
    assert speculatively(session, one, proposer, count, Eviction(WINDOW, reserve, 3)) == plain
    assert one.finish_reason == ("eos" if plain[-1] in eos else "length")


TABLE = np.log([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.05, 0.15, 0.8]])
Q = np.log([[0.2, 0.7, 0.1], [0.3, 0.3, 0.4], [0.1, 0.6, 0.3]])  # a drafter that is wrong about it
SAMPLES, LENGTH = 2000, 3
CRITICAL = {26: 54.05, 2: 13.82}  # chi-square at 0.001


class Chain:
    """A model of three tokens whose next depends on the last: what a state is to a round, and nothing more."""

    class Session:
        class Ports:
            dtype = np.dtype(np.float64)

        ports = Ports()

    session = Session()

    def __init__(self) -> None:
        self.ids = list[int]()

    @property
    def length(self) -> int:
        return len(self.ids)

    def feed(self, ids: Sequence[int], *, hidden: bool = False) -> Output:
        return self.step([ids], hidden=hidden)

    def step(self, ids: Any, *, keep: int = 1, hidden: bool = False) -> Output:
        self.ids += ids[0]
        return Output(TABLE[ids[0]][None], np.zeros((1, len(ids[0]), 1)))

    def rewind(self, position: int) -> None:
        del self.ids[position:]


class Drawing:
    """Proposes from another distribution than the model's, with the noise it is given or with one of its own."""

    name, reads_hidden = "drawing", True

    def __init__(self, table: np.ndarray, pick: Callable[[Guess, int, np.ndarray], int]) -> None:
        self.table, self.pick = table, pick

    def propose(self, state: Any, ids: Sequence[int], hidden: Any, count: int, guess: Guess) -> Sequence[int]:
        drafts = list(ids[-1:])
        for ahead in range(count):
            drafts.append(self.pick(guess, ahead, self.table[drafts[-1]]))
        return drafts[1:]


def shared(guess: Guess, ahead: int, logits: np.ndarray) -> int:
    return guess(ahead, logits)


def likeliest(guess: Guess, ahead: int, logits: np.ndarray) -> int:
    return int(logits.argmax())


def own_noise(guess: Guess, ahead: int, logits: np.ndarray) -> int:
    return int(np.random.default_rng().choice(3, p=np.exp(logits)))


def statistic(counts: np.ndarray, expected: np.ndarray) -> float:
    return float(((counts - expected) ** 2 / expected).sum())


def chain_expected() -> np.ndarray:
    """Probability of each (first, second, third) behind token 0."""
    p = np.exp(TABLE)
    return np.einsum("a,ab,bc->abc", p[0], p, p).reshape(-1)


def drawn(proposer: Proposer) -> tuple[np.ndarray, int]:
    """Counts of the answers of 3 tokens, and how many proposals were accepted."""
    counts, accepted = np.zeros(27), 0
    for seed in range(SAMPLES):
        one: Row = row([0], LENGTH, Sampling(greedy=False, seed=seed))
        state: Any = Chain()
        list(speculate(state, one, proposer, Fixed(3)))
        counts[9 * one.ids[0] + 3 * one.ids[1] + one.ids[2]] += 1
        accepted += one.tally.figures(LENGTH).accepted
    return counts, accepted


FIXED = np.log(np.array([[1, 1, 8]] * 3) / 10)  # whatever came before


@pytest.mark.parametrize(
    ("table", "pick"),
    [(TABLE, shared), (Q, shared), (FIXED, shared), (Q, likeliest), (Q, own_noise)],
    ids=["right", "wrong", "fixed", "likeliest", "own noise"],
)
def test_sampled_answers_follow_the_models_distribution(table: np.ndarray, pick: Any):
    """Chi-square against the exact distribution, with drafters good and bad."""
    counts, accepted = drawn(Drawing(table, pick))
    assert counts.sum() == SAMPLES
    assert statistic(counts, SAMPLES * chain_expected()) < CRITICAL[26]
    if pick is shared and table is TABLE:
        assert accepted == SAMPLES  # of two tokens behind the first, one is proposed and one comes with it


def test_always_wrong_proposals_leave_the_distribution():
    class Wrong:
        name, reads_hidden = "wrong", False

        def propose(self, state: Any, ids: Any, hidden: Any, count: int, guess: Guess) -> Sequence[int]:
            return [(guess(0, TABLE[ids[-1]]) + 1) % 3] * count

    counts, accepted = drawn(Wrong())
    assert accepted == 0
    assert statistic(counts, SAMPLES * chain_expected()) < CRITICAL[26]


def test_the_test_finds_a_biased_rule():
    """Likeliest drafts judged as if they had been drawn, by min(1, p/q) and the rest of p over q, are not p."""
    random, counts = np.random.default_rng(5), np.zeros(3)
    p, q = np.exp(TABLE[0]), np.exp(Q[0])
    draft, rest = int(q.argmax()), np.maximum(p - q, 0)
    for _ in range(SAMPLES):
        keep = random.random() < min(1.0, p[draft] / q[draft])
        counts[draft if keep else random.choice(3, p=rest / rest.sum())] += 1
    assert statistic(counts, SAMPLES * p) > CRITICAL[2]


def test_sampled_answers_of_the_miniature(pairs: Pairs):
    """Chi-square of three tokens against probabilities that come from one pass over each beginning."""
    model: Model = pairs.model("miniature")
    how = Sampling(greedy=False, temperature=1.0, top_k=3)
    prompt = model.prompt_ids((MINIATURE / "heldout.txt").read_text()[2000:2120])
    expected = {
        (a, b, c): pa * pb * pc
        for a, pa in following(model, prompt, how)
        for b, pb in following(model, [*prompt, a], how)
        for c, pc in following(model, [*prompt, a, b], how)
    }
    counts, accepted, samples = dict.fromkeys(expected, 0), 0, 300
    for seed in range(samples):
        said = model.generate(
            prompt,
            max_new_tokens=3,
            temperature=1.0,
            top_k=3,
            top_p=1.0,
            seed=seed,
            num_draft_tokens=2,
            ignore_eos=True,
        )
        counts[tuple(said.ids)] += 1
        accepted += said.speculation.accepted
    kinds = sorted(expected, key=lambda k: -expected[k])
    common = [k for k in kinds if expected[k] * samples >= 5]
    found = [counts[k] for k in common] + [samples - sum(counts[k] for k in common)]
    wanted = [samples * expected[k] for k in common] + [samples * (1 - sum(expected[k] for k in common))]
    degrees = len(found) - 1
    limit = (
        degrees * (1 - 2 / (9 * degrees) + 3.09 * (2 / (9 * degrees)) ** 0.5) ** 3
    )  # Wilson-Hilferty, 0.001
    assert len(common) >= 4
    assert statistic(np.array(found), np.array(wanted)) < limit
    assert 0.1 * samples < accepted < samples


def following(model: Model, ids: list[int], how: Sampling) -> list[tuple[int, float]]:
    tokens, probabilities = candidates(model.forward(ids).logits[-1], how)
    return list(zip(tokens.tolist(), probabilities.tolist(), strict=True))


def test_a_state_is_what_a_chain_stands_for():
    """The stand-in has the methods of a state that a round calls."""
    assert all(hasattr(State, name) for name in ("feed", "step", "rewind", "length"))
