"""What was tried with other runtimes, and what came of it."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

__all__ = ["Client", "Outcome", "Probe", "Probes"]

# "refused": it raised an error or said no. "crashed": its process died. "hung": it was ended after its time.
Outcome = Literal["worked", "differs", "refused", "crashed", "hung"]


@dataclass(frozen=True)
class Probe:
    """One thing that was tried. `happened` is what was seen, in words; `seconds` are those of a wall clock."""

    name: str
    tried: str
    outcome: Outcome
    happened: str
    seconds: float


@dataclass(frozen=True)
class Client:
    """A runtime that others wrote. `version` is None where it is not installed: then nothing was tried."""

    name: str
    version: str | None
    probes: tuple[Probe, ...]

    def __getitem__(self, name: str) -> Probe:
        """The probe of that name. Raises KeyError where it was not tried."""
        return {probe.name: probe for probe in self.probes}[name]


@dataclass(frozen=True)
class Probes:
    """All that was tried with one package. `measured` says on which bytes and with which versions."""

    package: Path
    measured: Mapping[str, Any]
    clients: tuple[Client, ...]

    def __getitem__(self, name: str) -> Client:
        """The client of that name."""
        return {client.name: client for client in self.clients}[name]

    @property
    def limitations(self) -> tuple[str, ...]:
        """What did not work: client and version, what was tried, what happened. Nothing that was not tried."""
        return tuple(self._limitations())

    def _limitations(self) -> Iterator[str]:
        for client in self.clients:
            for probe in client.probes:
                if probe.outcome != "worked":
                    yield f"{client.name} {client.version}: {probe.tried}: {probe.outcome}: {probe.happened}"

    def as_json(self) -> dict[str, Any]:
        """The content of evidence/runtime_limitations.json."""
        clients = [asdict(client) for client in self.clients]
        return {**self.measured, "clients": clients, "limitations": list(self.limitations)}
