"""The tensors of a drafter: their layout, and which of them a checkpoint must hold.

Checkpoints spell them as the model's own class does; so do packages. Every tensor is used, or unused with a reason.
"""

import re
from collections.abc import Mapping

import numpy as np

from cabochon.checkpoint import Tensor
from cabochon.errors import TensorError
from cabochon.gemma4 import names
from cabochon.gemma4.drafter_config import Centroids, DrafterConfig
from cabochon.gemma4.names import Shape, TextTensors

__all__ = ["CENTROIDS", "ORDERING", "drafter_shapes", "drafter_tensors"]

ORDERING, CENTROIDS = "masked_embedding.token_ordering", "masked_embedding.centroids.weight"
_KEYS_AND_VALUES = re.compile(r"model\.layers\.\d{1,6}\.self_attn\.(?:k_proj|v_proj|k_norm)\.weight")


def drafter_shapes(config: DrafterConfig) -> dict[str, Shape]:
    """Every tensor of the drafter by name; linear weights are [out, in]. The head is the embedding table."""
    hidden, backbone = config.text.hidden, config.backbone
    shapes = names.expected_shapes(config.text) | {
        "pre_projection.weight": (hidden, 2 * backbone),
        "post_projection.weight": (backbone, hidden),
    }
    if config.centroids is None:
        return shapes
    return shapes | {CENTROIDS: (config.centroids.count, hidden), ORDERING: (config.text.vocab,)}


def drafter_tensors(tensors: Mapping[str, Tensor], config: DrafterConfig) -> TextTensors:
    """Give every tensor its place or the reason why it is unused.

    Raises TensorError with every tensor that is missing, unknown, not of the shape that the config promises, or of a
    dtype other than BF16, F16 and F32 (I64 for the ordering of tokens); for an ordering that is no permutation; and for
    a head of its own, stored beside the embedding table and different from it.
    """
    shapes = drafter_shapes(config)
    used = {name: tensors[name] for name in shapes if name in tensors}
    reasons = {name: _reason(name, tensors, config) for name in tensors if name not in used}
    floats = {name: tensor for name, tensor in used.items() if name != ORDERING}
    names.refuse(
        {
            "missing": [name for name in shapes if name not in used],
            "unknown": [name for name, reason in reasons.items() if not reason and name != names.HEAD],
            "head other than model.embed_tokens.weight": [
                name for name in (names.HEAD,) if reasons.get(name) == ""
            ],
            "wrong shape": names.misshapen(shapes, used),
            "wrong dtype": names.other_dtypes(floats),
        }
    )
    if config.centroids is not None:
        _check_ordering(used[ORDERING], config.centroids)
    return TextTensors(used, reasons)


def _reason(name: str, tensors: Mapping[str, Tensor], config: DrafterConfig) -> str:
    """Why a tensor that a drafter does not use may be there; "" if nothing explains it."""
    if name == names.HEAD and names.same_values(tensors[name], tensors.get(names.TABLE)):
        return "the head is tied: these are the bytes of embed_tokens.weight"
    if _KEYS_AND_VALUES.fullmatch(name):
        return "a drafter reads the keys and values of the model it drafts for"
    if name in (ORDERING, CENTROIDS) and config.centroids is None:
        return "use_ordered_embeddings is false: the head is dense"
    return ""


def _check_ordering(ordering: Tensor, centroids: Centroids) -> None:
    """The ids of the first group, then those of the second ...: each token once, or a logit would be written twice."""
    if ordering.dtype != "I64":
        raise TensorError(f"is {ordering.dtype}; expected I64, ids of tokens", at=ordering.name)
    ids = ordering.array()
    outside = (ids < 0) | (ids >= len(ids))
    if outside.any():
        what = f"holds {ids[outside][0]} at {int(outside.argmax())}; expected ids from 0 to {len(ids) - 1}"
    elif len(twice := np.flatnonzero(np.bincount(ids, minlength=len(ids)) > 1)):
        places = np.flatnonzero(ids == twice[0])
        what = f"holds the token {twice[0]} at {places[0]} and at {places[1]}; expected every token once"
    else:
        return
    raise TensorError(
        what,
        at=ordering.name,
        remedy=f"it must list the tokens of {centroids.count} groups, each token in one of them; download it again",
    )
