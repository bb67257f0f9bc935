"""What became of a matrix and of each of its variants."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

__all__ = ["Outcome", "Ran"]


@dataclass(frozen=True)
class Outcome:
    """What became of a variant. `status`: "kept" as it stood there, "built", "refused" for this checkpoint, "failed".

    `nbytes` are those of the package that stands there, as planned where it failed; `linked_bytes` those of its files
    of weights that stood in another already, `read_bytes` those of the checkpoint that the rest was computed from.
    """

    folder: str
    status: Literal["kept", "built", "refused", "failed"]
    reason: str = ""
    nbytes: int = 0
    linked: tuple[str, ...] = ()
    linked_bytes: int = 0
    read_bytes: int = 0
    seconds: float = 0.0
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ran:
    """What a run did.

    For what was built `read_bytes` of the checkpoint were read, whose tensors have `source_bytes`: `reads` times all of
    it, and `reads_unlinked` times if nothing were linked. `equal_files` are those beside weights that became other
    names of one another, and saved `equal_bytes`. `index`: OUT/README.md.
    """

    path: Path
    model: str
    variants: tuple[Outcome, ...]
    source_bytes: int
    read_bytes: int
    reads: float
    reads_unlinked: float
    equal_files: int
    equal_bytes: int
    seconds: float
    index: Path
    remarks: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether all that was asked for stands there."""
        return all(outcome.status in ("kept", "built") for outcome in self.variants)
