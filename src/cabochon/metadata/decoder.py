"""What the documents of a decoder are derived from: the traced graph, the config, the tokenizer files."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, cast

import onnx_ir as ir

from cabochon.errors import GraphError
from cabochon.gemma4 import TextConfig
from cabochon.metadata.ports import Port, Ports, read
from cabochon.metadata.vocabulary import Vocabulary
from cabochon.metadata.weights import Weights, read_weights

__all__ = ["Cache", "Decoder", "Kind", "read_decoder"]

Part = Literal["key", "value"]
Kind = Literal["sliding_attention", "full_attention"]

_FED = ("input_ids", "inputs_embeds", "per_layer_inputs")
_PAST = re.compile(r"past_key_values\.(\d+)\.(key|value)")


@dataclass(frozen=True)
class Cache:
    """One of the two tensors that an owner remembers, [batch, heads, positions, size]."""

    layer: int
    part: Part
    kind: Kind
    past: Port
    present: Port

    @property
    def cell(self) -> str:
        """The name of its state cell."""
        return f"kv.{self.layer}.{self.part}"


@dataclass(frozen=True)
class Decoder:
    """A decoder: `ports` and `caches` as its graph has them, `in_place` where one buffer may be past and present.

    It takes tokens, or embeddings of them that another graph makes.

    `properties` are the metadata properties of the graph. `vocabulary` is None for a package without a tokenizer;
    `generation` is generation_config.json, empty where the package has none. `name` is that of its component;
    `weights` what the graph holds.
    """

    ports: Ports
    caches: tuple[Cache, ...]
    in_place: bool
    properties: Mapping[str, str]
    config: TextConfig
    vocabulary: Vocabulary | None
    generation: Mapping[str, Any]
    artifact: str = "model.onnx"
    name: str = "decoder"
    weights: Weights = field(default_factory=Weights)

    @property
    def fed(self) -> tuple[str, ...]:
        """The inputs that stand for the tokens of a call, each [batch, sequence, ...]."""
        return tuple(name for name in _FED if name in self.ports.inputs)

    @property
    def hidden(self) -> str | None:
        """The output that carries the hidden states after the final norm."""
        return next((name for name in self.ports.outputs if name.startswith("hidden_states.")), None)

    @property
    def logits(self) -> Port:
        """[batch, kept, vocabulary]"""
        return self.ports.outputs["logits"]

    @cached_property
    def anchors(self) -> dict[Kind, int]:
        """The last owner of each kind: the layer whose caches those read that own none, a drafter among them."""
        return {kind: max(cache.layer for cache in caches) for kind, caches in self.groups.items()}

    @cached_property
    def groups(self) -> dict[Kind, tuple[Cache, ...]]:
        """The caches by the kind of their layer, in the order in which the kinds first come."""
        kinds: dict[Kind, None] = dict.fromkeys(cache.kind for cache in self.caches)
        return {kind: tuple(c for c in self.caches if c.kind == kind) for kind in kinds}


def read_decoder(
    model: ir.Model,
    config: TextConfig,
    vocabulary: Vocabulary | None,
    generation: Mapping[str, Any],
    artifact: str = "model.onnx",
) -> Decoder:
    """The facts of a traced or loaded decoder. Raises GraphError where its ports are not those of one."""
    ports = read(model)
    tokens = "inputs_embeds" if "inputs_embeds" in ports.inputs else "input_ids"
    for name, side in (
        (tokens, ports.inputs),
        ("attention_mask", ports.inputs),
        ("logits", ports.outputs),
    ):
        if name not in side:
            raise GraphError("there is no such port; expected a decoder's", at=name)
    caches = tuple(_caches(ports, config))
    in_place = all(_in_place(model, cache) for cache in caches)
    properties = dict(model.metadata_props)
    return Decoder(
        ports,
        caches,
        in_place,
        properties,
        config,
        vocabulary,
        generation,
        artifact,
        weights=read_weights(model),
    )


def _caches(ports: Ports, config: TextConfig) -> Iterator[Cache]:
    for name, past in ports.inputs.items():
        if match := _PAST.fullmatch(name):
            layer, part = int(match[1]), cast(Part, match[2])
            present = f"present.{layer}.{part}"
            if present not in ports.outputs or layer >= len(config.layers):
                raise GraphError(
                    f"no output {present!r}, or no layer {layer} in config.json; expected both", at=name
                )
            if len(past.shape) != 4:
                raise GraphError(
                    f"its shape is {list(past.shape)}; expected [batch, heads, positions, size]", at=name
                )
            kind = cast(Kind, config.layers[layer].kind)
            yield Cache(layer, part, kind, past, ports.outputs[present])


def _in_place(model: ir.Model, cache: Cache) -> bool:
    """GroupQueryAttention writes into its past where present is the same buffer; nothing else reads the past's data."""
    past = next(value for value in model.graph.inputs if value.name == cache.past.name)
    readers = {user.op_type for user, _ in past.uses()} - {"Shape"}
    present = next(value for value in model.graph.outputs if value.name == cache.present.name)
    maker = present.producer()
    return readers == {"GroupQueryAttention"} and maker is not None and past in maker.inputs
