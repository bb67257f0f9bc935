"""The kernels of each execution provider: a table for each, as data beside this file, and how it was got."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

__all__ = ["PROVIDERS", "Kernel", "Operator", "Provider", "Tables", "read"]

Operator = tuple[str, str]  # domain, name; "" is the domain ai.onnx
FOLDER = Path(__file__).parent
_OPEN = 2**31 - 1  # the end of a range of versions that has none
_NUMPY = {"float": "float32", "double": "float64"}  # where numpy calls a type otherwise


@dataclass(frozen=True)
class Kernel:
    """A kernel: the versions of the operator that it is of, and the element types that it takes, as ONNX calls them.

    `first`, `last`: the versions that it is registered for; `last` is None where it goes on until the operator changes.
    `types`: by the name of a type variable, or of a formal parameter; what is not named may be of any type.
    """

    first: int
    last: int | None
    types: Mapping[str, frozenset[str]]

    def of(self, since: int) -> bool:
        """Whether it is of an operator as it has been since a version of its set: as ONNX Runtime matches them."""
        return self.first == since or (self.first < since and self.last is not None and since <= self.last)

    def takes(self, bound: Mapping[str, frozenset[str]]) -> bool:
        """Whether it takes these element types, by type variable and by formal parameter."""
        return all(bound.get(name, frozenset()) <= allowed for name, allowed in self.types.items())


@dataclass(frozen=True)
class Provider:
    """An execution provider of one version of a runtime, and what it has kernels for.

    `source`: how the table was got, and `date` when; `measured`: whether by asking the runtime itself, and not by
    reading. `opset`: the newest operator set of ai.onnx that it takes. `beside`: the provider that runs what this one
    has no kernel for; "" where none does. `typed`: whether the table tells element types apart. `unknown`: operators of
    which nothing is known here; of one that is neither listed nor unknown there is no kernel.
    """

    name: str
    runtime: str
    version: str
    date: str
    source: str
    measured: bool
    opset: int
    beside: str
    typed: bool
    unknown: frozenset[Operator]
    kernels: Mapping[Operator, tuple[Kernel, ...]]

    def has(self, operator: Operator, since: int, bound: Mapping[str, frozenset[str]]) -> bool:
        """Whether there is a kernel of an operator, as it has been since a version of its set, for these types."""
        return any(kernel.of(since) and kernel.takes(bound) for kernel in self.kernels.get(operator, ()))

    @cached_property
    def floats(self) -> Mapping[Operator, frozenset[str]]:
        """The floating types, by numpy's names, that some kernel of each operator takes somewhere."""
        return {operator: _floats(kernels) for operator, kernels in self.kernels.items()}


def _floats(kernels: Iterable[Kernel]) -> frozenset[str]:
    found = {kind for kernel in kernels for allowed in kernel.types.values() for kind in allowed}
    return frozenset(_NUMPY.get(kind, kind) for kind in found if "float" in kind or kind == "double")


class Tables(Mapping[str, Provider]):
    """The providers by name; each table is read when it is first asked for."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = files

    def __getitem__(self, name: str) -> Provider:
        return _table(self._files[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


@cache
def _table(file: str) -> Provider:
    return read(json.loads((FOLDER / file).read_text()))


def read(said: Mapping[str, Any]) -> Provider:
    """A table as its file has it."""
    kernels = {
        (domain, name): tuple(_kernel(*row) for row in rows)
        for domain, operators in said["kernels"].items()
        for name, rows in operators.items()
    }
    unknown = frozenset((domain, name) for domain, words in said["unknown"].items() for name in words.split())
    plain = {key: value for key, value in said.items() if key not in ("kernels", "unknown")}
    return Provider(**plain, unknown=unknown, kernels=kernels)


def _kernel(first: int, last: int | None, types: Mapping[str, str]) -> Kernel:
    return Kernel(first, last, {name: _words(words) for name, words in types.items()})


@cache
def _words(words: str) -> frozenset[str]:
    return frozenset(words.split())


PROVIDERS: Mapping[str, Provider] = Tables(
    {
        "CPUExecutionProvider": "cpu.json",
        "CUDAExecutionProvider": "cuda.json",
        "WebGpuExecutionProvider": "webgpu.json",
        "wasm": "wasm.json",
        "OpenVINO": "openvino.json",
    }
)
