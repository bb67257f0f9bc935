"""The table of precisions."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cabochon.checkpoint import Tensor
from cabochon.recipes.recipe import Recipe

if TYPE_CHECKING:  # both bring onnx_ir with them: a build writes weights while that is still being imported
    import onnx_ir as ir

    from cabochon.graph import Stored

__all__ = ["PRECISIONS", "Precision"]


@dataclass(frozen=True)
class Precision:
    """One floating type for weights, activations and ports."""

    name: str

    @property
    def dtype(self) -> "ir.DataType":
        """The type of ports and activations."""
        from cabochon.graph import DTYPES

        return DTYPES[self.name]

    def recipe(
        self, name: str, tensor: Tensor, columns: slice | None = None, rows: slice | None = None
    ) -> Recipe:
        """The tensor, or some columns and rows of a 2-D tensor, cast to this precision while it is written.

        Rounds to nearest, ties to even. Writing raises TensorError where a finite value would become infinite.
        Integers (I64) are ids, not weights: they are stored as they are.
        """
        return Recipe(name, tensor, "i64" if tensor.dtype == "I64" else self.name, columns, rows)

    def store(
        self, name: str, tensor: Tensor, columns: slice | None = None, rows: slice | None = None
    ) -> "Stored":
        """What `recipe` says, as an initializer of a graph."""
        from cabochon.graph import DTYPES, Stored

        recipe = self.recipe(name, tensor, columns, rows)
        dtype = DTYPES[recipe.precision]
        return Stored(name, dtype, recipe.shape, recipe.blocks, recipe.sources, recipe.span)


PRECISIONS = {name: Precision(name) for name in ("f32", "f16", "bf16")}
