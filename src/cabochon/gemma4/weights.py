"""What a package stores of a checkpoint, and in which order: known before anything is traced."""

from collections.abc import Iterator, Mapping

from cabochon.checkpoint import Tensor
from cabochon.dialects import Target
from cabochon.dialects.targets import layer_table, row_tables
from cabochon.gemma4.config import TextConfig
from cabochon.gemma4.full_config import FullConfig
from cabochon.gemma4.full_names import COMPONENTS, component_of
from cabochon.gemma4.names import HEAD, LAYERS_TABLE, TABLE
from cabochon.recipes import Precision, Recipe

__all__ = ["drafter_weights", "full_weights", "text_weights"]


def text_weights(
    config: TextConfig, tensors: Mapping[str, Tensor], target: Target, precision: Precision
) -> Iterator[Recipe]:
    """Every weight of the text decoder, in the order of the data file: that of `tensors`, canonical names.

    They are those that `trace_text` asks for; a build fails where they differ.
    """
    for name, tensor in tensors.items():
        if name == LAYERS_TABLE and target.table_per_layer:
            width = config.per_layer_input
            for i in range(len(config.layers)):
                columns = slice(i * width, (i + 1) * width)
                yield from _tables(layer_table(name, i), tensor, target, precision, columns)
        elif name in (TABLE, HEAD):
            yield from _tables(name, tensor, target, precision, None)
        else:
            yield precision.recipe(name, tensor)


def _tables(
    name: str, tensor: Tensor, target: Target, precision: Precision, columns: slice | None
) -> Iterator[Recipe]:
    """A table, or some of its columns, as the tables of as many rows as the target binds."""
    whole = precision.recipe(name, tensor, columns)
    height, width = whole.shape
    parts = row_tables(name, height, width * whole.itemsize, target.binding)
    for part, rows in parts.items():
        yield precision.recipe(part, tensor, columns, None if len(parts) == 1 else rows)


def full_weights(
    config: FullConfig, tensors: Mapping[str, Tensor], target: Target, precision: Precision
) -> dict[str, tuple[Recipe, ...]]:
    """The weights of each component of a full package, in the order of its data file. A table that is the head of the
    decoder too is among those of both."""
    shares: dict[str, dict[str, Tensor]] = {name: {} for name in COMPONENTS}
    for name, tensor in tensors.items():
        for component in component_of(name, tensors):
            shares[component][name] = tensor
    return {
        name: tuple(text_weights(config.text, share, target, precision))
        for name, share in shares.items()
        if share
    }


def drafter_weights(tensors: Mapping[str, Tensor], precision: Precision) -> Iterator[Recipe]:
    """Every weight of a drafter, in the order of the data file: that of `tensors`, as `trace_drafter` asks for them."""
    return (precision.recipe(name, tensor) for name, tensor in tensors.items())
