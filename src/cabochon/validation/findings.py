"""What a rule found in a package."""

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Finding", "Severity"]


class Severity(StrEnum):
    """How much a finding weighs: an error refuses the package, a warning does so with --strict, a note never."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True)
class Finding:
    """One fault: the rule's code and title, where it is (`at`), what was found and expected, what to do."""

    code: str
    severity: Severity
    rule: str
    at: str
    found: str
    expected: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.severity} {self.code} {self.at}: found {self.found}; expected {self.expected}"
