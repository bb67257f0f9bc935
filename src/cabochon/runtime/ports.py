"""What a package says about its graph: the ports by their role, and the metadata a caller must know."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from cabochon.errors import PackageError

PREFIX = "cabochon."
KEYS = ("target", "precision", "mask", "max_positions")
OPTIONAL = ("activations", "sliding_window", "embed_scale", "model")
DRAFTER = "drafter"  # the value of cabochon.model in a graph that is no decoder of text
FED = "decoder"  # and in one that is fed by an embedding
PAST = "past_key_values."
IDS, EMBEDS, EXTRAS = "input_ids", "inputs_embeds", "per_layer_inputs"
MASKS = ("anywhere", "left-justified")
DTYPES = {"tensor(float)": np.dtype(np.float32), "tensor(float16)": np.dtype(np.float16)}
REBUILD = "build the package again with this version of cabochon"


class Argument(Protocol):
    """A graph input or output as onnxruntime describes it."""

    @property
    def name(self) -> str:
        """As in the file."""
        ...

    @property
    def type(self) -> str:
        """tensor(float), tensor(int64) ..."""
        ...

    @property
    def shape(self) -> list[int | str | None]:
        """Sizes, and the names of axes that vary."""
        ...


@dataclass(frozen=True)
class Contract:
    """The metadata properties of a decoder: what a caller must know beyond the ports.

    `fed` is True where it takes embedded tokens, `file` names it in errors.
    """

    target: str
    precision: str
    mask: str
    max_positions: int
    window: int | None
    fed: bool = False
    file: str = "model.onnx"

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
    """The ports of a decoder by role. `hidden` is None and `keeps` False where the graph lacks the port.

    `last_only`: the graph gives logits and hidden state of a row's last token alone, whatever is asked. `takes` are the
    ports that tokens come in by, `widths` the last axes of those of them that are embedded. `rows`: how many it takes
    together; None for any number.
    """

    contract: Contract
    dtype: np.dtype
    caches: tuple[Cache, ...]
    vocabulary: int
    hidden: str | None
    keeps: bool
    last_only: bool = False
    takes: frozenset[str] = frozenset({IDS})
    widths: Mapping[str, int] = field(default_factory=dict[str, int])
    rows: int | None = None

    @property
    def whole_images(self) -> bool:
        """True where the tokens of an image see each other, so that they must come in one step."""
        return {IDS, EMBEDS} <= self.takes

    def column_bytes(self, sliding: bool) -> int:
        """Bytes that one more token of one row takes in all caches of a kind."""
        return sum(c.heads * c.size for c in self.caches if c.sliding is sliding) * self.dtype.itemsize


def read_contract(metadata: Mapping[str, str], file: str = "model.onnx") -> Contract:
    """Raise PackageError for a missing, unknown or malformed `cabochon.*` property; `file` names the graph."""
    ours = {k.removeprefix(PREFIX): v for k, v in metadata.items() if k.startswith(PREFIX)}
    for key in KEYS:
        if key not in ours:
            raise _fault(file, key, "is missing", f"expected {', '.join(PREFIX + k for k in KEYS)}")
    for key in ours.keys() - {*KEYS, *OPTIONAL}:
        raise _fault(
            file, key, f"is unknown ({ours[key]!r})", "this version cannot know what it asks of a caller"
        )
    if ours["mask"] not in MASKS:
        raise _fault(file, "mask", f"is {ours['mask']!r}", f"expected one of {', '.join(MASKS)}")
    if ours.get("model", FED) != FED:
        raise _fault(file, "model", f"is {ours['model']!r}", f"expected {FED!r}, or none in a text decoder")
    window = _number(ours, "sliding_window", file) if "sliding_window" in ours else None
    most = _number(ours, "max_positions", file)
    return Contract(ours["target"], ours["precision"], ours["mask"], most, window, "model" in ours, file)


def _fault(file: str, key: str, found: str, expected: str) -> PackageError:
    return PackageError(f"{PREFIX}{key} {found}; {expected}", at=f"{file}: metadata", remedy=REBUILD)


def _number(ours: Mapping[str, str], key: str, file: str) -> int:
    if not re.fullmatch("[1-9][0-9]*", ours[key]):
        raise _fault(file, key, f"is {ours[key]!r}", "expected a positive whole number")
    return int(ours[key])


def read_ports(
    inputs: Iterable[Argument], optional: Iterable[Argument], outputs: Iterable[Argument], contract: Contract
) -> Ports:
    """Sort the ports of a session by role; raise PackageError for one that is not as docs/architecture.md says."""
    given, made = {i.name: i for i in inputs}, {o.name: o for o in outputs}
    keeps = "logits_to_keep" in given or any(o.name == "logits_to_keep" for o in optional)
    wrong = _Wrong(contract.file)
    caches = tuple(_cache(a, made, wrong) for name, a in given.items() if name.startswith(PAST))
    takes = _takes(given, contract, wrong)
    for name in given.keys() - takes - {"attention_mask", "logits_to_keep"} - {c.past for c in caches}:
        raise wrong(f"unknown input {name!r}; expected a {'fed' if contract.fed else 'text'} decoder's")
    if any(c.sliding for c in caches) and contract.window is None:
        raise _fault(contract.file, "sliding_window", "is missing", "the graph has sliding caches")
    logits = _output(made, "logits", wrong)
    dtype = _dtype(logits, wrong)
    embedded = takes - {IDS}
    for name in (*(c.past for c in caches), *sorted(embedded)):
        if given[name].type != logits.type:
            raise wrong(f"{name!r} is {given[name].type} and 'logits' {logits.type}; expected one type")
    hidden = next((name for name in made if name.startswith("hidden_states.")), None)
    last_only = not keeps and logits.shape[1] == 1
    widths = {name: _fixed(given[name], 2, wrong) for name in embedded}
    rows = next((n for n in given["attention_mask"].shape[:1] if isinstance(n, int)), None)
    return Ports(
        contract, dtype, caches, _fixed(logits, 2, wrong), hidden, keeps, last_only, takes, widths, rows
    )


class _Wrong:
    """Makes the errors about one graph."""

    def __init__(self, file: str) -> None:
        self._file = file

    def __call__(self, found: str) -> PackageError:
        return PackageError(found, at=self._file, remedy=REBUILD)


def _takes(given: Mapping[str, Argument], contract: Contract, wrong: _Wrong) -> frozenset[str]:
    """The ports that tokens come in by."""
    needed, possible = ({EMBEDS}, {EMBEDS, EXTRAS, IDS}) if contract.fed else ({IDS}, {IDS})
    for name in (*needed, "attention_mask"):
        if name not in given:
            raise wrong(f"the graph has no input {name!r}")
    return frozenset(given.keys() & possible)


def present_of(past: str) -> str:
    """The output that holds what the cache of an input has become."""
    return past.replace(PAST, "present.", 1)


def _cache(a: Argument, made: Mapping[str, Argument], wrong: _Wrong) -> Cache:
    present = _output(made, present_of(a.name), wrong).name
    return Cache(
        a.name, present, _fixed(a, 1, wrong), _fixed(a, 3, wrong), a.shape[2] == "sliding_past_sequence"
    )


def _output(made: Mapping[str, Argument], name: str, wrong: _Wrong) -> Argument:
    if name not in made:
        raise wrong(f"the graph has no output {name!r}")
    return made[name]


def _fixed(a: Argument, axis: int, wrong: _Wrong) -> int:
    size = a.shape[axis] if axis < len(a.shape) else None
    if not isinstance(size, int):
        raise wrong(f"dimension {axis} of {a.name!r} is {size!r}; expected a number")
    return size


def _dtype(a: Argument, wrong: _Wrong) -> np.dtype:
    if a.type not in DTYPES:
        raise wrong(f"{a.name!r} is {a.type}; expected {' or '.join(DTYPES)}")
    return DTYPES[a.type]
