"""Columns of a batch: which are real after a step, which may be dropped, which a kernel would get wrong.

B rows · C columns fed so far · S new ones. A mask is boolean; a column is *real* in a row where it is True.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cabochon.errors import RequestError


@dataclass(frozen=True)
class Eviction:
    """How many real columns a sliding cache keeps, and how many more it gathers before it is copied.

    window - 1 would do for the next token. `reserve` more allow to rewind by as many tokens without recomputing;
    `slack` makes the copy rare.
    """

    window: int
    reserve: int
    slack: int

    @classmethod
    def usual(cls, window: int, drafts: int = 0) -> "Eviction":
        """Room to rewind 16 tokens; a copy after every quarter of a window, or every 16 tokens.

        Where a step may take back `drafts` tokens, two more than these stay: a drafter sees window + 1 keys.
        """
        return cls(window, reserve=max(16, drafts + 2), slack=max(16, window // 4))

    @property
    def keep(self) -> int:
        """Columns that stay."""
        return self.window - 1 + self.reserve

    @property
    def most(self) -> int:
        """The most columns a sliding cache holds between two steps of equal rows."""
        return self.keep + self.slack


def extended(mask: np.ndarray, real: np.ndarray, left_justified: bool) -> np.ndarray:
    """The mask [B, C + S] after feeding S columns of which `real` [B, S] are tokens.

    Raises RequestError where a kernel that takes lengths would silently compute something else.
    """
    if len(real) != len(mask):
        raise RequestError(f"{real.shape[0]} rows fed to a state of {mask.shape[0]}", at="input_ids")
    if not left_justified:
        return np.concatenate([mask, real], 1)
    (rows, columns), new = mask.shape, real.shape[1]
    if rows > 1 and new > 1 and columns:
        raise refused(f"{rows} rows with {new} new tokens each after {columns} columns", "feed row by row")
    if (real[:, 1:] & ~real[:, :-1]).any() or not real[:, 0].all():
        raise refused("a row with a gap or padding in front", "put real tokens first in every row")
    if columns and not real.all():
        raise refused(f"padding behind new tokens after {columns} columns", "feed the real tokens only")
    lengths = mask.sum(1) + real.sum(1)
    return np.arange(columns + new) < lengths[:, None]


def check_kept(keep: int, real: np.ndarray, left_justified: bool) -> None:
    """Raise RequestError where the kernel cannot give the last `keep` positions of rows [B, S]."""
    if not left_justified or keep <= 1:
        return
    rows, columns = real.shape
    if not real.all():
        raise refused(f"the last {keep} logits of rows with padding", "keep 1 or 0 (all), or feed row by row")
    if rows > 1 and keep < columns:
        raise refused(f"the last {keep} logits of {rows} rows", "keep 1 or 0 (all), or feed row by row")


def check_rows(rows: int, taken: int | None) -> None:
    """Raise RequestError where a graph takes another number of rows together than `rows`; None: any."""
    if taken not in (None, rows):
        raise RequestError(
            f"{rows} rows; this package takes {taken} at a time",
            at="input_ids",
            remedy="feed row by row, or convert the package without --stateful",
        )


def evictable(mask: np.ndarray, keep: int) -> int:
    """How many front columns of a sliding cache [B, columns] leave every row its last `keep` real ones."""
    from_here = np.cumsum(mask[:, ::-1], 1)[:, ::-1]
    needed = (mask & (from_here <= keep)).any(0)
    return int(needed.argmax()) if needed.any() else 0


def eviction_limit(lengths: Sequence[int], eviction: Eviction | None, left_justified: bool) -> int | None:
    """The most columns that rows of these lengths may evict before they are stacked; None where there is no limit."""
    if eviction is None or not left_justified or len(lengths) == 1:
        return None
    return max(0, min(lengths) - eviction.keep)


def refused(found: str, remedy: str) -> RequestError:
    """The error for what a kernel that takes lengths would silently compute wrongly."""
    return RequestError(
        f"{found}; the kernels of this target would compute it wrongly", at="attention_mask", remedy=remedy
    )
