"""What the demo did, as data."""

from dataclasses import dataclass

from cabochon.package import Built

__all__ = ["Account", "Check", "Sample"]


@dataclass(frozen=True)
class Check:
    """One statement about the packages, what was found, and whether it holds."""

    statement: str
    found: str
    passed: bool


@dataclass(frozen=True)
class Sample:
    """One answer: what was asked, what came, and how fast in tokens a second."""

    prompt: str
    text: str
    speed: float


@dataclass(frozen=True)
class Account:
    """The packages that were built, what was checked of them, and what the first of them says."""

    packages: tuple[Built, ...]
    checks: tuple[Check, ...]
    samples: tuple[Sample, ...]

    @property
    def passed(self) -> bool:
        """Every check holds."""
        return all(check.passed for check in self.checks)
