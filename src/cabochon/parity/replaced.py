"""The reference on the weights of a quantized package, and with the rounding of its kernels.

Both are put into transformers' model as it is: its formulas stay what they are.
"""

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import numpy as np

from cabochon.errors import ParityError
from cabochon.parity.dequantized import HEAD, TABLE, Dequantized

__all__ = ["INT8", "REPLACED", "Standin", "spellings"]

INT8 = "+int8"
"""Behind the name of an arithmetic: what weights in blocks are multiplied with is rounded to int8, block by block."""
REPLACED = (
    "the checkpoint's, but those that the package has in blocks are what its own codes, scales and zero points stand "
    "for, in float32; read from the bytes of its graphs, as the operators that read them are specified"
)

SPELLED = (
    ("model.", "model.language_model."),
    ("model.vision_embedder.", "model.embed_vision."),
    (".embedding_projection", ".multimodal_embedder.embedding_projection"),
)
"""What stands in a name of a package, and in transformers': of a text model in a whole one, and of a unified model,
whose parts of vision it holds in one module."""


class Standin:
    """A model whose weights are those of a package, where that has them in blocks.

    differences: by weight, how far it is from the checkpoint's: root of the mean square, relative to the checkpoint's.
    """

    def __init__(self, torch: Any, model: Any, weights: Dequantized) -> None:
        self._torch, self._model, self._weights = torch, model, weights
        self.differences: dict[str, float] = {}

    @contextmanager
    def computing(self, arithmetic: str) -> Generator[Any]:
        """The model in an arithmetic: "f32", "f16", "f32+int8" ...

        A model in halves that is asked for f32 stays f32; weights are put in again, as halves do not hold them.
        """
        torch, model = self._torch, self._model
        if arithmetic.removesuffix(INT8) == "f32":
            model.float()
        with torch.no_grad():
            self._put()
        with ExitStack() as hooks:
            for weight in self._weights.weights:
                if arithmetic.endswith(INT8) and weight.rounding and weight.multiplied:
                    module = self._module(HEAD if weight.name == TABLE else weight.name)
                    hooks.callback(module.register_forward_pre_hook(_rounding(torch, weight.rounding)).remove)
            yield model

    def described(self) -> dict[str, Any]:
        """Which weights it had, where they are not the checkpoint's."""
        return {"weights": REPLACED, "replaced": self._weights.kinds} if self._weights.weights else {}

    def _put(self) -> None:
        table = self._model.get_input_embeddings().weight
        if (
            self._weights.head_floats and self._module(HEAD).weight is table
        ):  # the checkpoint's stays in the head
            made = self._torch.nn.Parameter(table.detach().clone(), requires_grad=False)
            self._module(HEAD).weight = made
        shapes = {w.name: tuple(self._parameter(w.name).shape) for w in self._weights.weights}
        for name, values in self._weights.place(shapes):
            parameter = self._parameter(name)
            if name not in self.differences:
                self.differences[name] = _apart(values, parameter.float().numpy())
            made = self._torch.from_numpy(np.ascontiguousarray(values)).to(parameter.dtype)
            if name == HEAD and parameter is table:  # tied no longer
                self._module(HEAD).weight = self._torch.nn.Parameter(made, requires_grad=False)
            else:
                parameter.copy_(made)

    def _module(self, name: str) -> Any:
        """The part of transformers' model that multiplies with the weight of this name in a package."""
        return self._found(name.removesuffix(".weight"), self._model.get_submodule)

    def _parameter(self, name: str) -> Any:
        """transformers' weight of this name in a package; those of all experts of a layer are one."""
        return self._found(name, self._model.get_parameter)

    def _found(self, name: str, get: Callable[[str], Any]) -> Any:
        for spelled in spellings(name):
            with suppress(AttributeError):
                return get(spelled)
        raise ParityError(
            f"the package has a weight {name} in blocks; the reference has none of this name",
            remedy="name the checkpoint this package was built from",
        )


def spellings(name: str) -> tuple[str, ...]:
    """What transformers may call a weight, or a module, of this name in a package; see `SPELLED`."""
    changed = (name.replace(ours, theirs, 1) for ours, theirs in SPELLED)
    return tuple(dict.fromkeys((name, *changed)))


def _apart(values: np.ndarray, own: np.ndarray) -> float:
    size = float(np.linalg.norm(own))
    return float(np.linalg.norm(values - own)) / size if size else float(np.abs(values).max(initial=0.0))


def _rounding(torch: Any, block: int) -> Any:
    """Rounds what a module is given, as a CPU kernel of accuracy level 4 does: by 1/127 of the largest of a block."""

    def round_input(_: Any, given: tuple[Any, ...]) -> tuple[Any, ...]:
        x = given[0]
        width = x.shape[-1]
        padded = torch.nn.functional.pad(x.float(), (0, -width % block))
        blocks = padded.unflatten(-1, (-1, block))
        scale = blocks.abs().amax(-1, keepdim=True) / 127
        levels = torch.round(blocks * torch.where(scale > 0, 1 / scale, 0.0))  # by the inverse, as there
        return ((levels * scale).flatten(-2)[..., :width].to(x.dtype), *given[1:])

    return round_input
