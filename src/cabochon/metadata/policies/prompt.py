"""From a prompt to the first token.   B rows · S columns of the prompt · K kept positions · V vocabulary"""

import numpy as np
import onnx_ir as ir

from cabochon.graph import Tracer, Value
from cabochon.metadata.policies.driven import Driven
from cabochon.metadata.policies.state import following
from cabochon.metadata.ports import Port

__all__ = ["decoder_state_initializer", "last_token_logits"]


def last_token_logits(g: Tracer, decoder: Driven) -> None:
    """The logits of the last kept position, in f32 whatever the package's type.   [B, K, V] -> [B, V]

    Rows of unequal length: ask the decoder for one position (`logits_to_keep` 1), which is every row's last real token.
    With all positions kept, the last column is that only for rows that fill the batch.
    """
    logits = g.input("logits", _dtype(decoder.logits), "batch", "sequence", "vocabulary")
    g.output("last_logits", g.cast(g.Gather(logits, -1, axis=1), "f32"), "batch", "vocabulary")


def decoder_state_initializer(g: Tracer, decoder: Driven) -> None:
    """What the loop begins with: the prompt's mask, the first step's, and empty caches.

    A row's tokens come first, `prompt_lengths` of them (at least 1; all columns where it is negative), padding behind.
    The caches grow by themselves, so that `max_iterations` reserves nothing. Of the two position outputs the decoder
    needs none: it counts its mask. They are what it counts.
    """
    tokens = g.input("prompt_tokens", "i64", "batch", "prompt_sequence")
    asked = g.input("prompt_lengths", "i64", "batch")
    g.input("max_iterations", "i64", 1)

    width = g.length(tokens)
    lengths = g.Where(g.Less(asked, 0), width, g.Min(g.Max(asked, 1), width))
    column = g.Unsqueeze(lengths, [1])  # [B, 1]
    real = g.Less(g.Range(np.int64(0), width, np.int64(1)), column)  # [B, S]
    mask = g.cast(real, "i64")
    g.output("attention_mask", mask, "batch", "prompt_sequence")
    g.output("position_ids", g.CumSum(mask, np.int64(1)) - 1, "batch", "prompt_sequence")
    g.output("body_attention_mask", following(g, decoder, mask, lengths), "batch", "context")
    g.output("body_position_ids", g.Identity(column), "batch", 1)
    g.output("token_slot", g.GatherElements(tokens, column - 1, axis=1), "batch", 1)
    g.output("generated_lengths", lengths * 0, "batch")
    g.output("cache_lengths", lengths, "batch")
    for port in decoder.caches:
        g.output(port.name, _empty(g, port, g.Shape(lengths)), *_renamed(port))


def _empty(g: Tracer, port: Port, batch: Value) -> Value:
    """A cache of no entries."""
    _, heads, _, size = port.shape
    zero = ir.tensor(np.zeros(1, port.dtype))
    return g.ConstantOfShape(g.Concat(batch, np.array([heads, 0, size]), axis=0), value=zero)


def _renamed(port: Port) -> tuple[int | str, ...]:
    return ("batch", *port.shape[1:])


def _dtype(port: Port) -> ir.DataType:
    return ir.DataType.from_numpy(np.dtype(port.dtype))
