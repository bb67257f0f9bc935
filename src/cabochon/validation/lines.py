"""The line of a document that an address such as `pipeline.workflow.state.kv.0.key.shape[1]` leads to."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cabochon.errors import CabochonError
from cabochon.metadata import yaml
from cabochon.validation.opened import DOCUMENTS

__all__ = ["Lines", "path"]

_MOST = 200  # addresses; for each the document is read again


class Lines:
    """Finds lines in the documents of a package, as far as they can be read."""

    def __init__(self, package: Path) -> None:
        self._package, self._left = package, _MOST
        self._read: dict[str, tuple[bytes, Any] | None] = {}

    def find(self, name: str, address: str) -> str:
        """ "NAME:LINE:COLUMN" of an address in the document `name`; `name` as it is where that cannot be told."""
        known = self._document(name)
        if known is None or self._left <= 0:
            return name
        self._left -= 1
        text, data = known
        return yaml.address(text, name, path(data, address))

    def _document(self, name: str) -> tuple[bytes, Any] | None:
        if name not in self._read:
            self._read[name] = self._open(name) if name in DOCUMENTS else None
        return self._read[name]

    def _open(self, name: str) -> tuple[bytes, Any] | None:
        try:
            text = (self._package / name).read_bytes()
            return text, yaml.read(text, name)
        except (OSError, CabochonError):
            return None


def path(data: Any, address: str) -> tuple[str | int, ...]:
    """The keys that an address names, as far as there are such; keys may have dots, so that the longest one counts."""
    found: list[str | int] = []
    while address:
        steps = [key for key in _keys(data) if _begins(address, key)]
        if not steps:
            break
        key = max(steps, key=lambda key: len(_spelled(key)))
        address = address.removeprefix(".").removeprefix(_spelled(key))
        data = data[key]
        found.append(key)
    return tuple(found)


def _keys(data: Any) -> list[str | int]:
    if isinstance(data, Mapping):
        return list(data)
    return list(range(len(data))) if isinstance(data, list | tuple) else []


def _spelled(key: str | int) -> str:
    return key if isinstance(key, str) else f"[{key}]"


def _begins(address: str, key: str | int) -> bool:
    """The address goes on with this key, and the key ends there."""
    rest, spelled = address.removeprefix("."), _spelled(key)
    return bool(spelled) and rest.startswith(spelled) and rest[len(spelled) :][:1] in ("", ".", "[")
