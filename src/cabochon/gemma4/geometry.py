"""What config.json says of the layers: their kinds, owners of caches, head sizes, rotation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cabochon.section import Section

__all__ = ["FULL", "SLIDING", "Layer", "Rope", "frequencies", "read_layers", "read_rope"]

SLIDING, FULL = "sliding_attention", "full_attention"
_MOST_LAYERS = 10_000  # the largest of the family has 60; more is a typing error that would take all memory


@dataclass(frozen=True)
class Layer:
    """One decoder layer. `cache` is the layer whose keys and values it reads: itself if it owns some, -1 where they are
    another model's."""

    kind: str
    head_dim: int
    kv_heads: int
    cache: int
    shares_kv: bool
    window: int | None
    k_eq_v: bool
    intermediate: int


@dataclass(frozen=True)
class Rope:
    """Pair j of the first `partial` of all pairs rotates by position / theta ** (2j / head_dim) / factor."""

    theta: float
    partial: float
    factor: float


def read_layers(text: Section) -> tuple[Layer, ...]:
    """One Layer for each decoder layer; the last is full attention whatever is written."""
    kinds = _kinds(text)
    first_shared = _first_shared(text, kinds)
    geometry = _geometry(text, kinds)
    width = text.integer("intermediate_size")
    wide = 2 if text.flag("use_double_wide_mlp", False) else 1
    k_eq_v = text.flag("attention_k_eq_v", False)
    owner = {kind: i for i, kind in enumerate(kinds[:first_shared])}
    return tuple(
        Layer(
            kind=kind,
            head_dim=geometry[kind][0],
            kv_heads=geometry[kind][1],
            cache=owner[kind] if i >= first_shared else i,
            shares_kv=i >= first_shared,
            window=text.integer("sliding_window") if kind == SLIDING else None,
            k_eq_v=k_eq_v and kind == FULL,
            intermediate=width * wide if i >= first_shared else width,
        )
        for i, kind in enumerate(kinds)
    )


def _kinds(text: Section) -> list[str]:
    count = text.integer("num_hidden_layers", maximum=_MOST_LAYERS)
    written: Any = text.values.get("layer_types")
    if written is None:  # every sixth is full, the default of transformers
        written = [SLIDING if (i + 1) % 6 else FULL for i in range(count)]
    if not isinstance(written, list) or any(kind not in (SLIDING, FULL) for kind in written):
        raise text.error("layer_types", f"is {written!r:.200}; expected a list of {SLIDING!r} and {FULL!r}")
    if len(written) != count:
        raise text.error("layer_types", f"has {len(written)} entries; num_hidden_layers is {count}")
    return [*written[:-1], FULL]


def _first_shared(text: Section, kinds: Sequence[str]) -> int:
    """The first layer that borrows keys and values; each kind that borrows must have an owner."""
    shared = text.integer("num_kv_shared_layers", 0, minimum=0)
    first = len(kinds) - shared
    if first < 1:
        what = f"is {shared} of {len(kinds)} layers; a text model owns the cache of one layer at least"
        raise text.error("num_kv_shared_layers", what)
    if orphans := set(kinds[first:]) - set(kinds[:first]):
        what = f"is {shared}: no layer before {first} is {orphans.pop()}, and a later one borrows from it"
        raise text.error("num_kv_shared_layers", what)
    return first


def _geometry(text: Section, kinds: Sequence[str]) -> dict[str, tuple[int, int]]:
    """(head_dim, kv_heads) of each kind, from either spelling; where both are given they must agree."""
    own_heads = text.optional_integer("num_global_key_value_heads")
    published = {
        "global_head_dim": text.optional_integer("global_head_dim"),
        # transformers reads it only where keys are values
        "num_global_key_value_heads": own_heads if text.flag("attention_k_eq_v", False) else None,
    }
    if "per_layer_config" not in text:
        return _published_geometry(text, *published.values())
    saved = _saved_geometry(text, kinds)
    for (key, value), found in zip(published.items(), saved[FULL], strict=True):
        if value is not None and value != found:
            what = f"is {value}, but per_layer_config gives full layers {found}"
            raise text.error(key, what, "both spellings of one fact must agree: remove the wrong one")
    return saved


