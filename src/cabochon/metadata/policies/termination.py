"""When a row ends.   B rows · E end tokens"""

import numpy as np

from cabochon.graph import Tracer, Value
from cabochon.metadata.policies.driven import Driven

__all__ = ["termination", "termination_batch_initializer"]


def termination(g: Tracer, decoder: Driven) -> None:
    """A row is done with one of its end tokens, or with the last token it may have; whatever is not active is done.

    `iteration` counts from 0: the token of iteration i is the row's (i + 1)-th. Of a row's `eos_ids` the first
    `eos_lengths` count. `continue` tells whether any row goes on.
    """
    tokens = g.input("tokens", "i64", "batch")
    eos_ids = g.input("eos_ids", "i64", "batch", "num_eos")
    eos_lengths = g.input("eos_lengths", "i64", "batch")
    iteration = g.input("iteration", "i64", 1)
    max_iterations = g.input("max_iterations", "i64", "batch")
    active = g.input("active", "bool", "batch")

    ended = g.Or(_among(g, tokens, eos_ids, eos_lengths), g.GreaterOrEqual(iteration + 1, max_iterations))
    next_active = g.And(active, g.Not(ended))
    g.output("done", g.Not(next_active), "batch")
    g.output("next_active", next_active, "batch")
    g.output("continue", g.Greater(_count(g, next_active, 0), 0), 1)


def termination_batch_initializer(g: Tracer, decoder: Driven) -> None:
    """End tokens and limits for every row of the batch. `eos_rows` is `batch`, or 1: end tokens that serve all.

    A negative length means all ids, a negative limit the fallback; neither may exceed that. Rows that are not active
    end at once: no ids, limit 0.
    """
    ids = g.input("input_eos_ids", "i64", "eos_rows", "num_eos")
    lengths = g.input("input_eos_lengths", "i64", "batch")
    limits = g.input("input_max_iterations", "i64", "batch")
    fallback = g.input("fallback_max_iterations", "i64", 1)
    active = g.input("active", "bool", "batch")

    def up_to(x: Value, most: Value) -> Value:
        chosen = g.Where(g.Less(x, 0), most, g.Min(x, most))
        return g.Where(active, chosen, np.int64(0))

    rows = g.Concat(g.Shape(active), np.array([1]), axis=0)
    g.output("row_eos_ids", g.Expand(ids, rows), "batch", "num_eos")
    g.output("eos_lengths", up_to(lengths, g.length(ids)), "batch")
    g.output("max_iterations", up_to(limits, fallback), "batch")


def _among(g: Tracer, tokens: Value, ids: Value, lengths: Value) -> Value:
    """Whether a row's token is one of the row's first ids.   [B], [B, E], [B] -> [B]"""
    counts = g.Less(g.Range(np.int64(0), g.length(ids), np.int64(1)), g.Unsqueeze(lengths, [1]))
    same = g.And(g.Equal(ids, g.Unsqueeze(tokens, [1])), counts)
    return g.Greater(_count(g, same, 1, keepdims=0), 0)


def _count(g: Tracer, x: Value, axis: int, keepdims: int = 1) -> Value:
    return g.ReduceSum(g.cast(x, "i64"), [axis], keepdims=keepdims)
