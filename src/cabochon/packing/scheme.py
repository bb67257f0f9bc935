"""How numbers are stored in blocks, as a value; and numbers stored so."""

from dataclasses import dataclass

import numpy as np

from cabochon.errors import PackingError

__all__ = ["BLOCKS", "METHODS", "Packed", "Scheme"]

METHODS = ("k-quant", "round", "nf4")
BLOCKS = (16, 32, 64, 128)
_SCALES = {"f16": np.float16, "f32": np.float32}


@dataclass(frozen=True)
class Scheme:
    """Numbers in blocks: a number is (code - zero point) * scale, NF4 (a table's entry) * scale.

    method: how scale and zero point of a block are found: "k-quant" searches them, "round" takes them from the
    range, "nf4" has a table of 16 numbers instead (QLoRA, arXiv 2305.14314, appendix E). bits: of a code, 4 or 8.
    block: how many numbers share a scale, along a row; of NF4 along the flattened weight. symmetric: no zero points
    are stored, all are the middle, 8 or 128. scales: the type of scales, "f16" or "f32".
    Raises PackingError for what is none of these.
    """

    method: str
    bits: int
    block: int
    symmetric: bool
    scales: str = "f16"

    def __post_init__(self) -> None:
        for name, allowed in _allowed(self.method).items():
            if getattr(self, name) not in allowed:
                raise PackingError(
                    f"a scheme of method {self.method!r} has {name} {getattr(self, name)!r}; "
                    f"expected {' or '.join(map(repr, allowed))}"
                )

    def blocks(self, columns: int) -> int:
        """How many blocks a row of so many columns has."""
        return -(-columns // self.block)

    @property
    def bits_per_weight(self) -> float:
        """With scales and zero points, of rows that fill their blocks."""
        shared = 8 * self.scale_type.itemsize + (0 if self.symmetric else self.bits)
        return self.bits + shared / self.block

    @property
    def scale_type(self) -> np.dtype:
        """The dtype of scales."""
        return np.dtype(_SCALES[self.scales])

    @property
    def top(self) -> int:
        """The largest code."""
        return 2**self.bits - 1

    @property
    def middle(self) -> int:
        """The zero point where none is stored."""
        return 2 ** (self.bits - 1)

    def __str__(self) -> str:
        if self.method == "nf4":
            return f"NF4 in blocks of {self.block}"
        symmetry = "symmetric" if self.symmetric else "asymmetric"
        return f"{self.bits} bits in blocks of {self.block}, {symmetry}, {self.method}"


def _allowed(method: str) -> dict[str, tuple[object, ...]]:
    if method == "nf4":
        return {"bits": (4,), "block": BLOCKS, "symmetric": (True,), "scales": tuple(_SCALES)}
    return {
        "method": METHODS,
        "bits": (4, 8),
        "block": BLOCKS,
        "symmetric": (False, True),
        "scales": tuple(_SCALES),
    }


@dataclass(frozen=True)
class Packed:
    """A weight in blocks.

    codes: uint8 [rows, blocks, block * bits / 8], of two codes in a byte the first is the low one; what a last block
    lacks are codes of 0. NF4: uint8 [blocks * block / 2], of two codes the first is the high one (MatMulBnb4).
    scales: f16 or f32 [rows, blocks]; NF4: [blocks]. zero_points: uint8 [rows, ceil(blocks * bits / 8)], packed as
    codes are, or None where none are stored.
    """

    codes: np.ndarray
    scales: np.ndarray
    zero_points: np.ndarray | None
