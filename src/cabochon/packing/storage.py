"""How a target wants weights in blocks."""

from dataclasses import dataclass

__all__ = ["Storage"]


@dataclass(frozen=True)
class Storage:
    """What a target's kernels take.

    `activations`: the type that ports and activations have where weights are in blocks and the recipe leaves it open,
    "f32" or "f16". `symmetric`: weights go without zero points where the recipe leaves that open. `across`: what
    is multiplied is stored [in, out], the blocks down the columns, else [out, in]. `methods`: those that it can carry.
    `half_tables`: f16 may stand beside activations in f32, where tables that only rows are taken of have it.
    `symmetric_heads`: a table that is the head too may go without zero points, since rows of it are read right.
    """

    activations: str
    symmetric: bool = False
    across: bool = False
    methods: frozenset[str] = frozenset()
    half_tables: bool = True
    symmetric_heads: bool = False
