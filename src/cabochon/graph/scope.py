"""Checkpoint weights by name: `w / "mlp"` narrows the prefix, `w["weight"]` becomes an initializer on first use."""

from collections.abc import Mapping
from typing import Protocol

import onnx_ir as ir

from cabochon.checkpoint import Tensor
from cabochon.errors import GraphError
from cabochon.graph.stored import Stored
from cabochon.graph.tracer import Tracer, Value

__all__ = ["Scope", "Store"]


class Store(Protocol):
    """How a precision turns a checkpoint tensor into a stored weight."""

    @property
    def dtype(self) -> ir.DataType:
        """The type of ports and activations."""
        ...

    def store(
        self, name: str, tensor: Tensor, columns: slice | None = None, rows: slice | None = None
    ) -> Stored:
        """The tensor, or some of the columns and rows of a 2-D one, under `name`."""
        ...


class Scope:
    """The weights under a prefix. Shapes are asked of the checkpoint, never restated."""

    def __init__(
        self,
        tracer: Tracer,
        tensors: Mapping[str, Tensor],
        store: Store,
        prefix: str = "",
        used: dict[str, Value] | None = None,
    ) -> None:
        self.tracer, self.tensors, self.store, self.prefix = tracer, tensors, store, prefix
        self.used = {} if used is None else used

    def __truediv__(self, name: str) -> "Scope":
        """The scope one name deeper."""
        return Scope(self.tracer, self.tensors, self.store, f"{self.prefix}{name}.", self.used)

    def __contains__(self, name: str) -> bool:
        return self.prefix + name in self.tensors

    def __getitem__(self, name: str) -> Value:
        """The whole tensor as an initializer of the same name."""
        return self._initializer(name, name)

    def part(self, name: str, source: str, columns: slice | None = None, rows: slice | None = None) -> Value:
        """Some columns and rows of the 2-D tensor `source`, as an initializer of their own called `name`."""
        return self._initializer(name, source, columns, rows)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor. Raises GraphError for one that is not there."""
        return self._tensor(name, self.prefix + name).shape

    def _tensor(self, source: str, asked: str) -> Tensor:
        tensor = self.tensors.get(self.prefix + source)
        if tensor is None:
            raise GraphError(
                "the model asks for a weight that the checkpoint's layout does not have", at=asked
            )
        return tensor

    def _initializer(
        self, name: str, source: str, columns: slice | None = None, rows: slice | None = None
    ) -> Value:
        full = self.prefix + name
        if full not in self.used:
            stored = self.store.store(full, self._tensor(source, full), columns, rows)
            self.used[full] = self.tracer.initializer(stored)
        return self.used[full]
