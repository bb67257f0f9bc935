"""The graphs of a full package beside each other: what each takes, gives and states."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cabochon.errors import CabochonError, ConfigError
from cabochon.gemma4.audio_config import AudioConfig
from cabochon.gemma4.embedder_config import AudioEmbedder, VisionEmbedder
from cabochon.gemma4.full_config import read_towers
from cabochon.gemma4.vision_config import VisionConfig
from cabochon.media import read_processors, spelled
from cabochon.media.processors import FILES
from cabochon.metadata.ports import Port
from cabochon.validation.caches import named
from cabochon.validation.graph import Graph
from cabochon.validation.memo import once
from cabochon.validation.opened import FED, LOOKUP, Opened

__all__ = ["COMPONENTS", "CONFIGS", "MEDIA", "Assembled", "Joint", "assembled", "not_understood"]

COMPONENTS = {
    name: f"{name}/model.onnx" for name in ("decoder", "embedding", "vision_encoder", "audio_encoder")
}
MEDIA = {"vision_encoder": "image_features", "audio_encoder": "audio_features"}
CONFIGS = {"vision_encoder": "vision_config", "audio_encoder": "audio_config"}  # of config.json
_Towers = tuple[VisionConfig | VisionEmbedder | None, AudioConfig | AudioEmbedder | None]
# What comes from outside of the package, beside the caches.
_OUTSIDE = {
    "decoder": {"input_ids", "attention_mask", "logits_to_keep"},
    "embedding": {"input_ids"},
    "vision_encoder": {"pixel_values", "pixel_position_ids"},
    "audio_encoder": {"input_features", "input_features_mask"},
}


@dataclass(frozen=True)
class Joint:
    """An input that another graph of the package has to make; `made` is None where none does."""

    taker: Graph
    taken: Port
    maker: Graph | None
    made: Port | None


@dataclass(frozen=True)
class Assembled:
    """The graphs that are there by the name of their component; `config` is config.json, `processor` what the package's
    processor files say, defaults too, and {} where they are not understood."""

    graphs: Mapping[str, Graph]
    config: Mapping[str, Any]
    processor: Mapping[str, Any]

    @property
    def joints(self) -> Iterator[Joint]:
        """Every input that does not come from outside."""
        for name, graph in self.graphs.items():
            for port in graph.ports.inputs.values():
                if port.name not in _OUTSIDE[name] and not named(port.name):
                    maker = next((g for g in self.graphs.values() if port.name in g.ports.outputs), None)
                    yield Joint(graph, port, maker, maker.ports.outputs[port.name] if maker else None)

    def described(self, component: str) -> bool:
        """Whether config.json speaks of an encoder."""
        return isinstance(self.config.get(CONFIGS[component]), Mapping)

    @cached_property
    def _towers(self) -> _Towers | CabochonError:
        try:
            return read_towers(self.config)
        except CabochonError as error:
            return error

    @property
    def misdescribed(self) -> CabochonError | None:
        """What is wrong with the encoders of config.json."""
        return self._towers if isinstance(self._towers, CabochonError) else None

    @property
    def seeing(self) -> VisionConfig | VisionEmbedder | None:
        """What config.json says of the vision encoder."""
        return None if isinstance(self._towers, CabochonError) else self._towers[0]

    @property
    def hearing(self) -> AudioConfig | AudioEmbedder | None:
        """What config.json says of the audio encoder."""
        return None if isinstance(self._towers, CabochonError) else self._towers[1]

    def size(self, component: str, port: str) -> int | None:
        """The last dimension of an input, where it is a number."""
        graph = self.graphs.get(component)
        found = graph.ports.inputs.get(port) if graph else None
        last = found.shape[-1] if found and found.shape else None
        return last if isinstance(last, int) else None

    @property
    def patch(self) -> int | None:
        """The pixels on a side of a patch, of three colours."""
        size = self.size("vision_encoder", "pixel_values")
        return None if size is None else math.isqrt(size // 3)

    @property
    def frame(self) -> int | None:
        """The numbers of a frame of sound: the bands of a spectrogram, or samples."""
        return self.size("audio_encoder", "input_features")


def assembled(package: Opened) -> Assembled | None:
    """The graphs of a full package; None for another one."""
    return once(package, _assembled)


def _assembled(package: Opened) -> Assembled | None:
    if FED not in package.files and LOOKUP not in package.files:
        return None
    graphs = {name: package.graphs[path] for name, path in COMPONENTS.items() if path in package.graphs}
    said = _processors(package)
    return Assembled(graphs, package.json("config.json") or {}, {} if isinstance(said, ConfigError) else said)


def not_understood(package: Opened) -> ConfigError | None:
    """What is wrong with the files that say how media are prepared."""
    said = _processors(package)
    return said if isinstance(said, ConfigError) else None


def _processors(package: Opened) -> Mapping[str, Any] | ConfigError:
    if not any(name in package.files for name in FILES):
        return {}
    try:
        return spelled(read_processors(package.root))
    except ConfigError as error:
        return error