def _published_geometry(
    text: Section, head_dim: int | None, kv_heads: int | None
) -> dict[str, tuple[int, int]]:
    """As published: full layers have a head size of their own, 512 where none is given."""
    sliding = text.integer("head_dim"), text.integer("num_key_value_heads")
    return {SLIDING: sliding, FULL: (head_dim or 512, kv_heads or sliding[1])}


def _saved_geometry(text: Section, kinds: Sequence[str]) -> dict[str, tuple[int, int]]:
    """As saved by transformers since 5.15: overrides by layer. Layers of a kind must agree."""
    overrides = _overrides(text, len(kinds))
    result: dict[str, tuple[int, int]] = {}
    for i, kind in enumerate(kinds):
        layer = Section({**text.values, **overrides.get(i, {})}, f"{text.at}: per_layer_config: {i}")
        found = layer.integer("head_dim"), layer.integer("num_key_value_heads")
        if result.setdefault(kind, found) != found:
            what = f"layer {i} has (head_dim, num_key_value_heads) {found}, another {kind} {result[kind]}"
            raise text.error("per_layer_config", what)
    return result


def _overrides(text: Section, count: int) -> dict[int, Mapping[str, Any]]:
    """Layer -> what per_layer_config says of it. Its keys may be padded with zeros."""
    section = text.section("per_layer_config")
    result: dict[int, Mapping[str, Any]] = {}
    for key in section.values:
        index = int(key) if key.isascii() and key.isdigit() and len(key) < 10 else count
        if index >= count or index in result:
            raise section.error(key, f"is not a layer from 0 to {count - 1}, or is given twice")
        layer = section.section(key)
        layer.refuse_unknown(("head_dim", "num_key_value_heads"))
        result[index] = layer.values
    return result


# What transformers takes where rope_parameters is absent.
_DEFAULT_ROPE = {
    SLIDING: {"rope_type": "default", "rope_theta": 10_000.0},
    FULL: {"rope_type": "proportional", "rope_theta": 1_000_000.0, "partial_rotary_factor": 0.25},
}


def read_rope(text: Section, kinds: Sequence[str]) -> dict[str, Rope]:
    """The rotation of each of `kinds`."""
    if text.values.get("rope_parameters") is None:
        text = Section({"rope_parameters": _DEFAULT_ROPE}, text.at)
    section = text.section("rope_parameters")
    section.refuse_unknown((SLIDING, FULL))
    return {kind: _one_rope(section.section(kind)) for kind in sorted(kinds)}


def _one_rope(section: Section) -> Rope:
    section.refuse_unknown(("rope_type", "rope_theta", "partial_rotary_factor", "factor"))
    kind = section.values.get("rope_type")
    partial = section.positive("partial_rotary_factor", 1.0)
    factor = section.positive("factor", 1.0, minimum=1e-6)  # the angle of any position stays finite
    if kind not in ("default", "proportional"):
        raise section.error("rope_type", f"is {kind!r}; expected 'default' or 'proportional'")
    if kind == "default" and (partial, factor) != (1.0, 1.0):
        what = "is 'default', which rotates every pair: partial_rotary_factor and factor do not apply"
        raise section.error("rope_type", what)
    if partial > 1:
        raise section.error("partial_rotary_factor", f"is {partial}; expected a share, 1 at most")
    return Rope(section.positive("rope_theta", minimum=1.0), partial, factor)


def frequencies(rope: Rope, size: int) -> np.ndarray:
    """How fast each pair of a head turns, f32 [D/2]. "proportional" turns only the first pairs, the rest stand still;
    the exponent runs over the whole head either way. Computed in f32, as the reference does."""
    turning = int(rope.partial * size // 2)
    exponent = np.arange(0, 2 * turning, 2, dtype=np.float32) / np.float32(size)
    turn = (1.0 / np.float32(rope.theta) ** exponent / np.float32(rope.factor)).astype(np.float32)
    return np.concatenate([turn, np.zeros(size // 2 - turning, np.float32)])
