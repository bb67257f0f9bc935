"""How many numbers a graph holds in each form: as floats, or in blocks."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cabochon.gemma4.drafter_names import ORDERING
from cabochon.validation.blocks import Blocked, blocked, stem
from cabochon.validation.graph import Graph
from cabochon.validation.memo import once

__all__ = ["Form", "Held", "held", "most", "parts_of"]

_LAYER = re.compile(r"\blayers\.(\d+)\.")


@dataclass(frozen=True)
class Form:
    """`kind`: a floating type by numpy's name, "int4", "int8", or "nf4"; `block`: numbers that share a scale, or 0."""

    kind: str
    block: int = 0

    def __str__(self) -> str:
        return f"{self.kind} in blocks of {self.block}" if self.block else self.kind

    def called(self, word: str) -> bool:
        """Whether a word of a document means this: "int4", "int4_group32", "fp16" for float16."""
        kind, _, group = _SPELLED.get(word, word).partition("_group")
        return kind == self.kind and (not group or group == str(self.block))


_SPELLED = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


@dataclass(frozen=True)
class Held:
    """A weight: its `numbers`, the bytes of all that is stored of it, and how; `read` where a node reads blocks."""

    name: str
    form: Form
    numbers: int
    nbytes: int
    shape: tuple[int, ...]
    read: Blocked | None = None

    @property
    def layer(self) -> int | None:
        """The layer that it belongs to."""
        found = _LAYER.search(self.name)
        return int(found[1]) if found else None


def held(graph: Graph) -> Mapping[str, Held]:
    """The weights outside of the graph, by name; without the ids of a drafter's groups."""
    return once(graph, _held)


def _held(graph: Graph) -> dict[str, Held]:
    parts, reads = parts_of(graph), dict[str, Blocked]()
    for one in blocked(graph):
        reads.setdefault(one.name, one)
    found = dict[str, Held]()
    for name, stored in parts.items():
        weights = [graph.initializers[part] for part in stored]
        first, places = (
            weights[0],
            {(w.external.location, w.external.offset): w for w in weights if w.external},
        )
        nbytes = sum(weight.nbytes for weight in places.values())
        if read := reads.get(name):
            numbers = (read.rows or 0) * (read.columns or 0)
            kind = "nf4" if read.flat else f"int{read.bits}"
            found[name] = Held(name, Form(kind, read.block), numbers, nbytes, (), read)
        elif "float" in first.dtype:
            found[name] = Held(name, Form(first.dtype), math.prod(first.shape), nbytes, first.shape)
    return found


def parts_of(graph: Graph) -> Mapping[str, list[str]]:
    """The external initializers of each weight, by its name."""
    found = dict[str, list[str]]()
    for name, weight in graph.initializers.items():
        if weight.external and name != ORDERING:
            found.setdefault(stem(name), []).append(name)
    return found


def most(weights: Iterable[Held]) -> Form | None:
    """The kind of most numbers, with the block that most of those have."""
    count = Counter[Form]()
    for one in weights:
        count[one.form] += one.numbers
    kinds = Counter[str]()
    for form, numbers in count.items():
        kinds[form.kind] += numbers
    kind = max(kinds, key=lambda kind: kinds[kind], default=None)
    return max((form for form in count if form.kind == kind), key=lambda form: count[form], default=None)
