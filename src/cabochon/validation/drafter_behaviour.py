"""The rule on what a drafter does when it runs: each claim of its contract, on small random caches."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from cabochon.gemma4.config import FULL, SLIDING
from cabochon.validation.blocks import rounds
from cabochon.validation.drafting import Drafted, drafted
from cabochon.validation.execution.agreement import ROUNDED_LEAST
from cabochon.validation.execution.runner import UNDRIVEN, Runner, undriven, unfeedable
from cabochon.validation.findings import Severity
from cabochon.validation.opened import Opened
from cabochon.validation.rules import Found, Skipped, rule

__all__: list[str] = []

_SEED = 20260101
_BEYOND = 5  # positions before those that a window shows
_LONGEST = 4096  # positions that are tried
_CLOSE = {"float32": 1e-4, "float16": 2.0**-6}  # of the largest value
_EXACT = dict.fromkeys(_CLOSE, 0.0)
_CARRY = "projected_state"


@rule("BEH016", Severity.ERROR, ("graphs", "execute"))
def drafter_steps(package: Opened) -> Iterator[Found]:
    """A drafter does not read its target's keys as its contract says.

    Causes: a window of another width, a query at another position, a mask that is not followed; a property or the
    contract that was changed by hand.
    Remedy: build the package again.
    """
    found = drafted(package)
    if found is None:
        raise Skipped("there is no drafter")
    if why := unfeedable(found.graph):
        raise Skipped(why)
    try:
        for what, expected in _bench(found).tried():
            yield Found(found.graph.path, what, expected)
    except UNDRIVEN as error:
        yield Found(found.graph.path, undriven(error), "a step on what the ports describe")


Caches = Mapping[str, np.ndarray]  # by port


@dataclass(frozen=True)
class _Bench:
    """A drafter in a session, and caches of `length` positions. Keys are zeros: every one that is seen counts alike."""

    found: Drafted
    runner: Runner
    length: int
    fused: np.ndarray
    caches: Caches

    @property
    def close(self) -> Mapping[str, float]:
        """How far states may be apart, of their largest value, by their type."""
        return {t: max(c, ROUNDED_LEAST) for t, c in _CLOSE.items()} if rounds(self.found.graph) else _CLOSE

    def tried(self) -> Iterator[tuple[str, str]]:
        """(found, expected) of every claim that does not hold."""
        yield from self._shapes()
        if self.found.window is not None and SLIDING in self.found.kinds:
            yield from self._windowed(self.found.window + 1)
        if FULL in self.found.kinds and not self._sees(FULL, 0):
            yield "full layers do not see the first key", "every key"
        yield from self._masked()

    def _windowed(self, seen: int) -> Iterator[tuple[str, str]]:
        """Sliding layers see so many keys; what lies before them may be dropped."""
        if seen <= self.length and not self._sees(SLIDING, self.length - seen):
            yield f"sliding layers see fewer than {seen} keys", f"the last {seen}"
        if seen >= self.length:
            return
        if self._sees(SLIDING, self.length - seen - 1, self.close):
            yield f"sliding layers see more than {seen} keys", f"the last {seen}"
            return
        evicted = {port: a[:, :, -seen:] if SLIDING in port else a for port, a in self.caches.items()}
        if not self._same(self.carry(self.caches), self.carry(evicted), self.close):
            yield "an evicted sliding cache gives another state", "the same, while all that is seen is there"

    def _shapes(self) -> Iterator[tuple[str, str]]:
        sizes = {"batch": 1, "sequence": 1}
        for name, array in self.run(self.caches, self.mask()).items():
            port = self.found.graph.ports.outputs[name]
            expected = [sizes.get(d, -1) if isinstance(d, str) else d for d in port.shape]
            if list(array.shape) != expected:
                yield f"{name} is {list(array.shape)}", f"{expected}"

    def _masked(self) -> Iterator[tuple[str, str]]:
        """Rejected entries at the end: masked with zeros, they are as good as cut off."""
        mask = self.mask()
        mask[:, -2:] = 0
        # Values stand for keys too: before keys of zeros a query is the same wherever it stands.
        keyed = {port: self.caches[port.replace(".key", ".value")] for port in self.caches}
        cut = {port: array[:, :, :-2] for port, array in keyed.items()}
        if not self._same(self.run(keyed, mask)[_CARRY], self.carry(cut), self.close):
            yield "entries that are masked are seen, or counted", "the same as without them"

    def mask(self) -> np.ndarray:
        """All real."""
        return np.ones((1, self.length), np.int64)

    def carry(self, caches: Caches) -> np.ndarray:
        """The state of a step after caches in which everything is real."""
        full = next(array.shape[2] for port, array in caches.items() if FULL in port)
        return self.run(caches, np.ones((1, full), np.int64))[_CARRY]

    def run(self, caches: Caches, mask: np.ndarray) -> dict[str, np.ndarray]:
        """One step."""
        return self.runner.run({"inputs_embeds": self.fused, "attention_mask": mask, **caches})

    def _sees(self, kind: str, position: int, close: Mapping[str, float] = _EXACT) -> bool:
        """Whether another value at one position of a kind gives another state."""
        port = f"shared_kv.{kind}.value"
        other = self.caches[port].copy()
        other[:, :, position] += 8
        return not self._same(self.carry(self.caches), self.carry({**self.caches, port: other}), close)

    def _same(self, a: np.ndarray, b: np.ndarray, close: Mapping[str, float]) -> bool:
        wide = [x.astype(np.float64) for x in (a, b)]
        return bool(np.abs(wide[0] - wide[1]).max() <= close[a.dtype.name] * np.abs(wide[0]).max())


def _bench(found: Drafted) -> _Bench:
    rng, ports = np.random.default_rng(_SEED), found.graph.ports.inputs
    length = min((found.window or 0) + 1 + _BEYOND, _LONGEST)
    fused = rng.standard_normal((1, 1, int(ports["inputs_embeds"].shape[-1])))
    made = _Bench(found, Runner(found.graph), length, fused.astype(ports["inputs_embeds"].dtype), {})
    caches = dict[str, np.ndarray]()
    for name, port in ports.items():
        if name.startswith("shared_kv."):
            shape = (1, int(port.shape[1]), length, int(port.shape[3]))
            values = np.zeros(shape) if name.endswith(".key") else rng.standard_normal(shape)
            caches[name] = values.astype(port.dtype)
    return replace(made, caches=caches)
