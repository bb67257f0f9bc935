"""Rows that go on."""

from cabochon.graph import Tracer, Value

__all__ = ["going", "state_of_rows"]


def state_of_rows(g: Tracer) -> tuple[Value, Value]:
    """The inputs `active` and `done`, bool [B]."""
    return g.input("active", "bool", "batch"), g.input("done", "bool", "batch")


def going(g: Tracer, active: Value, done: Value) -> Value:
    """The rows that go on: active and not done."""
    return g.And(active, g.Not(done))
