"""What a check found, as verdicts."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = ["Evidence", "Verdict"]


@dataclass(frozen=True)
class Verdict:
    """One level of a check: whether it held, one line of figures, and the file that says it all."""

    level: str
    passed: bool
    summary: str
    file: str | None = None


@dataclass(frozen=True)
class Evidence:
    """All verdicts of a check of one package."""

    package: Path
    verdicts: tuple[Verdict, ...]

    @property
    def passed(self) -> bool:
        """True when there are verdicts and every one held."""
        return bool(self.verdicts) and all(verdict.passed for verdict in self.verdicts)

    def as_json(self) -> dict[str, Any]:
        """The evidence as plain data, for `--json`."""
        verdicts = [asdict(verdict) for verdict in self.verdicts]
        return {"package": str(self.package), "passed": self.passed, "verdicts": verdicts}
