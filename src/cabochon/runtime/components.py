"""The components of a full package beside its decoder: which ports and properties each has, and nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cabochon.errors import PackageError
from cabochon.runtime.folder import GRAPHS, graph_file
from cabochon.runtime.graph import Graph, open_graph
from cabochon.runtime.ports import PREFIX, REBUILD, Argument

DECODER, EMBEDDING = "decoder", "embedding"
OWN = "the package's type"
BUILT = frozenset({"model", "target", "precision"})
TYPES = {"f32": "tensor(float)", "f16": "tensor(float16)"}


@dataclass(frozen=True)
class Port:
    """The type and rank of a port. One that is not `needed` may be missing: not every model has it."""

    type: str
    rank: int
    needed: bool = True


@dataclass(frozen=True)
class Component:
    """Ports by name, and the properties it states beside those that all do; one in `perhaps` may be missing."""

    inputs: Mapping[str, Port]
    outputs: Mapping[str, Port]
    properties: frozenset[str] = frozenset()
    perhaps: frozenset[str] = frozenset()


IDS = Port("tensor(int64)", 2)
COMPONENTS: Mapping[str, Component] = {
    "embedding": Component(
        {"input_ids": IDS, "image_features": Port(OWN, 2, False), "audio_features": Port(OWN, 2, False)},
        {"inputs_embeds": Port(OWN, 3), "per_layer_inputs": Port(OWN, 3, False)},
        frozenset({"pad_token_id"}),
        frozenset({"embed_scale", "image_token_id", "video_token_id", "audio_token_id"}),
    ),
    "vision_encoder": Component(
        {"pixel_values": Port("tensor(float)", 3), "pixel_position_ids": Port("tensor(int64)", 3)},
        {"image_features": Port(OWN, 2)},
        frozenset({"patch_size", "pooling_kernel_size", "position_embedding_size"}),
    ),
    "audio_encoder": Component(
        {"input_features": Port("tensor(float)", 3), "input_features_mask": Port("tensor(bool)", 2)},
        {"audio_features": Port(OWN, 2)},
    ),
}


def component_file(package: Path, name: str) -> Path:
    """The graph of a component; raise PackageError where there is none."""
    path = package / name / (graph_file(package / DECODER) or Path(GRAPHS[0])).name
    if not path.is_file():
        raise PackageError(f"a full package without {name}/{path.name}", at=str(package), remedy=REBUILD)
    return path


def open_component(package: Path, name: str, built: tuple[str, str], **options: Any) -> Graph:
    """The graph of a component in a session; `options` are those of `Graph`.

    Raises PackageError where it is missing, or not as docs/architecture.md says, or was not `built` for the target and
    precision of the decoder.
    """
    file = component_file(package, name)
    graph, at = open_graph(file, **options), f"{name}/{file.name}"
    said = {k.removeprefix(PREFIX): v for k, v in graph.metadata.items() if k.startswith(PREFIX)}
    check_properties(name, said, built, at)
    own = TYPES.get(said.get("activations", built[1]), "")
    check_ports(graph.inputs, COMPONENTS[name].inputs, own, f"{at}: inputs")
    check_ports(graph.outputs, COMPONENTS[name].outputs, own, f"{at}: outputs")
    return graph


def check_properties(name: str, said: Mapping[str, str], built: tuple[str, str], at: str) -> None:
    """Raise PackageError for a property of a component that is missing, unknown or another than the decoder's."""
    component = COMPONENTS[name]
    needed = BUILT | component.properties
    for key in sorted(needed - said.keys()):
        raise PackageError(f"{PREFIX}{key} is missing", at=f"{at}: metadata", remedy=REBUILD)
    for key in sorted(said.keys() - needed - component.perhaps - {"activations"}):
        raise PackageError(
            f"{PREFIX}{key} is unknown ({said[key]!r}); this version cannot know what it asks of a caller",
            at=f"{at}: metadata",
            remedy=REBUILD,
        )
    expected = dict(zip(("model", "target", "precision"), (name, *built), strict=True))
    for key, value in expected.items():
        if said[key] != value:
            raise PackageError(
                f"{PREFIX}{key} is {said[key]!r}; expected {value!r}", at=f"{at}: metadata", remedy=REBUILD
            )


def check_ports(found: Mapping[str, Argument], expected: Mapping[str, Port], own: str, at: str) -> None:
    """Raise PackageError for a port that is missing, unknown, or of another type or rank; `own` is the package's."""
    for name, port in expected.items():
        if port.needed and name not in found:
            raise PackageError(f"there is no {name!r}", at=at, remedy=REBUILD)
    for name, port in found.items():
        if name not in expected:
            raise PackageError(
                f"unknown port {name!r}; expected {', '.join(expected)}", at=at, remedy=REBUILD
            )
        type_ = own if expected[name].type == OWN else expected[name].type
        if port.type != type_ or len(port.shape) != expected[name].rank:
            raise PackageError(
                f"{name!r} is {port.type} of {len(port.shape)} dimensions; "
                f"expected {type_} of {expected[name].rank}",
                at=at,
                remedy=REBUILD,
            )


def number(graph: Graph, key: str) -> int | None:
    """A property of a component that is a whole number; None where it is absent."""
    value = graph.metadata.get(PREFIX + key)
    if value is None or value.isdecimal():
        return None if value is None else int(value)
    name = graph.metadata.get(f"{PREFIX}model")
    what = f"{PREFIX}{key} is {value!r}; expected a whole number"
    raise PackageError(what, at=f"{name}: metadata", remedy=REBUILD)


def width(port: Argument) -> int:
    """The size of a port's last axis; raise PackageError where it is no number."""
    size = port.shape[-1]
    if not isinstance(size, int):
        raise PackageError(
            f"the last dimension of {port.name!r} is {size!r}; expected a number",
            at=port.name,
            remedy=REBUILD,
        )
    return size
