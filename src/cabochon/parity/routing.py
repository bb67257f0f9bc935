"""Where rounding decides which experts a token gets.

A router takes the best of its probabilities. Where the last one taken and the first one left lie closer than rounding
moves them, another expert computes, and that token and those behind it differ by more than rounding. In f32 there is
nothing to say of it: errors are ten thousand times smaller, and packages are held to every position.

Legend: S positions, L layers, E experts.
"""

from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["RULE", "Routes", "firm", "heard", "undecided"]

RULE = (
    "experts: behind the first token of a prompt whose routers do not decide, differences are not judged; at least "
    "half of all positions are within the limits. Not decided: in f32 the last expert taken and the first one left are "
    "closer than four times what rounding moves probabilities by"
)
MARGIN = (
    4  # twice for either of the two probabilities: a package moves them as much as the reference, elsewhere
)


@dataclass(frozen=True)
class Routes:
    """The probabilities f32 [S, L, E] of the routers, and how many experts they take."""

    probabilities: np.ndarray
    taken: int

    @property
    def chosen(self) -> np.ndarray:
        """bool [S, L, E]"""
        least = np.sort(self.probabilities, -1)[..., -self.taken, None]
        return np.asarray(self.probabilities >= least)

    @property
    def gaps(self) -> np.ndarray:
        """How far the last one taken lies above the first one left, in the closest layer.   [S]"""
        ordered = np.sort(self.probabilities, -1)
        if self.taken == ordered.shape[-1]:
            return np.full(len(ordered), np.inf)
        return np.asarray((ordered[..., -self.taken] - ordered[..., -self.taken - 1]).min(-1))


def firm(own: Routes, exact: Routes) -> int:
    """How many tokens from the first on have the same experts in both."""
    same = (own.chosen == exact.chosen).all((1, 2))
    return int(np.argmin(same)) if not same.all() else len(same)


def undecided(own: Mapping[str, Routes], exact: Mapping[str, Routes]) -> dict[str, np.ndarray]:
    """By prompt, bool [S]: true from the first token on whose routers do not decide."""
    moved = max((_moved(own[name], exact[name]) for name in own), default=0.0)
    return {name: np.logical_or.accumulate(routes.gaps < MARGIN * moved) for name, routes in exact.items()}


def _moved(own: Routes, exact: Routes) -> float:
    n = firm(own, exact)
    return float(np.abs(own.probabilities[:n] - exact.probabilities[:n]).max(initial=0.0))


@contextmanager
def heard(model: Any) -> Generator["Heard"]:
    """Listens to the routers of transformers' model during one forward pass."""
    routers = [module for name, module in model.named_modules() if name.endswith(".router")]
    found = Heard(routers[0].config.top_k_experts if routers else 0, [])
    hooks = [router.register_forward_hook(found) for router in routers]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


@dataclass(frozen=True)
class Heard:
    """What the routers said, one layer after the other: [B · S, E] each."""

    taken: int
    said: list[Any]

    def __call__(self, _: Any, __: Any, out: Iterable[Any]) -> None:
        """Called by each router."""
        self.said.append(next(iter(out)))

    def rows(self, torch: Any, count: int) -> list[Any]:
        """[S, L, E] of each of `count` rows; None of a model without experts."""
        if not self.said:
            return [None] * count
        return list(torch.stack(self.said, 1).unflatten(0, (count, -1)))
