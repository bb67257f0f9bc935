"""What moves on with every token.   B rows · C columns of the mask"""

import numpy as np

from cabochon.graph import Tracer, Value
from cabochon.metadata.policies.driven import Driven
from cabochon.metadata.policies.rows import going, state_of_rows

__all__ = ["decoder_step_update", "following", "length_update", "token_state_update", "token_to_slot"]


def token_state_update(g: Tracer, decoder: Driven) -> None:
    """The new token of a row that goes on, the old one of any other."""
    current, update = (g.input(name, "i64", "batch", 1) for name in ("current", "update"))
    goes_on = going(g, *state_of_rows(g))
    g.output("next", g.Where(g.Unsqueeze(goes_on, [1]), update, current), "batch", 1)


def token_to_slot(g: Tracer, decoder: Driven) -> None:
    """Tokens as the decoder takes them: one column."""
    g.output("slot", g.Unsqueeze(g.input("token", "i64", "batch"), [1]), "batch", 1)


def length_update(g: Tracer, decoder: Driven) -> None:
    """left + right for a row that goes on, left for any other."""
    left, right = (g.input(name, "i64", "batch") for name in ("left", "right"))
    goes_on = going(g, *state_of_rows(g))
    g.output("total", g.Where(goes_on, left + right, left), "batch")


def decoder_step_update(g: Tracer, decoder: Driven) -> None:
    """The mask with one more column, the new token's, and the position after `position_ids`.

    `logical_length` counts a row's tokens before this one. Rows that do not go on get a column like the others; nothing
    reads what comes of it.
    """
    mask = g.input("attention_mask", "i64", "batch", "context")
    length = g.input("logical_length", "i64", "batch")
    positions = g.input("position_ids", "i64", "batch", 1)
    g.output("next_attention_mask", following(g, decoder, mask, length), "batch", "next_context")
    g.output("next_position_ids", positions + 1, "batch", 1)


def following(g: Tracer, decoder: Driven, mask: Value, length: Value) -> Value:
    """`mask` with room for one more token in rows that have `length`.   [B, C], [B] -> [B, C + 1]

    The new column is the new token's; where real tokens come first, so does the new one: it closes up to the others.
    """
    if decoder.mask == "anywhere":
        return g.Pad(mask, np.array([0, 0, 0, 1]), np.int64(1))
    columns = g.Range(np.int64(0), g.length(mask) + 1, np.int64(1))
    return g.cast(g.LessOrEqual(columns, g.Unsqueeze(length, [1])), "i64")
