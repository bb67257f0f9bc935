"""What a package says about its graph: the ports by their role, and the metadata a caller must know."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cabochon.errors import PackageError

PREFIX = "cabochon."
KEYS = ("target", "precision", "mask", "max_positions")
OPTIONAL = ("sliding_window", "embed_scale")
DRAFTER = "drafter"  # the value of cabochon.model in a graph that is no decoder of text
MASKS = ("anywhere", "left-justified")
DTYPES = {"tensor(float)": np.dtype(np.float32), "tensor(float16)": np.dtype(np.float16)}
REBUILD = "build the package again with this version of cabochon"


class Argument(Protocol):
    """A graph input or output as onnxruntime describes it."""

    name: str
    type: str
    shape: list[int | str | None]


@dataclass(frozen=True)
class Contract:
    """The metadata properties of model.onnx: what a caller must know beyond the ports."""

    target: str
    precision: str
    mask: str
    max_positions: int
    window: int | None

    @property
    def left_justified(self) -> bool:
        """True where the kernel takes lengths: real tokens stand first in every row of the mask."""
        return self.mask == "left-justified"


@dataclass(frozen=True)
class Cache:
    """One of the two tensors a layer remembers: [batch, heads, columns, size]."""

    past: str
    present: str
    heads: int
    size: int
    sliding: bool


@dataclass(frozen=True)
class Ports:
    """The ports of a text decoder by role. `hidden` is None and `keeps` False where the graph lacks the port.

    `last_only`: the graph gives logits and hidden state of a row's last token alone, whatever is asked.
    """

    contract: Contract
    dtype: np.dtype
    caches: tuple[Cache, ...]
    vocabulary: int
    hidden: str | None
    keeps: bool
    last_only: bool = False

    def column_bytes(self, sliding: bool) -> int:
        """Bytes that one more token of one row takes in all caches of a kind."""
        return sum(c.heads * c.size for c in self.caches if c.sliding is sliding) * self.dtype.itemsize


def read_contract(metadata: Mapping[str, str]) -> Contract:
    """Raise PackageError for a missing, unknown or malformed `cabochon.*` property."""
    ours = {k.removeprefix(PREFIX): v for k, v in metadata.items() if k.startswith(PREFIX)}
    for key in KEYS:
        if key not in ours:
            raise _fault(key, "is missing", f"expected {', '.join(PREFIX + k for k in KEYS)}")
    for key in ours.keys() - {*KEYS, *OPTIONAL}:
        raise _fault(key, f"is unknown ({ours[key]!r})", "this version cannot know what it asks of a caller")
    if ours["mask"] not in MASKS:
        raise _fault("mask", f"is {ours['mask']!r}", f"expected one of {', '.join(MASKS)}")
    window = _number(ours, "sliding_window") if "sliding_window" in ours else None
    return Contract(ours["target"], ours["precision"], ours["mask"], _number(ours, "max_positions"), window)


def _fault(key: str, found: str, expected: str) -> PackageError:
    return PackageError(f"{PREFIX}{key} {found}; {expected}", at="model.onnx: metadata", remedy=REBUILD)


def _number(ours: Mapping[str, str], key: str) -> int:
    if not re.fullmatch("[1-9][0-9]*", ours[key]):
        raise _fault(key, f"is {ours[key]!r}", "expected a positive whole number")
    return int(ours[key])


def read_ports(
    inputs: Iterable[Argument], optional: Iterable[Argument], outputs: Iterable[Argument], contract: Contract
) -> Ports:
    """Sort the ports of a session by role; raise PackageError for one that is not as docs/architecture.md says."""
    given, made = {i.name: i for i in inputs}, {o.name: o for o in outputs}
    keeps = "logits_to_keep" in given or any(o.name == "logits_to_keep" for o in optional)
    caches = tuple(_cache(a, made) for name, a in given.items() if name.startswith("past_key_values."))
    for name in ("input_ids", "attention_mask"):
        if name not in given:
            raise PackageError(f"the graph has no input {name!r}", at="model.onnx", remedy=REBUILD)
    for name in given.keys() - {"input_ids", "attention_mask", "logits_to_keep"} - {c.past for c in caches}:
        raise PackageError(
            f"unknown input {name!r}; expected a text decoder's", at="model.onnx", remedy=REBUILD
        )
    if any(c.sliding for c in caches) and contract.window is None:
        raise _fault("sliding_window", "is missing", "the graph has sliding caches")
    logits = _output(made, "logits")
    dtype = _dtype(logits)
    for cache in caches:
        if given[cache.past].type != logits.type:
            found = (
                f"{cache.past!r} is {given[cache.past].type} and 'logits' {logits.type}; expected one type"
            )
            raise PackageError(found, at="model.onnx", remedy=REBUILD)
    hidden = next((name for name in made if name.startswith("hidden_states.")), None)
    last_only = not keeps and logits.shape[1] == 1
    return Ports(contract, dtype, caches, _fixed(logits, 2), hidden, keeps, last_only)


def _cache(a: Argument, made: Mapping[str, Argument]) -> Cache:
    present = _output(made, a.name.replace("past_key_values.", "present.", 1)).name
    return Cache(a.name, present, _fixed(a, 1), _fixed(a, 3), a.shape[2] == "sliding_past_sequence")


def _output(made: Mapping[str, Argument], name: str) -> Argument:
    if name not in made:
        raise PackageError(f"the graph has no output {name!r}", at="model.onnx", remedy=REBUILD)
    return made[name]


def _fixed(a: Argument, axis: int) -> int:
    size = a.shape[axis] if axis < len(a.shape) else None
    if not isinstance(size, int):
        raise PackageError(
            f"dimension {axis} of {a.name!r} is {size!r}; expected a number", at="model.onnx", remedy=REBUILD
        )
    return size


def _dtype(a: Argument) -> np.dtype:
    if a.type not in DTYPES:
        raise PackageError(
            f"{a.name!r} is {a.type}; expected {' or '.join(DTYPES)}", at="model.onnx", remedy=REBUILD
        )
    return DTYPES[a.type]
