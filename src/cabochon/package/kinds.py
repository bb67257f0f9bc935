"""The kinds of model that are built, as data: how each is read, what it must bring along, what its package says.

Nothing here may import onnx_ir: weights are being written while what traces graphs is still imported.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from cabochon.checkpoint import Tensor
from cabochon.dialects import Target
from cabochon.gemma4 import (
    DrafterConfig,
    FullConfig,
    TextConfig,
    TextTensors,
    drafter_tensors,
    drafter_weights,
    fitted,
    fitted_drafter,
    full_tensors,
    full_weights,
    read_drafter_config,
    read_full_config,
    read_text_config,
    text_tensors,
    text_weights,
)
from cabochon.package.side_files import NEEDED, PROCESSOR
from cabochon.recipes import Precision, Weight

if TYPE_CHECKING:
    from cabochon.package.described import Described

__all__ = ["DRAFTER", "FULL", "KINDS", "TEXT", "Config", "Kind"]

Config = TextConfig | FullConfig | DrafterConfig


@dataclass(frozen=True)
class Kind:
    """A kind of model.

    `needed`: what `side_files` knows of that a checkpoint must have. `read`, `tensors`, `fitted` and `weights` are
    those of `cabochon.gemma4`, the weights by the folder of their graph, "" for the package's own; `head_sizes` are the
    ones that a target must be able to carry. `spelling` names the module and the class that says what a package of this
    kind holds. `component`: what the addresses of its weights begin with, but for those of towers.
    """

    name: str
    needed: tuple[str, ...]
    read: Callable[[Mapping[str, Any]], Any]
    tensors: Callable[[Mapping[str, Tensor], Any], TextTensors]
    fitted: Callable[[Any, Mapping[str, Tensor], Precision], Precision]
    weights: Callable[[Any, Mapping[str, Tensor], Target, Precision], Mapping[str, tuple[Weight, ...]]]
    head_sizes: Callable[[Any], list[int]]
    spelling: str
    component: str = "decoder"

    @property
    def described(self) -> "Described[Any]":
        """What a package of this kind holds beside its weights. Brings onnx_ir with it."""
        module, name = self.spelling.split(".")
        return getattr(import_module(f"cabochon.package.{module}"), name)()


def _text_heads(config: TextConfig) -> list[int]:
    return [layer.head_dim for layer in config.layers]


def _drafter_heads(config: DrafterConfig) -> list[int]:
    return []  # its attention is written out in plain operators where a kernel would ask for more


def _full_heads(config: FullConfig) -> list[int]:
    return _text_heads(config.text)


def _text_fitted(config: TextConfig, tensors: Mapping[str, Tensor], precision: Precision) -> Precision:
    return fitted(tensors, precision, config.per_layer_input)[1]


def _full_fitted(config: FullConfig, tensors: Mapping[str, Tensor], precision: Precision) -> Precision:
    return _text_fitted(config.text, tensors, precision)


def _drafter_fitted(config: DrafterConfig, tensors: Mapping[str, Tensor], precision: Precision) -> Precision:
    return fitted_drafter(tensors, precision)[1]


def _text_weights(
    config: TextConfig, tensors: Mapping[str, Tensor], target: Target, precision: Precision
) -> Mapping[str, tuple[Weight, ...]]:
    return {"": tuple(text_weights(config, tensors, target, precision))}


def _drafter_weights(
    config: DrafterConfig, tensors: Mapping[str, Tensor], target: Target, precision: Precision
) -> Mapping[str, tuple[Weight, ...]]:
    return {"": tuple(drafter_weights(tensors, precision))}


TEXT = Kind(
    "text",
    NEEDED,
    read_text_config,
    text_tensors,
    _text_fitted,
    _text_weights,
    _text_heads,
    "text_package.TextPackage",
)
FULL = Kind(
    "full",
    (*NEEDED, PROCESSOR),
    read_full_config,
    full_tensors,
    _full_fitted,
    full_weights,
    _full_heads,
    "full_package.FullPackage",
)
DRAFTER = Kind(
    "drafter",
    (),
    read_drafter_config,
    drafter_tensors,
    _drafter_fitted,
    _drafter_weights,
    _drafter_heads,
    "drafter_package.DrafterPackage",
    "drafter",
)
KINDS = {kind.name: kind for kind in (TEXT, FULL, DRAFTER)}
