"""What a package stores of a checkpoint, and in which order: known before anything is traced."""

from collections.abc import Iterator, Mapping

from cabochon.checkpoint import Tensor
from cabochon.dialects import Target
from cabochon.dialects.targets import layer_table
from cabochon.gemma4.config import TextConfig
from cabochon.gemma4.names import LAYERS_TABLE
from cabochon.recipes import Precision, Recipe

__all__ = ["drafter_weights", "text_weights"]


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
                yield precision.recipe(layer_table(name, i), tensor, columns)
        else:
            yield precision.recipe(name, tensor)


def drafter_weights(tensors: Mapping[str, Tensor], precision: Precision) -> Iterator[Recipe]:
    """Every weight of a drafter, in the order of the data file: that of `tensors`, as `trace_drafter` asks for them."""
    return (precision.recipe(name, tensor) for name, tensor in tensors.items())
