"""Speculative decoding of the miniature pair against plain decoding, by turns: tokens a step, and seconds."""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cabochon
from bench.table import Row
from cabochon.demo import MINIATURE
from cabochon.runtime import Generation, Model

PROMPTS, BEGINNING, NEW = 16, 64, 96
GREEDY: dict[str, Any] = {"greedy": True}
DRAWN: dict[str, Any] = {"temperature": 0.7, "top_k": 0, "top_p": 1.0}


@dataclass(frozen=True)
class Way:
    """How tokens are chosen, how many are proposed, and who proposes (None: the drafter)."""

    what: str
    how: dict[str, Any]
    num_draft_tokens: int | str
    proposer: str | None = None


WAYS = (
    Way("greedy, 4 proposals", GREEDY, 4),
    Way("greedy, 6 proposals", GREEDY, 6),
    Way("greedy, `auto`", GREEDY, "auto"),
    Way("greedy, 4 by prompt-lookup", GREEDY, 4, "prompt-lookup"),
    Way("T = 0.7, 4 proposals", DRAWN, 4),
    Way("T = 0.7, `auto`", DRAWN, "auto"),
)


@dataclass
class Sums:
    """Over all answers: steps of the target, rounds by what they kept, seconds, and how many had the same tokens."""

    answers: int = 0
    same: int = 0
    tokens: int = 0
    steps: int = 0
    seconds: float = 0.0
    plain_seconds: float = 0.0
    kept: dict[int, int] = field(default_factory=dict[int, int])

    def add(self, plain: Generation, seconds: float, said: Generation, others: float) -> None:
        """One prompt, answered plainly in `seconds` and speculatively in `others`."""
        assert said.speculation is not None
        self.answers, self.same = self.answers + 1, self.same + (said.ids == plain.ids)
        self.tokens, self.steps = self.tokens + len(said.ids) - 1, self.steps + said.speculation.target_calls
        self.seconds, self.plain_seconds = self.seconds + others, self.plain_seconds + seconds
        for count, rounds in enumerate(said.speculation.accepted_per_round):
            self.kept[count] = self.kept.get(count, 0) + rounds


def pair(work: Path, precision: str) -> Path:
    """The miniature and its drafter, in one package."""
    source, out = MINIATURE / "target", work / f"pair-{precision}"
    return cabochon.build(source, out, assistant=MINIATURE / "assistant", precision=precision).path


def speculation(package: Path, precision: str, repeats: int, ways: Iterable[Way] = WAYS) -> Iterator[Row]:
    """A row for each way, on evenly spaced beginnings of the held-out text, one thread."""
    for way in ways:
        folder = package / "target" if way.proposer else package
        model = cabochon.load(folder, threads=1, provider="cpu", proposer=way.proposer)
        yield _row(way, precision, _measured(model, way, beginnings(model), repeats))


def beginnings(model: Model) -> list[list[int]]:
    """Ids of the prompts; the tokenizer sees all of the text, so that each is a piece of what a model reads."""
    bos, *ids = model.prompt_ids((MINIATURE / "heldout.txt").read_text("utf-8"))
    starts = range(0, len(ids) - BEGINNING, max(1, len(ids) // PROMPTS))
    return [[bos, *ids[start : start + BEGINNING - 1]] for start in starts[:PROMPTS]]


def _measured(model: Model, way: Way, prompts: Sequence[list[int]], repeats: int) -> Sums:
    found = Sums()
    _answer(model, prompts[0], way.how, speculation=False)  # what is made at the first call is not measured
    for seed, prompt in enumerate([*prompts] * repeats):
        how = way.how if way.how.get("greedy") else {**way.how, "seed": seed}
        plain = _answer(model, prompt, how, speculation=False)
        found.add(*plain, *_answer(model, prompt, how, num_draft_tokens=way.num_draft_tokens))
    return found


def _answer(model: Model, prompt: list[int], how: dict[str, Any], **options: Any) -> tuple[Generation, float]:
    """The answer with nothing in the caches, and its seconds, the prompt's among them."""
    model.forget()
    start = time.perf_counter()
    said = model.generate(prompt, max_new_tokens=NEW, ignore_eos=True, **how, **options)
    return said, time.perf_counter() - start


def _row(way: Way, precision: str, found: Sums) -> Row:
    rounds = sum(found.kept.values())
    mean = sum(count * times for count, times in found.kept.items()) / max(rounds, 1)
    histogram = " ".join(str(found.kept.get(count, 0)) for count in range(max(found.kept, default=0) + 1))
    return Row(
        f"speculation, miniature pair {precision}, {way.what}: {found.answers} answers of {NEW} tokens",
        f"{found.tokens / max(found.steps, 1):.2f} tokens a target call, {mean:.2f} kept in a round "
        f"(rounds that kept 0, 1 …: {histogram}), {found.seconds:.2f} s",
        f"plain decoding by turns: {found.plain_seconds:.2f} s",
        f"{found.plain_seconds / found.seconds:.2f} × the speed",
        "the same tokens",
        found.same == found.answers,
    )
