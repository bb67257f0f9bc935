"""Memory that several ports share. Every function yields what contradicts the document."""

from collections.abc import Iterator, Mapping

import numpy as np

from cabochon.metadata.document import Alias
from cabochon.validation.execution.claims import LOUD
from cabochon.validation.execution.decoder import Decoder, Held, State
from cabochon.validation.execution.driven import SEED, Driven
from cabochon.validation.execution.runner import UNDRIVEN, undriven

__all__ = ["borrowed", "in_place"]

_SPARE = 5  # columns of a shared buffer that stay unused


def in_place(one: Driven) -> Iterator[str]:
    """Past and present as one buffer with room to spare, against two that grow: a prefill, a chunk, single tokens."""
    sizes = (max(1, one.lengths[-1] - 3), 3, 1, 1)
    chunks = [one.ids(size, turn=turn) for turn, size in enumerate(sizes)]
    shared, state = _roomy(one, sum(sizes) + _SPARE), one.decoder.empty()
    for chunk in chunks:
        step = one.decoder.step(state, chunk)
        try:
            made, shared = _in_place_step(one, shared, chunk)
        except UNDRIVEN as error:
            yield undriven(error)
            return
        if apart := one.beyond(step.outputs, made):
            yield f"{chunk.shape[1]} tokens after {state.mask.shape[1]}: {apart}"
        state = step.state
    yield from _different(one, state, shared)


def aliased(one: Driven) -> list[Held]:
    """The cells whose past and present may be one buffer."""
    groups = one.decoder.groups
    able = [held for held in one.decoder.held if one.decoder.axis(held) is not None]
    return [held for held in able if groups[held.group].aliasing != "forbidden"]


def _roomy(one: Driven, capacity: int) -> State:
    """Buffers full of noise for the cells that may be shared; the others empty."""
    rng, state = np.random.default_rng(SEED), one.decoder.empty()
    cells = dict(state.cells)
    for held in aliased(one):
        shape = list(cells[held.cell].shape)
        shape[one.decoder.axis(held) or 0] = capacity
        cells[held.cell] = (LOUD * rng.choice([-1, 1], shape)).astype(cells[held.cell].dtype)
    return State(cells, state.mask)


def _in_place_step(one: Driven, state: State, ids: np.ndarray) -> tuple[dict[str, np.ndarray], State]:
    mask = one.decoder.extended(state.mask, np.ones(ids.shape, bool))
    shared = {held.alias.input: held.alias.output or "" for held in aliased(one)}
    made = one.decoder.runner.run(one.decoder.feeds(state, ids, mask), shared)
    cells = {
        held.cell: state.cells[held.cell] if held.alias.input in shared else made.pop(held.alias.output or "")
        for held in one.decoder.held
    }
    return made, State(cells, mask)


def _different(one: Driven, grown: State, shared: State) -> Iterator[str]:
    for held in aliased(one):
        axis = one.decoder.axis(held) or 0
        count = grown.cells[held.cell].shape[axis]
        pair = (grown.cells[held.cell], one.cut(held, shared.cells[held.cell], slice(count)))
        one_way, other = ({held.cell: np.moveaxis(x, axis, 1)} for x in pair)
        if apart := one.beyond(one_way, other):
            yield f"the shared buffer after {count} tokens: {apart}"


def borrowed(reader: Decoder, sources: Mapping[str, np.ndarray], length: int) -> Iterator[str]:
    """Run a component that reads others' cells, and compare these bit for bit. `sources`: values by cell.

    Where the reader's alias names an output and the group lets buffers be shared, it is bound to the very buffer, with
    one column to spare: as a runtime would.
    """
    read = {cell: alias for cell, alias, _ in readings(reader)}
    may_share = {cell for cell, _, shared in readings(reader) if shared}
    buffers = {read[cell].input: _spared(reader, cell, sources[cell], cell in may_share) for cell in read}
    before = {name: value.tobytes() for name, value in buffers.items()}
    ids, mask = np.zeros((1, 1), np.int64), np.ones((1, length), bool)
    feeds = reader.feeds(reader.empty(), ids, mask) | buffers
    reader.runner.run(feeds, {read[cell].input: read[cell].output or "" for cell in may_share})
    for cell, alias in read.items():
        if buffers[alias.input].tobytes() != before[alias.input]:
            yield f"{cell} changed behind {alias.input}"


def readings(reader: Decoder) -> Iterator[tuple[str, Alias, bool]]:
    """Cell, alias, and whether the reader's output may be its buffer."""
    for group in reader.groups.values():
        for cell, alias in group.ports.get(reader.name, {}).items():
            if alias.access == "read_only":
                yield cell, alias, bool(alias.output) and group.aliasing != "forbidden"


def _spared(reader: Decoder, cell: str, value: np.ndarray, more: bool) -> np.ndarray:
    axis = next(
        (g.sequence_axis for g in reader.groups.values() if cell in g.ports.get(reader.name, {})), None
    )
    if not more or axis is None:
        return value.copy()
    return np.pad(value, [(0, int(i == axis)) for i in range(value.ndim)])
