"""What a package of some kind holds beside its weights: the port between the build and what it says of a model."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

from cabochon.package.facts import Facts
from cabochon.package.preparing import Prepared

__all__ = ["Described"]

F = TypeVar("F", bound=Facts[Any])


class Described(Protocol[F]):
    """One kind of package. Paths are relative to the package."""

    def traced(self, known: Prepared) -> F:
        """The graph, and what is known of it before anything is written."""
        ...

    def contract(self, facts: F) -> Mapping[str, bytes]:
        """The files that are derived from the graph alone."""
        ...

    def travelling(self, facts: F) -> Mapping[str, tuple[Path, str]]:
        """The files that come along unchanged: where each lies, and what it is."""
        ...

    def documents(self, facts: F) -> Mapping[str, str]:
        """The texts that speak of what was written, but for the card."""
        ...

    def card(self, facts: F, files: Mapping[str, str]) -> str:
        """README.md; `files` are those of the package, and what each is."""
        ...

    def said(self) -> Mapping[str, str]:
        """What each file is that `contract` and `documents` make."""
        ...

    def summed(self) -> Mapping[str, str]:
        """SHA-256 of files that were hashed already, by path."""
        ...
