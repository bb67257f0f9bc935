"""What the policy graphs must know of the decoder that the loop drives."""

from dataclasses import dataclass

from cabochon.errors import GraphError
from cabochon.metadata.ports import Port, Ports

__all__ = ["Driven"]

_MASKS = ("anywhere", "left-justified")
_FED = ("input_ids", "inputs_embeds")


@dataclass(frozen=True)
class Driven:
    """The ports of a decoder, and how real tokens may lie in its mask: the metadata property `cabochon.mask`.

    Raises GraphError where a port that the loop needs is missing or no cache of a fixed size, or for another mask.
    """

    ports: Ports
    mask: str

    def __post_init__(self) -> None:
        missing = [] if any(name in self.ports.inputs for name in _FED) else [_FED[0]]
        missing += [name for name in ("attention_mask",) if name not in self.ports.inputs]
        missing += [name for name in ("logits",) if name not in self.ports.outputs]
        if missing:
            raise GraphError(f"the decoder has no port {', '.join(missing)}; the loop needs it")
        for cache in self.caches:
            if [isinstance(d, int) for d in cache.shape[1::2]] != [True, True] or len(cache.shape) != 4:
                shape = ", ".join(map(str, cache.shape))
                raise GraphError(f"[{shape}]; expected [batch, heads, length, size]", at=cache.name)
        if self.mask not in _MASKS:
            raise GraphError(f"{self.mask!r}; expected {' or '.join(_MASKS)}", at="cabochon.mask")

    @property
    def logits(self) -> Port:
        """Logits of the kept positions, [batch, kept, vocabulary]."""
        return self.ports.outputs["logits"]

    @property
    def caches(self) -> list[Port]:
        """The caches as they go in, in the order of the graph: [batch, heads, length, head size]."""
        return [port for name, port in self.ports.inputs.items() if name.startswith("past_key_values.")]
