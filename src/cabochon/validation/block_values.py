"""The rules on what is in the blocks of weights: scales that are scales, blocks that belong to one layer."""

from collections.abc import Iterator

import numpy as np

from cabochon.errors import PackageError
from cabochon.validation.blocks import blocked
from cabochon.validation.findings import Severity
from cabochon.validation.opened import Opened
from cabochon.validation.rules import Found, rule

__all__: list[str] = []

_LAYERS_TABLE = "embed_tokens_per_layer.weight"


@rule("HYG005", Severity.ERROR, ("graphs", "weights"))
def negative_scale(package: Opened) -> Iterator[Found]:
    """A scale of a block with a zero point is negative.

    Causes: bytes that belong to something else; another writer's format, in which the zero point is meant otherwise.
    Codes grow with the numbers that they stand for, so that a scale is negative only where there is no zero point.
    Remedy: build the package again; compare with the checkpoint (--source).
    """
    for graph in package.graphs.values():
        named = {one.scales for one in blocked(graph) if one.zero_points}
        for name in sorted(named & graph.initializers.keys()):
            try:
                count = int(np.count_nonzero(graph.array(name) < 0))
            except PackageError:
                continue  # the rules on files say so
            if count:
                yield Found(f"{graph.path}: {name}", f"{count} negative scales", "scales of 0 or more")


@rule("HYG006", Severity.ERROR, ("graphs", "config"))
def block_of_two_layers(package: Opened) -> Iterator[Found]:
    """A block of the per-layer table holds numbers of two layers.

    Causes: the table's rows were cut into blocks as they lie, and a layer's share is no multiple of the block. The
    scale of one layer is then that of its neighbour.
    Remedy: build the package again: a row of the table in blocks is the share of one layer.
    """
    config = package.config
    assert config is not None
    width = config.per_layer_input
    for graph in package.graphs.values() if width else ():
        for one in blocked(graph):
            whole = one.name.endswith(_LAYERS_TABLE) and (one.rows or 0) < config.vocab_per_layer * len(
                config.layers
            )
            if whole and one.block > 0 and width % one.block:
                found = f"rows of {one.columns} numbers in blocks of {one.block}"
                yield Found(f"{graph.path}: {one.name}", found, f"blocks within the {width} of a layer")
