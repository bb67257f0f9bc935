"""What is known of kernels beyond their being there: nodes that are computed wrongly, slowly, or refused; as data."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["QUIRKS", "Quirk", "Quirks"]

_FILE = Path(__file__).parent / "quirks.json"


@dataclass(frozen=True)
class Quirk:
    """A fact of the kernels of some providers.

    `kind`: "wrong" (computed wrongly, and nothing says so), "slow", "refused" (an error), or "differs" (releases do not
    agree). `providers`: those that it holds for; none: all. `operator`: with its domain, as com.microsoft.MatMulNBits.
    `when`: what must be so, by fact of the node: a value, or [least, most], either null; a fact with %n is what is left
    of it divided by n. A node of which a fact is not known has no quirk. `found` with the facts filled in says what the
    node does, `expected` what it should. `source`: where it is from, `measured`: whether it was run. `rule`: the
    validator's.
    """

    name: str
    kind: str
    rule: str
    providers: tuple[str, ...]
    operator: str
    when: Mapping[str, Any]
    found: str
    expected: str
    source: str
    measured: bool

    def holds(self, operator: str, facts: Mapping[str, Any]) -> bool:
        """Whether it is a quirk of a node."""
        return operator == self.operator and all(_meets(facts, *each) for each in self.when.items())

    def of(self, provider: str) -> bool:
        """Whether it is a provider's."""
        return not self.providers or provider in self.providers


def _meets(facts: Mapping[str, Any], name: str, wanted: Any) -> bool:
    key, _, divisor = name.partition("%")
    value = facts.get(key)
    if value is None:
        return False
    if divisor:
        value %= int(divisor)
    if not isinstance(wanted, list):
        return value == wanted
    least, most = wanted
    return (least is None or value >= least) and (most is None or value <= most)


class Quirks:
    """All of them; the file is read when they are first asked for."""

    def __iter__(self) -> Iterator[Quirk]:
        return iter(_read())

    def __len__(self) -> int:
        return len(_read())

    def of(self, provider: str, *, rule: str = "") -> tuple[Quirk, ...]:
        """Those of a provider; those of a rule of the validator, where one is given."""
        return tuple(q for q in _read() if q.of(provider) and rule in ("", q.rule))


@cache
def _read() -> tuple[Quirk, ...]:
    read: list[dict[str, Any]] = json.loads(_FILE.read_text())
    return tuple(Quirk(providers=tuple(said.pop("providers")), **said) for said in read)


QUIRKS = Quirks()
