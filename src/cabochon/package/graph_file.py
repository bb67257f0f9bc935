"""The bytes of model.onnx: the traced model with references in the place of its weights."""

import onnx_ir as ir

from cabochon.errors import GraphError
from cabochon.graph import Stored
from cabochon.package.layout import Layout

__all__ = ["serialize", "stored_weights"]


def serialize(model: ir.Model, layout: Layout) -> bytes:
    """The bytes of model.onnx, the same for the same model; its weights are references to where they lie.

    The model's `Stored` initializers are replaced by these references. Raises GraphError where they are not the
    weights that `layout` places.
    """
    weights = {weight.name or "": weight for weight in stored_weights(model)}
    if odd := sorted(weights.keys() ^ layout.places.keys()):
        raise GraphError("is in the graph or in the data file, and must be in both", at=", ".join(odd))
    for graph in model.graphs():
        for value in graph.initializers.values():
            if isinstance(weight := value.const_value, Stored):
                value.const_value = _reference(weight, layout, value.name or "")
    return ir.to_proto(model).SerializeToString(deterministic=True)


def stored_weights(model: ir.Model) -> list[Stored]:
    """The weights of the model, each once, in the order in which its nodes first ask for them."""
    found: dict[str, Stored] = {}
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        for value in node.inputs:
            if value is not None and isinstance(value.const_value, Stored):
                found.setdefault(value.const_value.name or "", value.const_value)
    for value in model.graph.initializers.values():  # a weight that is an output, or that nothing uses
        if isinstance(value.const_value, Stored):
            found.setdefault(value.const_value.name or "", value.const_value)
    return list(found.values())


def _reference(weight: Stored, layout: Layout, name: str) -> ir.ExternalTensor:
    """Where the weight's bytes lie, for the initializer `name`, which may be another sight of them."""
    place = layout.places[weight.name or ""]
    if weight.nbytes != place.nbytes:
        raise GraphError(f"takes {weight.nbytes} bytes; {place.nbytes} were written", at=name)
    return ir.ExternalTensor(
        place.location, place.offset, place.nbytes, weight.dtype, shape=weight.shape, name=name
    )
