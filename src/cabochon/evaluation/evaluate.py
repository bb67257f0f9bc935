"""`evaluate`: one or two packages over a text, side by side, a few tokens at a time."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cabochon.errors import RequestError
from cabochon.evaluation.figures import Evaluation, Figures, Place, divergence
from cabochon.evaluation.scores import Scores, scores
from cabochon.evaluation.side import Side, require_alike
from cabochon.evaluation.text import WINDOW, Windows, cut, read_text
from cabochon.evaluation.weights import weigh

__all__ = ["evaluate"]

BEFORE = 12  # tokens that are shown before the worst one


def evaluate(
    package: str | Path,
    text: str | Path,
    *,
    against: str | Path | None = None,
    window: int = WINDOW,
    limit: int | None = None,
    threads: int | None = None,
    provider: str | None = None,
    provider_options: Mapping[str, Any] | None = None,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> Evaluation:
    """Perplexity of a package over a text, and what divides it from the package `against`.

    `text` is the text itself, or as a Path the file that holds it. It is one stream of tokens, cut into windows of
    `window` tokens, each behind <bos> and all of them scored; the first `limit` windows are. Text, full packages and
    the targets of pairs all are asked for text alone; control tokens written in the text are letters. `threads`,
    `provider` and `provider_options` are those of `load`, for both packages. `progress` is told the number of windows
    done and of all.

    Memory is that of the packages and of a few logits: they are scored as they come. Raises RequestError for a text of
    fewer than two tokens, for packages of different vocabularies and for windows that are longer than the model's
    positions; PackageError for what cannot be loaded, for a drafter, and where logits are NaN or infinite.
    """
    if window < 1 or (limit is not None and limit < 1):
        raise RequestError(
            f"a window of {window} tokens, {'all' if limit is None else limit} windows; expected at least one of each",
            at="window" if window < 1 else "limit",
            remedy="give a positive number or leave it out",
        )
    said = read_text(text)
    packages = [Path(one) for one in (package, against) if one is not None]
    sides = [
        Side(one, threads=threads, provider=provider, provider_options=provider_options) for one in packages
    ]
    first, *others = sides
    for other in others:
        require_alike(first, other, said.content)
    bos = first.tokens.bos
    windows = cut(first.tokens.text(said.content), window, bos, limit, said.at)
    for side in sides:
        side.require_room(max(map(len, windows.ids)) - 1)
    found = _scored(sides, windows, progress)
    measured = Evaluation(
        text=said,
        window=window,
        windows=len(windows.ids),
        bos=bos is not None,
        scored=windows.scored,
        left_out=windows.left_out,
        package=_figures(first, found.losses),
    )
    if not others:
        return measured
    apart = divergence(found, _worst(first, windows, found))
    return replace(measured, against=_figures(others[0], found.reference), divergence=apart)


def _scored(sides: Sequence[Side], windows: Windows, progress: Callable[[int, int], None]) -> Scores:
    chunk = min(side.chunk for side in sides)
    parts = list[Scores]()
    for n, window in enumerate(windows.ids):
        came, done = np.asarray(window[1:]), 0
        for given in zip(*(side.logits(window, n + 1, chunk) for side in sides), strict=True):
            count = len(given[0])
            parts.append(scores(given[0], came[done : done + count], *given[1:]))
            done += count
        progress(n + 1, len(windows.ids))
    return Scores.joined(parts)


def _figures(side: Side, losses: np.ndarray) -> Figures:
    session = side.model.session
    contract = session.ports.contract
    return Figures(
        side.path,
        contract.target,
        contract.precision,
        session.provider,
        weigh(side.path),
        float(losses.mean()),
    )


def _worst(side: Side, windows: Windows, found: Scores) -> Place:
    """Where the two diverge most. All windows but a lone one are of one length."""
    at = int(found.divergence.argmax())
    number, position = divmod(at, len(windows.ids[0]) - 1)
    ids = windows.ids[number]
    before = ids[max(0, position + 1 - BEFORE) : position + 1]
    return Place(
        divergence=float(found.divergence[at]),
        window=number + 1,
        position=position + 1,
        before=side.tokens.decode(before),
        token=side.tokens.decode([ids[position + 1]]),
    )
