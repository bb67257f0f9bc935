"""What the layers remember of the tokens fed so far: the caches of one batch of rows, and the mask over them.

B rows · C columns fed so far (evicted ones included) · S new tokens. A column is *real* in a row where the mask is 1.
Full caches hold all C columns, sliding caches the last C - evicted.

Two kinds of graphs (docs/architecture.md): in `anywhere` graphs new tokens are the last columns and zeros may stand
anywhere; in `left-justified` graphs the kernel writes the new tokens of a row behind its own last one, so a row's mask
is its length in ones, then zeros. Both are one class: only `extended` and `stack` tell them apart.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import compress, repeat
from typing import Any, NamedTuple, cast

import numpy as np

from cabochon.errors import RequestError
from cabochon.runtime.columns import Eviction, check_kept, check_rows, evictable, extended, refused
from cabochon.runtime.graph import Value
from cabochon.runtime.kinds import read
from cabochon.runtime.ports import Cache
from cabochon.runtime.room import Room
from cabochon.runtime.session import Session
from cabochon.runtime.soft import SoftToken, chunks, run_start

PREFILL_CHUNK = 512


class Output(NamedTuple):
    """What a step gives: logits [B, kept, V] and the hidden tap [B, kept, D], float32; None where not asked for."""

    logits: np.ndarray | None
    hidden: np.ndarray | None


class State:
    """The caches of one batch. Every method leaves it either as it was or complete."""

    def __init__(
        self, session: Session, eviction: Eviction | None = None, *, chunk: int = PREFILL_CHUNK
    ) -> None:
        """An empty state of one row. `chunk` is the most tokens of one step when tokens are computed anew."""
        window = session.ports.contract.window
        self.session, self.chunk = session, read("chunk", chunk)
        self.eviction = eviction or (None if window is None else Eviction.usual(window))
        self.evict_limit: int | None = None
        self._presents = [c.present for c in self.caches]
        self._room = Room(session.ports.dtype, len(self.caches))
        self._side = 0  # no cache lies on the other side
        self._empty(1)

    @property
    def caches(self) -> tuple[Cache, ...]:
        """The ports the values belong to."""
        return self.session.ports.caches

    @property
    def rows(self) -> int:
        """B."""
        return len(self.tokens)

    @property
    def length(self) -> int:
        """Tokens of the longest row."""
        return max(map(len, self.tokens))

    @property
    def nbytes(self) -> int:
        """Bytes of the caches; the room a next step writes to takes as much again."""
        return sum(v.tensor_size_in_bytes() for v in self.values.values())

    def step(
        self,
        ids: Sequence[Sequence[int]] | np.ndarray,
        *,
        keep: int | None = 1,
        hidden: bool = False,
        real: np.ndarray | None = None,
    ) -> Output:
        """Feed `ids` [B, S]; give the logits of each row's last `keep` real tokens (0: all S, None: no logits).

        Soft tokens are fed as their features, which are made now if they were not before; all tokens of an image whose
        tokens see each other belong in one step. An empty state takes any B. `real` [B, S] says which ids are tokens,
        all where omitted. Raises RequestError for what are no ids and where a left-justified graph would compute
        something else than was asked for.
        """
        rows, ids = _read(ids, self.session.ports.vocabulary)
        if real is None:
            real, added = np.ones(ids.shape, bool), rows
        else:
            real = _real(real, ids.shape)
            added = [list(compress(*both)) for both in zip(rows, real, strict=True)]
        check_rows(len(ids), self.session.ports.rows)
        if keep is not None:
            check_kept(read("keep", keep), real, self.session.ports.contract.left_justified)
        if not self.mask.shape[1] and len(ids) != self.rows:
            self._empty(len(ids))
        mask = extended(self.mask, real, self.session.ports.contract.left_justified)
        output, values = self._run(self.session.feeds(rows, ids), mask, keep, hidden)
        grown = map(list[int].extend, self.tokens, added)  # in place: a copy would read every token of before
        self.mask, self.values, self._side = mask, values, 1 - self._side
        any(grown)  # all rows in one call, which an interrupt cannot divide
        self._evict_when_due()
        return output

    def _empty(self, rows: int) -> None:
        values = {c.past: self.session.empty(c, rows) for c in self.caches}
        self.tokens: list[list[int]] = [[] for _ in range(rows)]
        self.mask, self.evicted, self.values = np.zeros((rows, 0), bool), 0, values

    def _run(
        self, fed: Mapping[str, Value], mask: np.ndarray, keep: int | None, hidden: bool
    ) -> tuple[Output, dict[str, Value]]:
        ports = self.session.ports
        arrays = {"attention_mask": mask.astype(np.int64)}
        if ports.last_only and keep not in (None, 1):
            raise RequestError(
                f"the logits of {keep or 'all'} positions; this package gives those of the last one alone",
                at="logits_to_keep",
                remedy="build it without --logits-to-keep",
            )
        if ports.keeps:
            arrays["logits_to_keep"] = np.array(1 if keep is None else keep, np.int64)
        fetched = ["logits"] * (keep is not None) + [ports.hidden or ""] * hidden
        kept = dict(zip(self._presents, self._beside(*mask.shape), strict=True))
        made, present = self.session.run(arrays, {**self.values, **fed}, fetched, kept)
        wanted = [
            None if name not in made else _kept(made[name], keep or 0) for name in ("logits", ports.hidden)
        ]
        return Output(*wanted), dict(zip(self.values, present.values(), strict=True))

    def _beside(self, rows: int, columns: int) -> Iterable[Value | None]:
        """Host memory for each cache after a step; other devices have allocators of their own."""
        if self.session.device != "cpu":
            return repeat(None, len(self.caches))
        lengths = {False: columns, True: columns - self.evicted}
        return self._room.on(
            1 - self._side, [(rows, c.heads, lengths[c.sliding], c.size) for c in self.caches]
        )

    def prefill(self, ids: Sequence[int], *, chunk: int | None = None) -> np.ndarray:
        """Feed the tokens of one row, at least one, in chunks; the logits [V] of the last one."""
        logits = self.feed(ids, chunk=chunk).logits
        assert logits is not None
        return logits[0, -1]

    def feed(self, ids: Sequence[int], *, chunk: int | None = None, hidden: bool = False) -> Output:
        """Feed the tokens of one row, at least one, in chunks; what the step of the last one gives."""
        *before, last = self.chunks(ids, chunk)
        for part in before:
            self.step([part], keep=None)
        return self.step([last], hidden=hidden)

    def chunks(self, ids: Sequence[int], chunk: int | None = None) -> list[Sequence[int]]:
        """The tokens of one row cut into steps of at most `chunk`; an image whose tokens see each other stays whole."""
        size: int = self.chunk if chunk is None else read("chunk", chunk)
        cuts = chunks(ids, size, self.session.ports.whole_images)
        return [ids[start:end] for start, end in cuts] or [ids]

    def can_rewind(self, position: int) -> bool:
        """True where the sliding caches still hold what the token at `position` would see."""
        first = self.length - int(self.mask[0, self.evicted :].sum())
        return first == 0 or self.eviction is None or position - first >= self.eviction.window - 1

    def rewind(self, position: int) -> None:
        """Forget all but the first `position` tokens of the only row; computed anew where the caches lost too much."""
        if self.rows != 1 or not 0 <= position <= self.length:
            raise RequestError(
                f"cannot rewind to {position}: {self.rows} rows of up to {self.length} tokens", at="rewind"
            )
        if position == self.length:
            return
        whole = run_start(self.tokens[0], position) if self.session.ports.whole_images else position
        cut = self.tokens[0][whole:position]  # of an image: these have seen what is forgotten
        self._rewind(whole)
        if cut:
            self.prefill(cut)

    def _rewind(self, position: int) -> None:
        if not position or not self.can_rewind(position):
            ids = self.tokens[0][:position]
            self._empty(1)
            if ids:
                self.prefill(ids)
            return
        mask = self.mask & (np.cumsum(self.mask, 1) <= position)
        self.tokens, self.mask = [self.tokens[0][:position]], mask
        self._shorten()
        self._compact_when_due()

    def select(self, rows: Sequence[int]) -> None:
        """Go on with these rows only."""
        self.values = {name: self.session.put(v.numpy()[list(rows)]) for name, v in self.values.items()}
        self.tokens, self.mask = [[*self.tokens[r]] for r in rows], self.mask[list(rows)]
        self.compact()

    def compact(self) -> None:
        """Drop the columns that are real in no row."""
        used = np.asarray(self.mask.any(0))
        if used.all():
            return
        columns = {False: np.flatnonzero(used), True: np.flatnonzero(used[self.evicted :])}
        values = {
            c.past: self.session.put(self.values[c.past].numpy()[:, :, columns[c.sliding]])
            for c in self.caches
        }
        self.values, self.mask, self.evicted = values, self.mask[:, used], int(used[: self.evicted].sum())

    def _shorten(self) -> None:
        """Drop the last columns where no row has a token in them, if that moves no memory: one row, one head each."""
        columns = int(np.flatnonzero(self.mask.any(0))[-1]) + 1
        lone = self.rows == 1 and all(c.heads == 1 for c in self.caches) and self.session.device == "cpu"
        if not lone or columns in (self.mask.shape[1], self.evicted):
            return
        self.values = {
            c.past: self._room.shortened(i, self.values[c.past], columns - self.evicted * c.sliding)
            for i, c in enumerate(self.caches)
        }
        self.mask = self.mask[:, :columns]

    def _compact_when_due(self) -> None:
        unused = int((~self.mask.any(0)).sum())
        if unused > max(64, self.mask.shape[1] // 8):
            self.compact()

    def _evict_when_due(self) -> None:
        if self.eviction and self.mask.shape[1] - self.evicted > self.eviction.most:
            self.evict()

    def evict(self) -> None:
        """Drop from the front of the sliding caches what no row can see any more."""
        if self.eviction is None:
            return
        columns = evictable(self.mask[:, self.evicted :], self.eviction.keep)
        if self.evict_limit is not None:
            columns = min(columns, self.evict_limit - self.evicted)
        if columns > 0:
            dropped = {c.past: self._without_front(c, columns) for c in self.caches if c.sliding}
            self.values, self.evicted = {**self.values, **dropped}, self.evicted + columns

    def _without_front(self, cache: Cache, columns: int) -> Value:
        return self.session.put(self.values[cache.past].numpy()[:, :, columns:])


def _read(given: Any, vocabulary: int) -> tuple[list[list[int]], np.ndarray]:
    """The ids in Python's own type, soft tokens as they were given, and all as i64."""
    try:
        ids = np.asarray(given)
    except ValueError:  # rows of different lengths
        ids = np.empty(0)
    if ids.ndim != 2 or not ids.size or ids.dtype.kind not in "iu":
        raise RequestError(
            f"{ids.dtype} {ids.shape}; expected whole numbers [rows, tokens], at least one of each",
            at="input_ids",
            remedy="give every row as many ids; `real` says which of them are tokens",
        )
    ids = ids.astype(np.int64)
    rows = cast(list[list[int]], ids.tolist())
    least, most = min(map(min, rows)), max(map(max, rows))
    if least < 0 or most >= vocabulary:
        raise RequestError(
            f"ids from {least} to {most}; expected token ids from 0 to {vocabulary - 1}",
            at="input_ids",
            remedy="take the ids of this package's tokenizer",
        )
    if not isinstance(given, np.ndarray):
        rows = [
            [its if isinstance(its, SoftToken) else token for its, token in zip(row, tokens, strict=True)]
            for row, tokens in zip(given, rows, strict=True)
        ]
    return rows, ids


