"""What the documents of a full package are derived from: four traced graphs, the configs, the tokenizer files."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import onnx_ir as ir

from cabochon.errors import GraphError, PackageError
from cabochon.gemma4 import TextConfig
from cabochon.metadata.decoder import Decoder, read_decoder
from cabochon.metadata.ports import Port, Ports, read
from cabochon.metadata.vocabulary import Vocabulary
from cabochon.metadata.weights import Weights, read_weights

__all__ = ["COMPONENTS", "Full", "Medium", "Member", "artifact", "features", "read_full"]

Medium = Literal["image", "audio"]

COMPONENTS = ("decoder", "embedding", "vision_encoder", "audio_encoder")
_ENCODERS: dict[Medium, str] = {"image": "vision_encoder", "audio": "audio_encoder"}
_SECTIONS: dict[Medium, str] = {"image": "image_processor", "audio": "feature_extractor"}
_TOKENS = ("image_token_id", "video_token_id", "audio_token_id", "boi_token_id", "eoi_token_id", "boa_token_id",
           "eoa_token_id")  # fmt: skip
_SPELLED = {"eoa_token_id": "eoa_token_index"}  # what older configs call it


@dataclass(frozen=True)
class Member:
    """A graph that works for the decoder: its ports, metadata properties and weights, and the name of its component."""

    name: str
    artifact: str
    ports: Ports
    properties: Mapping[str, str]
    weights: Weights = field(default_factory=Weights)


@dataclass(frozen=True)
class Full:
    """A full package.

    `encoders`: that of each medium which the model takes, images first. `tokens`: the ids that config.json gives the
    placeholders and what stands around them, by its keys. `processor` is processor_config.json, spelled out as
    `cabochon.media.spelled` does. `folder` is where the
    package stands inside another, "" for one that stands alone.
    """

    decoder: Decoder
    embedding: Member
    encoders: Mapping[Medium, Member]
    tokens: Mapping[str, int]
    processor: Mapping[str, Any]
    folder: str = ""

    def within(self, folder: str) -> "Full":
        """The same in a folder of another package, the decoder under its name."""

        def inside(member: Member) -> Member:
            return replace(member, artifact=f"{folder}/{member.artifact}")

        decoder = replace(self.decoder, name=folder, artifact=f"{folder}/{self.decoder.artifact}")
        encoders = {medium: inside(encoder) for medium, encoder in self.encoders.items()}
        return replace(
            self, decoder=decoder, embedding=inside(self.embedding), encoders=encoders, folder=folder
        )

    @property
    def quantized(self) -> bool:
        """Whether any weight is in blocks."""
        return any(graph.weights.quantized for graph in (self.decoder, *self.members))

    @property
    def vision(self) -> Member | None:
        """The vision encoder."""
        return self.encoders.get("image")

    @property
    def audio(self) -> Member | None:
        """The audio encoder."""
        return self.encoders.get("audio")

    @property
    def members(self) -> tuple[Member, ...]:
        """The graphs beside the decoder, in the order in which they run."""
        return (*self.encoders.values(), self.embedding)

    @property
    def width(self) -> int | str:
        """The width of a row of features and of an embedded token."""
        return self.embedding.ports.outputs["inputs_embeds"].shape[-1]

    def section(self, medium: Medium) -> Mapping[str, Any]:
        """What processor_config.json says of a medium; {} where it says nothing."""
        return self.processor.get(_SECTIONS[medium]) or {}


def artifact(component: str) -> str:
    """Where the graph of a component lies in a full package."""
    return f"{component}/model.onnx"


def features(medium: Medium) -> str:
    """The port that carries the features of a medium: out of its encoder, into the embedding."""
    return f"{medium}_features"


def read_full(
    models: Mapping[str, ir.Model],
    config: TextConfig,
    raw: Mapping[str, Any],
    vocabulary: Vocabulary | None,
    generation: Mapping[str, Any],
    processor: Mapping[str, Any],
) -> Full:
    """The facts of traced or loaded graphs by the names of `COMPONENTS`; an encoder that the model lacks is not there.

    `config` is the text model of `raw`, config.json; `generation` is generation_config.json, `processor` as in
    `Full`. Raises
    GraphError where a port that one graph needs is no port of another, PackageError where a medium has no processor.
    """
    if missing := [name for name in COMPONENTS[:2] if name not in models]:
        raise PackageError(
            f"no graph of {', '.join(missing)}; a full package has one", at=artifact(missing[0])
        )
    decoder = read_decoder(models["decoder"], config, vocabulary, generation, artifact=artifact("decoder"))
    encoders: dict[Medium, Member] = {
        medium: _member(name, models[name]) for medium, name in _ENCODERS.items() if name in models
    }
    full = Full(decoder, _member("embedding", models["embedding"]), encoders, dict(_tokens(raw)), processor)
    _check(full)
    return full


def _member(name: str, model: ir.Model) -> Member:
    return Member(name, artifact(name), read(model), dict(model.metadata_props), read_weights(model))


def _tokens(raw: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    for key in _TOKENS:
        found = raw.get(key, raw.get(_SPELLED.get(key, key)))
        if isinstance(found, int):
            yield key, found


def _check(full: Full) -> None:
    """Every port that is fed by another graph is one of it, of the same type and width."""
    embedding, decoder = full.embedding.ports, full.decoder.ports
    for medium, encoder in full.encoders.items():
        _fits(encoder.ports.outputs, embedding.inputs, features(medium), encoder.artifact)
        if not full.section(medium):
            raise PackageError(
                f"the model takes {medium} input, and nothing says how it becomes tensors",
                at=f"processor_config.json: {_SECTIONS[medium]}",
                remedy="take the checkpoint with its processor_config.json",
            )
    for name in full.decoder.fed:
        if name != "input_ids":
            _fits(embedding.outputs, decoder.inputs, name, full.embedding.artifact)


def _fits(made: Mapping[str, Port], taken: Mapping[str, Port], name: str, at: str) -> None:
    if name not in made or name not in taken:
        raise GraphError("is no port of both graphs that it should join", at=f"{at}: {name}")
    one, other = made[name], taken[name]
    if (one.dtype, len(one.shape), one.shape[-1]) != (other.dtype, len(other.shape), other.shape[-1]):
        raise GraphError(
            f"made as {one.dtype} {list(one.shape)}; taken as {other.dtype} {list(other.shape)}",
            at=f"{at}: {name}",
        )
