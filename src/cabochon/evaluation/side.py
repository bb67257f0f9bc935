"""A package that is being scored: opened, and asked window by window."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cabochon.errors import PackageError, RequestError
from cabochon.evaluation.scores import unfit
from cabochon.runtime import Model, load
from cabochon.runtime.pair import TARGET, is_pair

__all__ = ["Side", "require_alike"]

LOGITS = (
    2**24
)  # numbers that a step gives at most, in f32 64 MiB: a step of 64 tokens where there are 262,144 ids


class Side:
    """A loaded package; of a pair its target. `path` is its folder."""

    def __init__(self, package: Path, **options: Any) -> None:
        """`options` are those of `load`.

        Raises PackageError for what is no package, for a drafter, which predicts nothing by itself, and for a package
        that cannot read text.
        """
        self.path = package / TARGET if is_pair(package) else package
        self.model: Model = load(self.path, **options)
        if self.model.tokens is None:
            raise PackageError(
                "has no tokenizer.json; expected one, as a text is what is scored",
                at=str(self.path),
                remedy="build the package from a source that has a tokenizer",
            )
        self.tokens = self.model.tokens

    @property
    def vocabulary(self) -> int:
        """V."""
        return self.model.session.ports.vocabulary

    @property
    def chunk(self) -> int:
        """The most tokens of a step: a graph that gives the last logits alone is asked token by token."""
        return 1 if self.model.session.ports.last_only else max(1, LOGITS // self.vocabulary)

    def require_room(self, length: int) -> None:
        """Raise RequestError where the model has no positions for `length` tokens."""
        most = self.model.session.ports.contract.max_positions
        if length > most:
            raise RequestError(
                f"windows of {length} tokens; {self.path} has {most} positions",
                at="window",
                remedy=f"ask for a window of at most {most}",
            )

    def logits(self, window: Sequence[int], number: int, chunk: int) -> Iterator[np.ndarray]:
        """Logits f32 [at most `chunk`, V] behind all tokens of a window but its last, in order; nothing is kept.

        Raises PackageError where they are no finite numbers.
        """
        state, fed = self.model.state(chunk), 0
        for part in state.chunks(window[:-1]):
            given = state.step([part], keep=0 if len(part) > 1 else 1).logits
            assert given is not None
            if wrong := unfit(given[0]):
                raise self._unfit(number, fed + wrong[0], wrong[1])
            yield given[0]
            fed += len(part)

    def _unfit(self, window: int, position: int, count: int) -> PackageError:
        return PackageError(
            f"{count} of {self.vocabulary} logits are NaN or infinite; expected finite numbers",
            at=f"{self.path}: window {window}, position {position + 1}",
            remedy="build it with --precision f32; of f16 `cabochon parity` says where the range ends",
        )


def require_alike(side: Side, other: Side, text: str) -> None:
    """Raise RequestError where two packages do not say the same with the same ids, or cut this text otherwise."""
    at, remedy = f"{side.path}, {other.path}", "compare packages of one model"
    if side.vocabulary != other.vocabulary:
        raise RequestError(
            f"logits of {side.vocabulary} and of {other.vocabulary} ids; expected one vocabulary",
            at=at,
            remedy=remedy,
        )
    files = [one.path / "tokenizer.json" for one in (side, other)]
    if files[0].read_bytes() == files[1].read_bytes() and side.tokens.bos == other.tokens.bos:
        return
    if wrong := _difference(_vocabulary(files[0]), _vocabulary(files[1])):
        raise RequestError(f"{wrong}; expected one vocabulary", at=at, remedy=remedy)
    ours, theirs = (one.tokens.with_one_bos(one.tokens.text(text)) for one in (side, other))
    if ours != theirs:
        n = next((n for n, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None)
        n = min(len(ours), len(theirs)) if n is None else n
        raise RequestError(
            f"the text becomes {len(ours)} and {len(theirs)} tokens, which differ from number {n + 1} on; "
            "expected the same",
            at=at,
            remedy=remedy,
        )


def _vocabulary(file: Path) -> dict[str, int]:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(file)).get_vocab(with_added_tokens=True)


def _difference(ours: dict[str, int], theirs: dict[str, int]) -> str | None:
    """The first token, by id, that both do not have alike."""
    if ours == theirs:
        return None
    token = min(ours.items() ^ theirs.items(), key=lambda item: item[1])[0]
    return f"token {token!r} has id {ours.get(token)} and id {theirs.get(token)}"