def _real(given: Any, shape: tuple[int, ...]) -> np.ndarray:
    real = np.asarray(given, bool)
    if real.shape != shape:
        raise RequestError(
            f"{real.shape}; expected the shape of the ids, {shape}", at="real", remedy="say it of every id"
        )
    return real


def _kept(array: np.ndarray, keep: int) -> np.ndarray:
    return array[:, -keep:].astype(np.float32, copy=False) if keep else array.astype(np.float32, copy=False)


def stack(states: Sequence[State]) -> State:
    """One state of many rows, each with tokens of its own.

    `anywhere`: padding in front, so every row ends in the last column and sliding caches keep only the window.
    `left-justified`: padding behind; all rows must have evicted as many columns, so only what the shortest allows
    (`eviction_limit` before they are filled).
    """
    one = states[0]
    if len(states) == 1:
        return one
    left = one.session.ports.contract.left_justified
    for state in states:
        state.compact()
        state.evict()
    if left and len({s.evicted for s in states}) > 1:
        raise refused("rows that evicted different numbers of columns", "set evict_limit before filling them")
    made = State(one.session, one.eviction, chunk=one.chunk)
    made.tokens = [[*s.tokens[0]] for s in states]
    made.mask = np.concatenate(_padded([s.mask for s in states], 1, left))
    held = max(s.mask.shape[1] - s.evicted for s in states)
    made.evicted = made.mask.shape[1] - held
    made.values = {
        c.past: one.session.put(np.concatenate(_padded([s.values[c.past].numpy() for s in states], 2, left)))
        for c in one.caches
    }
    return made


def _padded(arrays: Sequence[np.ndarray], axis: int, behind: bool) -> list[np.ndarray]:
    longest = max(a.shape[axis] for a in arrays)
    missing = [longest - a.shape[axis] for a in arrays]
    return [
        np.pad(a, [((0, 0), ((0, n) if behind else (n, 0)))[i == axis] for i in range(a.ndim)])
        for a, n in zip(arrays, missing, strict=True)
    ]
