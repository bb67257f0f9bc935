"""What is known of a package while it is built; provenance and card are written from nothing else."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Generic, TypeVar, cast

import onnx_ir as ir

from cabochon.checkpoint import Checkpoint
from cabochon.dialects import Target
from cabochon.gemma4 import DrafterConfig, FullConfig, TextConfig, TextTensors
from cabochon.media import Processors, read_processors, spelled
from cabochon.metadata.decoder import Decoder, read_decoder
from cabochon.metadata.drafter import Drafter, read_drafter
from cabochon.metadata.full import Full, read_full
from cabochon.metadata.vocabulary import Vocabulary, read_vocabulary
from cabochon.package.contracts import contracts, towers
from cabochon.package.license import License, front_matter
from cabochon.package.writer import Digest
from cabochon.recipes import Precision
from cabochon.strict_json import parse_object

__all__ = ["Digest", "DrafterFacts", "Facts", "FullFacts", "TextFacts", "installed"]

C = TypeVar("C", TextConfig, FullConfig, DrafterConfig)
T = TypeVar("T")


@dataclass(frozen=True)
class Facts(ABC, Generic[C]):
    """All that a package's documents are derived from.

    `models`: the graphs by their folder, "" for the package's own; `digests`: of the graphs and the files of weights;
    `kept`: what `once` worked out.
    """

    checkpoint: Checkpoint
    config: C
    tensors: TextTensors
    models: Mapping[str, ir.Model]
    target: Target
    precision: Precision
    license: License
    digests: Mapping[str, Digest]
    linked: tuple[str, ...]
    logits_to_keep: int
    command: tuple[str, ...] | None
    kept: dict[str, Any] = field(default_factory=dict[str, Any], repr=False, compare=False)

    def once(self, make: Callable[[Any], T]) -> T:
        """make(self), which digests have no part in, kept also where these are added: a tokenizer takes a second."""
        if make.__qualname__ not in self.kept:
            self.kept[make.__qualname__] = make(self)
        return cast(T, self.kept[make.__qualname__])

    @property
    def model(self) -> ir.Model:
        """The graph that decodes, the first of them."""
        return next(iter(self.models.values()))

    @property
    @abstractmethod
    def text(self) -> TextConfig:
        """The layers of the model."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a user should know of the model."""
        return self.text.remarks

    @property
    def caveat(self) -> str | None:
        """What to know before running it, of its target in its precision."""
        return self.target.caveat(self.precision.activations, methods=self.precision.methods)

    @property
    def name(self) -> str:
        """The checkpoint's own name, without who published it or where it lies."""
        return (self.checkpoint.id or self.checkpoint.root.name).rpartition("/")[2]

    @property
    def dtype(self) -> str:
        """The floating type as numpy and the seeds spell it: float32, float16, bfloat16."""
        return self.precision.dtype.numpy().name

    @property
    def url(self) -> str | None:
        """Where the checkpoint is published, where that is known."""
        if self.checkpoint.id is None:
            return None
        tree = f"/tree/{self.checkpoint.revision}" if self.checkpoint.revision else ""
        return f"https://huggingface.co/{self.checkpoint.id}{tree}"

    @cached_property
    def base_models(self) -> list[str]:
        """The checkpoint's hub id; of a local folder what its own card says it is based on."""
        if self.checkpoint.id:
            return [self.checkpoint.id]
        card = self.checkpoint.files.get("README.md")
        said = ((front_matter(card) if card else None) or {}).get("base_model")
        return [name for name in (said if isinstance(said, list) else [said]) if isinstance(name, str)]

    @property
    def vocabulary(self) -> Vocabulary | None:
        """The tokens as the tokenizer files state them; None without a tokenizer."""
        return self.once(_vocabulary)

    def object(self, name: str) -> dict[str, Any]:
        """A JSON file of the checkpoint, {} where it has none. `side_files.require` has read it before."""
        file = self.checkpoint.files.get(name)
        return parse_object(file.read_bytes()) if file else {}

    @property
    def properties(self) -> Mapping[str, str]:
        """The metadata properties of the graph that decodes."""
        return self.model.metadata_props


@dataclass(frozen=True)
class TextFacts(Facts[TextConfig]):
    """Those of a text package."""

    @property
    def text(self) -> TextConfig:
        """See Facts."""
        return self.config

    @cached_property
    def contracts(self) -> dict[str, Any]:
        """See `cabochon.package.contracts`."""
        return contracts(self.config, self.checkpoint.config, self.model)

    @property
    def decoder(self) -> Decoder:
        """What documents for other runtimes are derived from: the graph's ports, the config, the tokenizer files."""
        return self.once(_decoder)


@dataclass(frozen=True)
class FullFacts(Facts[FullConfig]):
    """Those of a full package."""

    @property
    def text(self) -> TextConfig:
        """See Facts."""
        return self.config.text

    @cached_property
    def contracts(self) -> dict[str, Any]:
        """See `cabochon.package.contracts`."""
        return contracts(self.text, self.checkpoint.config, self.model) | towers(self.config)

    @property
    def remarks(self) -> tuple[str, ...]:
        """See Facts. A medium that nobody says how to prepare is not taken as files."""
        given = {
            "image": self.processors.image,
            "video": self.processors.video,
            "audio": self.processors.audio,
        }
        mute = [name for name in self.config.tokens if given[name] is None]
        said = (
            f"the processors' files do not say how to prepare {', '.join(mute)}: cabochon takes none as files"
        )
        return (*self.text.remarks, *([said] if mute else []))

    @cached_property
    def processors(self) -> Processors:
        """How images, sound and video are prepared. Raises ConfigError for a file that is not understood."""
        return read_processors(self.checkpoint.root)

    @property
    def full(self) -> Full:
        """What its documents are derived from: the graphs' ports, the config, the tokenizer's and processors' files."""
        return self.once(_full)


@dataclass(frozen=True)
class DrafterFacts(Facts[DrafterConfig]):
    """Those of a drafter."""

    @property
    def text(self) -> TextConfig:
        """See Facts."""
        return self.config.text

    @property
    def caveat(self) -> str | None:
        """See Facts."""
        precision = self.precision
        return self.target.caveat(precision.activations, drafter=True, methods=precision.methods)

    @cached_property
    def drafter(self) -> Drafter:
        """What its documents are derived from: the graph's ports and its head, the config, the tokenizer files."""
        return read_drafter(self.model, self.config, self.vocabulary)


def _vocabulary(facts: Facts[Any]) -> Vocabulary | None:
    if "tokenizer.json" not in facts.checkpoint.files:
        return None
    configs = facts.object("generation_config.json"), facts.checkpoint.config
    names = facts.object("tokenizer_config.json")
    return read_vocabulary(facts.checkpoint.files["tokenizer.json"], *configs, names=names)


def _decoder(facts: TextFacts) -> Decoder:
    return read_decoder(facts.model, facts.config, facts.vocabulary, facts.object("generation_config.json"))


def _full(facts: FullFacts) -> Full:
    return read_full(
        facts.models, facts.text, facts.checkpoint.config, facts.vocabulary,
        facts.object("generation_config.json"), spelled(facts.processors),
    )  # fmt: skip


@cache
def installed(distribution: str) -> str | None:
    """The version of an installed distribution, None where it is absent."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
