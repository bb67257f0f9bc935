"""The source: with the checkpoint at hand, every weight is derived again and compared."""

from collections.abc import Iterator, Mapping

import numpy as np

from cabochon.checkpoint import Checkpoint
from cabochon.dialects import TARGETS
from cabochon.errors import PackageError
from cabochon.gemma4 import read_text_config, text_tensors, trace_text
from cabochon.graph import Stored
from cabochon.recipes import PRECISIONS
from cabochon.validate.findings import Severity
from cabochon.validate.graph import Graph
from cabochon.validate.opened import Opened
from cabochon.validate.rules import Found, rule

_NEEDS = ("graphs", "source")


@rule("SRC001", Severity.ERROR, _NEEDS)
def other_weights(package: Opened) -> Iterator[Found]:
    """A weight is not what the checkpoint gives.

    Causes: A package of another checkpoint or another revision of it; bytes that were changed after the build, with
    their checksums.
    Remedy: Compare with the checkpoint and the revision that provenance.json names, or build again.
    """
    graph = package.decoder
    if graph is None or package.source is None:
        return
    for name, stored in _derived(package.source, graph).items():
        if name not in graph.initializers:
            yield Found(f"{graph.path}: {name}", "no such weight", "one, as the checkpoint gives it")
        elif difference := _difference(graph, name, stored):
            yield Found(f"{graph.path}: {name}", difference, f"the bytes that {package.source.source} gives")


def _derived(checkpoint: Checkpoint, graph: Graph) -> Mapping[str, Stored]:
    """The weights as a build from the checkpoint would write them."""
    target = TARGETS.get(graph.properties.get("cabochon.target", ""))
    precision = PRECISIONS.get(graph.properties.get("cabochon.precision", ""))
    if target is None or precision is None:
        found = "its properties name no target and precision of cabochon"
        raise PackageError(found, at=graph.path, remedy="compare a package that cabochon built")
    config = read_text_config(checkpoint.config)
    tensors = text_tensors(checkpoint.tensors, config).used
    model = trace_text(config, tensors, target, precision)
    values = ((name, value.const_value) for name, value in model.graph.initializers.items())
    return {name: value for name, value in values if isinstance(value, Stored)}


def _difference(graph: Graph, name: str, stored: Stored) -> str:
    """Where the package's bytes differ from those derived; "" where they are the same."""
    weight = graph.initializers[name]
    shape, dtype = stored.shape.numpy(), stored.dtype.numpy().name
    if (weight.dtype, weight.shape) != (dtype, shape):
        return f"{weight.dtype} {list(weight.shape)}, where the checkpoint gives {dtype} {list(shape)}"
    raw, start = np.ascontiguousarray(graph.array(name)).reshape(-1).view(np.uint8), 0
    for block in stored.blocks():
        expected = block.reshape(-1).view(np.uint8)
        if not np.array_equal(raw[start : start + expected.size], expected):
            at = start + int(np.argmax(raw[start : start + expected.size] != expected))
            return f"another byte at {at} of {raw.size}"
        start += expected.size
    return ""
