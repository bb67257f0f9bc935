"""Random numbers without a state: a seed and a counter give a number, always the same one."""

from cabochon.graph import Tracer, Value

__all__ = ["uniform"]

# SplitMix64: Steele, Lea and Flood, Fast splittable pseudorandom number generators, OOPSLA 2014. The step is 2^64
# divided by the golden ratio, made odd; the shifts and factors are David Stafford's mix 13.
_STEP = 0x9E3779B97F4A7C15
_MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_LAST = 31

_BITS = 52  # so that a sum times the largest number below 1 is still less than the sum


def uniform(g: Tracer, seed: Value, counter: Value) -> Value:
    """A number in [0, 1) for each row: mix(mix(seed) + (counter + 1) · step), its upper 52 bits.   i64 [B] -> f64 [B]

    All integers count, negative ones as their two's complement. The seed is mixed first, so that neighbouring seeds
    do not walk the same sequence.
    """
    place = g.cast(counter, "u64") + 1
    bits = _mixed(g, _mixed(g, g.cast(seed, "u64")) + place * _STEP)
    return g.cast(_shifted(g, bits, 64 - _BITS), "f64") * 2.0**-_BITS


def _mixed(g: Tracer, x: Value) -> Value:
    for bits, factor in _MIX:
        x = g.BitwiseXor(x, _shifted(g, x, bits)) * factor
    return g.BitwiseXor(x, _shifted(g, x, _LAST))


def _shifted(g: Tracer, x: Value, bits: int) -> Value:
    return g.BitShift(x, bits, direction="RIGHT")
