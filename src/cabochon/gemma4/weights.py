"""What a package stores of a checkpoint, and in which order: known before anything is traced."""

from collections.abc import Iterator, Mapping

from cabochon.checkpoint import Tensor
from cabochon.dialects import Target
from cabochon.dialects.targets import layer_table, row_tables
from cabochon.gemma4.config import TextConfig
from cabochon.gemma4.fitting import fitted, fitted_drafter
from cabochon.gemma4.full_config import FullConfig
from cabochon.gemma4.full_names import COMPONENTS, component_of
from cabochon.gemma4.names import EXPERTS, HEAD, LAYERS_TABLE, TABLE
from cabochon.recipes import Precision, Weight

__all__ = ["drafter_weights", "full_weights", "text_weights"]


def text_weights(
    config: TextConfig, tensors: Mapping[str, Tensor], target: Target, precision: Precision
) -> Iterator[Weight]:
    """Every weight of the text decoder, in the order of the data file: that of `tensors`, canonical names.

    They are those that `trace_text` asks for; a build fails where they differ.
    """
    tensors, precision = fitted(tensors, precision, config.per_layer_input)
    yield from _weights(config, tensors, target, precision)


def _weights(
    config: TextConfig, tensors: Mapping[str, Tensor], target: Target, precision: Precision
) -> Iterator[Weight]:
    width = config.per_layer_input
    for name, tensor in tensors.items():
        if name == LAYERS_TABLE and target.table_per_layer:
            for i in range(len(config.layers)):
                columns = slice(i * width, (i + 1) * width)
                yield from _tables(layer_table(name, i), name, tensor, target, precision, columns)
        elif name == LAYERS_TABLE:
            yield from precision.weights(name, tensor, width=width)
        elif name in (TABLE, HEAD) or EXPERTS in name:
            yield from _tables(name, name, tensor, target, precision, None)
        else:
            yield from precision.weights(name, tensor)


def _tables(
    name: str, of: str, tensor: Tensor, target: Target, precision: Precision, columns: slice | None
) -> Iterator[Weight]:
    """A table, or some of its columns, as the tables of as many rows as the target binds."""
    height, width = tensor.shape
    width = width if columns is None else columns.stop - columns.start
    parts = row_tables(name, height, precision.row_bytes(of, width), target.binding)
    for part, rows in parts.items():
        yield from precision.weights(part, tensor, columns, None if len(parts) == 1 else rows, of=of)


def full_weights(
    config: FullConfig, tensors: Mapping[str, Tensor], target: Target, precision: Precision
) -> dict[str, tuple[Weight, ...]]:
    """The weights of each component of a full package, in the order of its data file. A table that is the head of the
    decoder too is among those of both."""
    tensors, precision = fitted(tensors, precision, config.text.per_layer_input)
    shares: dict[str, dict[str, Tensor]] = {name: {} for name in COMPONENTS}
    for name, tensor in tensors.items():
        for component in component_of(name, tensors):
            shares[component][name] = tensor
    return {
        name: tuple(_weights(config.text, share, target, precision))
        for name, share in shares.items()
        if share
    }


def drafter_weights(tensors: Mapping[str, Tensor], precision: Precision) -> Iterator[Weight]:
    """Every weight of a drafter, in the order of the data file: that of `tensors`, as `trace_drafter` asks for them."""
    tensors, precision = fitted_drafter(tensors, precision)
    for name, tensor in tensors.items():
        yield from precision.weights(name, tensor)
