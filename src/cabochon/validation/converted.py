"""The graphs of a package converted to OpenVINO: which there are, and the ports that config.json asks of each."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from cabochon.errors import CabochonError
from cabochon.evidence import activations
from cabochon.gemma4 import DrafterConfig, FullConfig, TextConfig, read_full_config
from cabochon.gemma4.config import SLIDING
from cabochon.metadata.ports import Port, Ports
from cabochon.recipes.cast import TYPES
from cabochon.validation.assembled import COMPONENTS
from cabochon.validation.caches import named
from cabochon.validation.graph import Graph
from cabochon.validation.inside import resolved
from cabochon.validation.memo import once
from cabochon.validation.net import Net
from cabochon.validation.opened import DECODER, DRAFTER, NET, Opened

__all__ = ["EPCONTEXT", "IR", "LOOKUP", "Converted", "context_of", "converted", "parts"]

IR, EPCONTEXT = "openvino-ir", "openvino-epcontext"
LOOKUP = "token_embedding"  # of a pair: what looks the drafter's tokens up
_FOLDERS = ("", LOOKUP, *COMPONENTS)
Dim = int | str


@dataclass(frozen=True)
class Converted:
    """A graph of the package: of a component, "" by itself; `wrapper` is the ONNX graph around it, where one is."""

    name: str
    net: Net
    wrapper: Graph | None
    config: TextConfig | DrafterConfig | FullConfig | None

    @property
    def properties(self) -> Mapping[str, str]:
        """Those of the IR."""
        return self.net.properties

    @property
    def kind(self) -> str:
        """What it is: "decoder", "drafter", or the name of its component."""
        if self.name:
            return self.name
        return DRAFTER if self.properties.get("cabochon.model") == DRAFTER else "decoder"

    @property
    def stateful(self) -> bool:
        """It keeps its caches, and says so."""
        return self.properties.get("cabochon.stateful") == "true"

    @property
    def text(self) -> TextConfig | None:
        """The layers of the model."""
        return self.config if self.config is None or isinstance(self.config, TextConfig) else self.config.text

    @cached_property
    def expected(self) -> Ports | None:
        """The ports that config.json and the properties ask for; None where they cannot be read."""
        found = self.lines
        return (
            Ports(*(_stateless(side) for side in (found.inputs, found.outputs)))
            if found and self.stateful
            else found
        )

    @cached_property
    def lines(self) -> Ports | None:
        """Those ports, and the caches that a stateful graph keeps to itself: what has dimensions that are called
        something."""
        kind = TYPES.get(activations(self.properties) or "")
        if kind is None or self.config is None or self.kind not in _PORTS:
            return None
        made = _PORTS[self.kind](self, kind.name)
        return None if made is None else _one_row(made) if self.stateful else made


def parts(package: Opened) -> tuple[Converted, ...]:
    """Every graph of the package itself, the one that decodes or drafts first."""
    return once(package, _parts)


def _parts(package: Opened) -> tuple[Converted, ...]:
    if not package.converted:
        return ()
    whole = any(f"{name}/{file}" in package.files for name in COMPONENTS for file in (NET, DECODER))
    config = _full(package) if whole else package.drafter or package.config
    found = []
    for name in _FOLDERS:
        wrapper = package.contexts.get(_inside(name, DECODER))
        net = package.nets.get(context_of(package, wrapper) or "" if wrapper else _inside(name, NET))
        if net is not None:
            found.append(Converted(name, net, wrapper, config))
    return tuple(found)


def converted(package: Opened) -> Converted | None:
    """The graph that decodes or drafts."""
    first = next(iter(parts(package)), None)
    return first if first and first.name in ("", "decoder") else None


def _inside(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _full(package: Opened) -> FullConfig | None:
    try:
        return read_full_config(package.json("config.json") or {})
    except CabochonError:
        return None


def context_of(package: Opened, wrapper: Graph) -> str | None:
    """The path inside the package that the first EPContext node of a graph names; None where it could lead out."""
    for node in wrapper.nodes:
        for attribute in node.attribute:
            if node.op_type == "EPContext" and attribute.name == "ep_cache_context":
                name = attribute.s.decode("utf-8", "replace")
                return resolved(package, wrapper.folder().as_posix(), name)
    return None


def _ports(inputs: Iterator[Port] | list[Port], outputs: Iterator[Port] | list[Port]) -> Ports:
    return Ports({port.name: port for port in inputs}, {port.name: port for port in outputs})


def _decoder(part: Converted, dtype: str) -> Ports | None:
    text = part.text
    if text is None or isinstance(part.config, DrafterConfig):
        return None
    full = part.config if isinstance(part.config, FullConfig) else None
    fed = [Port("input_ids", "int64", ("batch", "sequence"))]
    if full:
        fed = [*([] if not full.vision_ids else fed), *_embedded(text, dtype)]
    outputs = [
        Port("logits", dtype, ("batch", "kept", text.vocab)),
        Port(f"hidden_states.{len(text.layers) - 1}", dtype, ("batch", "kept", text.hidden)),
    ]
    pasts, presents = [], []
    for i in text.owners:
        layer = text.layers[i]
        sliding = "sliding_" if layer.kind == SLIDING else ""
        for half in ("key", "value"):
            rows, size = ("batch", layer.kv_heads), layer.head_dim
            pasts.append(Port(f"past_key_values.{i}.{half}", dtype, (*rows, f"{sliding}past_sequence", size)))
            presents.append(Port(f"present.{i}.{half}", dtype, (*rows, f"{sliding}present_sequence", size)))
    mask, kept = (
        Port("attention_mask", "int64", ("batch", "total_sequence")),
        Port("logits_to_keep", "int64", ()),
    )
    return _ports([*fed, mask, *pasts, kept], [*outputs, *presents])


def _embedded(text: TextConfig, dtype: str) -> Iterator[Port]:
    yield Port("inputs_embeds", dtype, ("batch", "sequence", text.hidden))
    if text.per_layer_input:
        width = len(text.layers) * text.per_layer_input
        yield Port("per_layer_inputs", dtype, ("batch", "sequence", width))


def _embedding(part: Converted, dtype: str) -> Ports | None:
    config = part.config
    if not isinstance(config, FullConfig):
        return None
    hidden = config.text.hidden
    features = [Port(f"{name}_features", dtype, (f"{name}_tokens", hidden)) for name in config.placeholders]
    return _ports(
        [Port("input_ids", "int64", ("batch", "sequence")), *features], _embedded(config.text, dtype)
    )


def _vision(part: Converted, dtype: str) -> Ports | None:
    config = part.config
    if not isinstance(config, FullConfig) or config.vision is None:
        return None
    pixels = Port("pixel_values", "float32", ("images", "patches", 3 * config.vision.patch_size**2))
    positions = Port("pixel_position_ids", "int64", ("images", "patches", 2))
    return _ports([pixels, positions], [Port("image_features", dtype, ("image_tokens", config.text.hidden))])


def _audio(part: Converted, dtype: str) -> Ports | None:
    config = part.config
    if not isinstance(config, FullConfig) or config.audio is None:
        return None
    features = Port("input_features", "float32", ("clips", "time", config.audio.features))
    mask = Port("input_features_mask", "bool", ("clips", "time"))
    return _ports([features, mask], [Port("audio_features", dtype, ("audio_tokens", config.text.hidden))])


def _drafter(part: Converted, dtype: str) -> Ports | None:
    config = part.config
    if not isinstance(config, DrafterConfig):
        return None
    shared = [
        Port(
            f"shared_kv.{kind}.{half}",
            dtype,
            (
                "batch",
                layer.kv_heads,
                "sliding_kv_sequence" if kind == SLIDING else "kv_sequence",
                layer.head_dim,
            ),
        )
        for kind, layer in config.text.kinds.items()
        for half in ("key", "value")
    ]
    fed = Port("inputs_embeds", dtype, ("batch", "sequence", 2 * config.backbone))
    mask = Port("attention_mask", "int64", ("batch", "kv_sequence"))
    outputs = [
        Port("logits", dtype, ("batch", "sequence", config.text.vocab)),
        Port("projected_state", dtype, ("batch", "sequence", config.backbone)),
    ]
    return _ports([fed, mask, *shared], outputs)


def _lookup(part: Converted, dtype: str) -> Ports | None:
    config = part.config
    if not isinstance(config, DrafterConfig):
        return None
    rows = Port("inputs_embeds", dtype, ("batch", "sequence", config.backbone))
    return _ports([Port("input_ids", "int64", ("batch", "sequence"))], [rows])


_PORTS: dict[str, Callable[[Converted, str], Ports | None]] = {
    "decoder": _decoder,
    "embedding": _embedding,
    "vision_encoder": _vision,
    "audio_encoder": _audio,
    DRAFTER: _drafter,
    LOOKUP: _lookup,
}


def _stateless(side: Mapping[str, Port]) -> Mapping[str, Port]:
    """The ports without caches."""
    return {name: port for name, port in side.items() if not named(name)}


def _one_row(ports: Ports) -> Ports:
    """The same ports where there is one row."""

    def side(of: Mapping[str, Port]) -> dict[str, Port]:
        return {
            name: Port(name, port.dtype, tuple(1 if d == "batch" else d for d in port.shape))
            for name, port in of.items()
        }

    return Ports(side(ports.inputs), side(ports.outputs))
