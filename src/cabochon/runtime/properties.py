"""Metadata properties read from a graph's file before a runtime has loaded it."""

import html
import mmap
import re
from pathlib import Path

from cabochon.runtime.ports import PREFIX

__all__ = ["IR", "peek", "said"]

IR = ".xml"  # the suffix of a graph in OpenVINO's intermediate representation


def peek(path: Path, key: str) -> str | None:
    """A metadata property read from the file's bytes; None where it is absent."""
    return said(path).get(key) if path.suffix == IR else _in_protobuf(path, key)


def said(path: Path) -> dict[str, str]:
    """The properties of a graph in OpenVINO's IR, without their prefix.

    They are the section `cabochon` of what the file says of itself at its end: <key value="..." />, one a line.
    """
    text = path.read_bytes()
    _, _, section = text.rpartition(f"<{PREFIX[:-1]}>".encode())
    section, ends, _ = section.partition(f"</{PREFIX[:-1]}>".encode())
    found = re.findall(r'<([\w.]+) value="([^"]*)"', section.decode(errors="replace")) if ends else ()
    return {key: html.unescape(value) for key, value in found}


def _in_protobuf(path: Path, key: str) -> str | None:
    """A property is its key, the byte 0x12, the value's length (one byte below 128), the value."""
    if not path.stat().st_size:
        return None
    mark = f"{PREFIX}{key}".encode() + b"\x12"
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        at = view.rfind(mark) + len(mark)
        length = view[at] if len(mark) <= at < len(view) else 0
        value = view[at + 1 : at + 1 + length]
    return value.decode(errors="replace") if length and len(value) == length else None
