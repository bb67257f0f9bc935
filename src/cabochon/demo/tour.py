"""Build, check, run."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cabochon import sums
from cabochon.demo.account import Account, Check, Sample
from cabochon.evaluation import evaluate
from cabochon.package import Built, build
from cabochon.runtime import Model, load

__all__ = ["MINIATURE", "demo"]

MINIATURE = Path(__file__).parent / "miniature"
VARIANTS = (("default", "f32"), ("onnx-standard", "f32"), ("default", "f16"))

# What transformers 5.24.0 answers in f32 on the same checkpoint.
OPENING = "And it came to pass"
GREEDY = (292, 418, 292, 861, 292, 378, 535, 287, 363, 1041, 597, 292, 387, 512, 292, 950)
WINDOWS = 4  # the first of heldout.txt, which the miniature never saw
PERPLEXITY, TOLERANCE = 9.6488, 0.005

SAMPLING: dict[str, Any] = dict(temperature=0.7, top_k=64, top_p=0.95, max_new_tokens=48)
PROMPTS: tuple[tuple[str | list[dict[str, str]], int], ...] = (
    (OPENING, 0),
    ("Genesis 1\n1 In the beginning God", 1),
    ([{"role": "user", "content": "Hello"}], 0),
)


def demo(out: Path) -> Account:
    """Build the miniature for two targets and two precisions under `out`, check the packages, and run the first.

    The checks compare with recorded answers of transformers. Raises PackageError where `out` cannot be written.
    """
    built = [build(MINIATURE / "target", out / f"{t}-{p}", target=t, precision=p) for t, p in VARIANTS]
    models = [load(package.path, threads=1) for package in built]
    return Account(tuple(built), tuple(_checks(built, models)), tuple(_samples(models[0])))


def _checks(built: Sequence[Built], models: Sequence[Model]) -> Iterator[Check]:
    for package, model in zip(built, models, strict=True):
        name = f"{package.target} {package.precision}"
        damaged = sums.verify(package.path)
        yield Check(
            f"{name}: every file has the checksum it was written with",
            ", ".join(damaged) or "all",
            not damaged,
        )
        ids = model.generate(OPENING, greedy=True, max_new_tokens=len(GREEDY), ignore_eos=True).ids
        same = sum(a == b for a, b in zip(ids, GREEDY, strict=True))
        yield Check(
            f"{name}: greedy tokens are the reference's", f"{same} of {len(GREEDY)}", same == len(GREEDY)
        )
        found = evaluate(package.path, MINIATURE / "heldout.txt", limit=WINDOWS, threads=1)
        close = abs(found.package.perplexity - PERPLEXITY) <= TOLERANCE
        yield Check(
            f"{name}: perplexity of unseen text is {PERPLEXITY}", f"{found.package.perplexity:.4f}", close
        )


def _samples(model: Model) -> Iterator[Sample]:
    for prompt, seed in PROMPTS:
        answer = model.generate(prompt, seed=seed, **SAMPLING)
        asked = prompt if isinstance(prompt, str) else prompt[-1]["content"]
        yield Sample(asked, answer.text, answer.timings.tokens_per_second)
