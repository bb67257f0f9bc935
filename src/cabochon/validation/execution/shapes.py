"""Declared ports beside the arrays that really go in and come out."""

from collections.abc import Iterator, Mapping

import numpy as np

from cabochon.metadata.document import DTYPES, TensorContract
from cabochon.validation.execution.claims import without
from cabochon.validation.execution.driven import Driven
from cabochon.validation.execution.runner import UNDRIVEN, undriven

__all__ = ["declared", "optional"]

_ANY = "Any"  # a symbol that stands for no one size


def declared(one: Driven) -> Iterator[tuple[str, str]]:
    """(port, what contradicts its contract): a prefill, a chunk behind it, one behind an evicted prefix."""
    n = one.lengths[0]
    start = one.run([one.ids(n)]).state
    states = {"a prefill": one.decoder.empty(), f"a chunk after {n} tokens": start}
    for name, group in one.decoder.groups.items():
        if group.reuse.evictable_prefix and group.sequence_axis is not None:
            states[f"a chunk after {n} tokens, one of them evicted from {name}"] = without(
                one, start, name, 1
            )
    for when, state in states.items():
        ids = one.ids(3, turn=1)
        mask = one.decoder.extended(state.mask, np.ones(ids.shape, bool))
        feeds = one.decoder.feeds(state, ids, mask)
        for port, what in _contradicted(one, feeds, one.decoder.runner.run(feeds)):
            yield port, f"{what} in {when}"


def _contradicted(
    one: Driven, given: Mapping[str, np.ndarray], made: Mapping[str, np.ndarray]
) -> Iterator[tuple[str, str]]:
    sizes = dict[str, tuple[int, str]]()
    ports = one.decoder.component.ports
    for side, contracts, arrays in (("inputs", ports.inputs, given), ("outputs", ports.outputs, made)):
        for name, contract in contracts.items():
            if name in arrays:
                yield from (
                    (f"{side}.{name}", what) for what in _against(contract, arrays[name], sizes, name)
                )


def _against(
    contract: TensorContract, array: np.ndarray, sizes: dict[str, tuple[int, str]], name: str
) -> Iterator[str]:
    """`sizes`: what each symbol was first seen to be, and where."""
    if array.dtype.name != DTYPES[contract.dtype]:
        yield f"its elements are {array.dtype.name}, not {contract.dtype}"
    rank = contract.rank if contract.shape is None else len(contract.shape)
    if rank is not None and array.ndim != rank:
        yield f"its shape is {list(array.shape)}, not of rank {rank}"
        return
    for axis, (said, size) in enumerate(zip(contract.shape or (), array.shape, strict=False)):
        if isinstance(said, int):
            if said != size:
                yield f"axis {axis} is {size}, not {said}"
        elif said != _ANY:
            first, where = sizes.setdefault(said, (size, name))
            if first != size:
                yield f"axis {axis} is {size}, but {said} is {first} in {where}"


def optional(one: Driven, stated: Mapping[str, np.ndarray]) -> Iterator[tuple[str, str]]:
    """(port, what is wrong): inputs that may be left out are, and against their `stated` defaults where there are."""
    ids, empty = one.ids(one.lengths[0]), one.decoder.empty()
    feeds = one.decoder.feeds(empty, ids, one.decoder.extended(empty.mask, np.ones(ids.shape, bool)))
    for name, contract in one.decoder.component.ports.inputs.items():
        if not contract.optional or name not in one.decoder.runner.graph.ports.inputs:
            continue
        without_it = {port: value for port, value in feeds.items() if port != name}
        try:
            left_out = one.decoder.runner.run(without_it)
        except UNDRIVEN as error:
            yield name, f"left out, {undriven(error)}"
            continue
        if name in stated:
            given = one.decoder.runner.run({**without_it, name: stated[name]})
            if apart := _shaped(left_out, given) or one.beyond(left_out, given):
                yield (
                    name,
                    f"left out, the graph does not take the stated default {stated[name].tolist()}: {apart}",
                )


def _shaped(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> str:
    """The first of the results whose shapes differ, in words."""
    pairs = ((name, value.shape, other[name].shape) for name, value in one.items())
    return next((f"{name} is {list(a)} in place of {list(b)}" for name, a, b in pairs if a != b), "")
