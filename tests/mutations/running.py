"""Make a mistake, trace the component again, and compare."""

import inspect
import sys
import types
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any
from unittest import mock

import cabochon.gemma4.audio
import cabochon.gemma4.embedding
import cabochon.gemma4.trace
import cabochon.gemma4.vision
from cabochon.dialects.standard import Standard
from mutations.comparisons import Comparisons
from mutations.table import Change, Mutation

__all__ = ["LIMIT", "changed", "shown"]

LIMIT = 1e-4
_TRACE: Any = cabochon.gemma4.trace
# What a changed module gives to whom.
_USERS: dict[str, tuple[tuple[Any, str], ...]] = {
    "gemma4.vision": ((_TRACE, "vision_encoder"),),
    "gemma4.audio": ((_TRACE, "audio_encoder"),),
    "gemma4.embedders": ((_TRACE, "vision_embedder"), (_TRACE, "audio_embedder")),
    "gemma4.clipped": ((cabochon.gemma4.vision, "linear"), (cabochon.gemma4.audio, "linear")),
    "gemma4.embedding": ((_TRACE, "embedding"),),
    "gemma4.decoder": (
        (_TRACE, "fed_decoder"),
        (cabochon.gemma4.embedding, "per_layer_inputs"),
        (cabochon.gemma4.embedding, "layer_rows"),
    ),
    "dialects.standard": ((Standard, "sight"), (Standard, "mix")),
}


def changed(change: Change) -> str:
    """The source of the changed module. Raises LookupError where the line is not there once."""
    module, right, wrong = change
    text = inspect.getsource(import_module(f"cabochon.{module}"))
    if text.count(right) != 1:
        raise LookupError(f"cabochon.{module} says {text.count(right)} times: {right}")
    return text.replace(right, wrong)


@contextmanager
def made(mutation: Mutation) -> Generator[None]:
    """Within it the mistake is made."""
    with ExitStack() as stack:
        for change in mutation.changes:
            mutant = types.ModuleType(f"mutant of {change[0]}")
            stack.enter_context(mock.patch.dict(sys.modules, {mutant.__name__: mutant}))
            exec(compile(changed(change), mutant.__name__, "exec"), mutant.__dict__)
            for user, name in _USERS[change[0]]:
                source = mutant.Standard if user is Standard else mutant
                stack.enter_context(mock.patch.object(user, name, getattr(source, name)))
        yield


def shown(comparisons: Comparisons, mutation: Mutation) -> tuple[str, float]:
    """The comparison that shows a mistake most, and its difference.

    Raises what the mutant raises: one that does not run proves nothing.
    """
    with made(mutation):
        return max(comparisons.of(mutation.component), key=lambda each: each[1])
