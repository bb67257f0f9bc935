"""From logits to one token per row.

Shapes: B rows · V vocabulary · N candidates, the likeliest first. Only candidates are computed with, in f64 as in
cabochon's own runtime.
"""

import numpy as np

from cabochon.graph import Tracer, Value
from cabochon.metadata.policies.driven import Driven
from cabochon.metadata.policies.random import uniform
from cabochon.metadata.policies.rows import going, state_of_rows

__all__ = ["token_sampler"]

_LARGEST = float(np.finfo(np.float32).max)


def token_sampler(g: Tracer, decoder: Driven) -> None:
    """Temperature, then top-k, top-p, min-p, then one draw; the likeliest token where top_k is 1 or temperature is 0.

    top_k below 1, top_p from 1 and min_p 0 leave their step out. Of equal scores at the edge top-k keeps all, top-p
    those of later ids; greedy takes the first. A row's draw depends on its seed and counter alone: rows that shall
    draw apart get seeds of their own (cabochon's runtime adds the row to the seed).

    A row that does not go on keeps its counter and gets token 0, which nothing reads. NaN counts as -inf, +inf as the
    largest number; a row of nothing but -inf gets some token.
    """
    logits = numbers(g, g.input("logits", "f32", "batch", "vocabulary"))
    temperature = g.input("temperature", "f32", "batch")
    top_k = g.input("top_k", "i64", "batch")
    top_p, min_p = (g.input(name, "f32", "batch") for name in ("top_p", "min_p"))
    seed, counter = (g.input(name, "i64", "batch") for name in ("seed", "counter"))
    goes_on = going(g, *state_of_rows(g))

    greedy = g.Or(g.Not(g.Greater(temperature, 0.0)), g.Equal(top_k, 1))
    unlimited = g.And(g.Not(greedy), g.Less(top_k, 1))
    count = g.length(logits)
    k = g.Where(unlimited, count, g.Where(greedy, np.int64(1), g.Min(top_k, count)))  # [B]

    best, ids = candidates(g, logits, k)
    powers = g.Exp(tempered(g, best, g.Where(greedy, np.float32(1), temperature)))
    powers = likely(g, nucleus(g, powers, top_p), min_p)
    drawn = g.GatherElements(ids, draw(g, powers, uniform(g, seed, counter)), axis=1)

    token = g.Where(greedy, g.ArgMax(logits, axis=1, keepdims=0), g.Squeeze(drawn, [1]))
    g.output("token", g.Where(goes_on, token, np.int64(0)), "batch")
    g.output("next_counter", counter + g.cast(goes_on, "i64"), "batch")


def numbers(g: Tracer, logits: Value) -> Value:
    """Logits that compare and subtract: no NaN, no +inf.   [B, V]"""
    return g.Min(g.Where(g.IsNaN(logits), np.float32(-np.inf), logits), _LARGEST)


def candidates(g: Tracer, logits: Value, k: Value) -> tuple[Value, Value]:
    """The logits of the first k of each row, all that equal the k-th included, and their ids.   [B, N], [B, N]

    Behind a row's own there is -inf, where another row has more. Only as much is sorted as some row asks for.
    """
    everything = g.Equal(k, g.length(logits))
    small = g.Where(everything, np.int64(1), k)
    first, _ = g.TopK(logits, g.ReduceMax(small, keepdims=1), outputs=2)
    least = g.GatherElements(first, g.Unsqueeze(small - 1, [1]), axis=1)
    least = g.Where(g.Unsqueeze(everything, [1]), np.float32(-np.inf), least)  # [B, 1]

    counts = g.ReduceSum(g.cast(g.GreaterOrEqual(logits, least), "i32"), [1], keepdims=0)
    most = g.cast(g.ReduceMax(counts, keepdims=1), "i64")
    backwards = g.Slice(logits, [-1], [np.iinfo(np.int64).min], [1], [-1])  # so that later ids win a tie
    best, places = g.TopK(backwards, most, outputs=2)
    own = g.Where(g.Less(best, least), np.float32(-np.inf), best)
    return own, g.length(logits) - 1 - places


def tempered(g: Tracer, best: Value, temperature: Value) -> Value:
    """How far a token lies below the likeliest, over the temperature: at most 0.   f32 [B, N] -> f64 [B, N]"""
    best = g.cast(best, "f64")
    highest = g.Max(g.Slice(best, [0], [1], [1]), -_LARGEST)  # finite where all are forbidden
    return (best - highest) / column(g, g.Min(temperature, _LARGEST))


def nucleus(g: Tracer, powers: Value, top_p: Value) -> Value:
    """Top-p: 0 for the least likely that together make up at most 1 - p of the sum. The likeliest stays.   [B, N]"""
    rest = g.CumSum(powers, np.int64(1), reverse=1)  # a token's and all less likely ones'
    least = (1.0 - column(g, top_p)) * g.Slice(rest, [0], [1], [1])
    place = g.Range(np.int64(0), g.length(powers), np.int64(1))
    return nothing(g, powers, g.And(g.LessOrEqual(rest, least), g.Greater(place, 0)))


def likely(g: Tracer, powers: Value, min_p: Value) -> Value:
    """Min-p: 0 for what is less than p times as likely as the likeliest, whose power is 1.   [B, N]"""
    return nothing(g, powers, g.Less(powers, g.Min(column(g, min_p), 1.0)))


def draw(g: Tracer, powers: Value, u: Value) -> Value:
    """The place in whose part of the sum u falls.   [B, N], [B] -> [B, 1]"""
    sums = g.CumSum(powers, np.int64(1))
    target = g.Unsqueeze(u, [1]) * g.Slice(sums, [-1], [np.iinfo(np.int64).max], [1])
    return g.ArgMax(g.cast(g.Greater(sums, target), "i32"), axis=1)


def nothing(g: Tracer, powers: Value, where: Value) -> Value:
    """0 where asked for."""
    return g.Where(where, g.constant(0.0, like=powers), powers)


def column(g: Tracer, x: Value) -> Value:
    """One number per row, beside candidates.   f32 [B] -> f64 [B, 1]"""
    return g.Unsqueeze(g.cast(x, "f64"), [1])
