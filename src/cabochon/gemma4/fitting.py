"""What a precision must know of a model: which weights are tables, and whether a table is the head too."""

from collections.abc import Mapping

from cabochon.checkpoint import Tensor
from cabochon.gemma4.drafter_names import CENTROIDS
from cabochon.gemma4.names import EXPERTS, HEAD, LAYERS_TABLE, TABLE
from cabochon.recipes import Precision, Table

__all__ = ["fitted", "fitted_drafter"]

Fitted = tuple[Mapping[str, Tensor], Precision]


def fitted(tensors: Mapping[str, Tensor], precision: Precision, width: int) -> Fitted:
    """The weights of a model that generates by itself, and the precision for them. `width`: of a per-layer input.

    A tied head whose weights are stored otherwise than those of the look-up becomes a weight of its own.
    """
    precision = precision.fitted("decoder", {})
    tables = {
        name: Table(tensor.shape[1], False, True) for name, tensor in tensors.items() if EXPERTS in name
    }
    tables |= {LAYERS_TABLE: Table(width, False)}
    if TABLE in tensors:
        if HEAD not in tensors and precision.scheme(HEAD) != precision.scheme(TABLE):
            tensors = {**tensors, HEAD: tensors[TABLE]}
        tables[TABLE] = Table(tensors[TABLE].shape[1], HEAD not in tensors)
    return tensors, precision.fitted("decoder", tables)


def fitted_drafter(tensors: Mapping[str, Tensor], precision: Precision) -> Fitted:
    """The same of a drafter. It looks tokens up to score those of some centroids; without any its table is its head."""
    precision = precision.fitted("drafter", {})
    if CENTROIDS in tensors:
        return tensors, precision.fitted("drafter", {TABLE: Table(tensors[TABLE].shape[1], False)})
    if precision.scheme(HEAD) != precision.scheme(TABLE):
        tensors = {HEAD if name == TABLE else name: tensor for name, tensor in tensors.items()}
    return tensors, precision
