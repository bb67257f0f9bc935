"""Checkpoint weights by name: `w / "mlp"` narrows the prefix, `w["weight"]` becomes an initializer on first use."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import onnx_ir as ir

from cabochon.checkpoint import Tensor
from cabochon.errors import GraphError
from cabochon.graph.stored import Stored
from cabochon.graph.tracer import Tracer, Value
from cabochon.packing import Scheme

__all__ = ["Blocks", "Scope", "Store"]


class Store(Protocol):
    """How a precision turns a checkpoint tensor into what is stored."""

    @property
    def dtype(self) -> ir.DataType:
        """The type of ports and activations."""
        ...

    def scheme(self, name: str) -> Scheme | None:
        """How a 2-D weight is stored in blocks; None for one that stays floating."""
        ...

    def lies_across(self, name: str) -> bool:
        """Whether what is stored of a weight in blocks is [in, out]."""
        ...

    def row_bytes(self, name: str, columns: int) -> int:
        """Bytes of a row of so many columns of a table."""
        ...

    def store(
        self,
        name: str,
        tensor: Tensor,
        columns: slice | None = None,
        rows: slice | None = None,
        *,
        of: str | None = None,
        width: int | None = None,
    ) -> tuple[Stored, ...]:
        """The tensor `of`, or some of the columns and rows of a 2-D one, under `name`: one initializer, or codes,
        scales and, where there are any, zero points."""
        ...


@dataclass(frozen=True)
class Blocks:
    """A weight in blocks: [rows, columns] are [out, in], or a table's. `across`: its codes lie [columns, rows].

    An initializer is made when it is asked for; the first of those on the same bytes has the weight's own name.
    """

    scope: "Scope"
    stored: tuple[Stored, ...]
    scheme: Scheme
    rows: int
    columns: int
    across: bool

    @property
    def codes(self) -> Value:
        """The codes as they are stored."""
        return self.scope.held(self.stored[0], "codes")

    @property
    def scales(self) -> Value:
        """One for each block."""
        return self.scope.held(self.stored[1])

    @property
    def zero_points(self) -> Value | None:
        """One for each block; None where it is the middle of all codes."""
        return self.scope.held(self.stored[2], "points") if len(self.stored) > 2 else None

    @property
    def parameters(self) -> list[Value]:
        """Scales, and zero points where there are any."""
        return [self.scales] if self.zero_points is None else [self.scales, self.zero_points]

    def seen_as(self, suffix: str, dtype: ir.DataType, shape: tuple[int, ...]) -> Value:
        """The codes in another type or shape. Where their name is taken, `suffix` stands behind it."""
        return self.scope.held(self.stored[0], suffix, dtype, shape)


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
        return self.part(name, name)

    def part(self, name: str, source: str, columns: slice | None = None, rows: slice | None = None) -> Value:
        """Some columns and rows of the 2-D tensor `source`, as an initializer of their own called `name`.

        Raises GraphError for a weight that is stored in blocks: `blocks` knows those.
        """
        stored, *others = self._stored(name, source, columns, rows, None)
        if others:
            raise GraphError("is stored in blocks, and asked for as numbers", at=self.prefix + name)
        return self.held(stored)

    def in_blocks(self, name: str) -> bool:
        """Whether a 2-D weight is stored in blocks."""
        return self.store.scheme(self.prefix + name) is not None

    def blocks(
        self,
        name: str,
        source: str | None = None,
        columns: slice | None = None,
        rows: slice | None = None,
        width: int | None = None,
    ) -> Blocks:
        """A weight in blocks, or some columns and rows of one. `width`: rows are stored as rows of so many numbers."""
        source = source or name
        scheme = self.store.scheme(self.prefix + source)
        if scheme is None:
            raise GraphError("is not stored in blocks", at=self.prefix + source)
        taken = zip((rows, columns), self.shape(source), strict=True)
        height, breadth = (size if part is None else part.stop - part.start for part, size in taken)
        if width is not None:
            height, breadth = height * breadth // width, width
        stored = self._stored(name, source, columns, rows, width)
        return Blocks(self, stored, scheme, height, breadth, self.store.lies_across(self.prefix + source))

    def held(
        self,
        stored: Stored,
        suffix: str = "",
        dtype: ir.DataType | None = None,
        shape: tuple[int, ...] | None = None,
    ) -> Value:
        """The initializer of what is stored, or of the same bytes in another type and shape: one for each form."""
        form = stored if dtype is None or shape is None else stored.seen_as(dtype, shape)
        own = stored.name or ""
        for name in (own, f"{own}_{suffix}"):
            if name not in self.used:
                self.used[name] = self.tracer.initializer(form, name)
            if (value := self.used[name]).dtype == form.dtype and value.shape == form.shape:
                return value
        raise GraphError("is asked for in three forms", at=own)

    def row_bytes(self, name: str, columns: int) -> int:
        """Bytes of a row of so many columns of a table."""
        return self.store.row_bytes(self.prefix + name, columns)

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

    def _stored(
        self, name: str, source: str, columns: slice | None, rows: slice | None, width: int | None
    ) -> tuple[Stored, ...]:
        full, of = self.prefix + name, self.prefix + source
        return self.store.store(full, self._tensor(source, full), columns, rows, of=of, width=width)
