"""What was measured, as a Markdown table that says when and on what kind of machine."""

import datetime
import os
import platform
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

START, END = "<!-- bench:start -->", "<!-- bench:end -->"


@dataclass(frozen=True)
class Row:
    """One measurement, what it is compared with (where anything is), the aim, and whether it is met. `beside`: what is
    said beside its name where it is missed."""

    what: str
    ours: str
    against: str = ""
    ratio: str = ""
    aim: str = ""
    met: bool | None = None
    beside: str = ""

    def line(self) -> str:
        met = {None: "", True: "yes", False: "**no: missed**"}[self.met]
        return f"| {self.what} | {self.ours} | {self.against} | {self.ratio} | {self.aim} | {met} |"


def markdown(rows: list[Row], scale: float) -> str:
    """The table, with date, machine and what was missed above it."""
    head = "| what | cabochon | compared with | ratio | aim | met |\n|---|---|---|---|---|---|\n"
    scaled = "" if scale == 1 else f" **Sizes scaled by {scale}: no figures to quote.**"
    return f"{_machine()}{scaled} {_missed(rows)}\n\n{head}" + "\n".join(row.line() for row in rows) + "\n"


def failed(what: str, error: Exception) -> Row:
    """The row of a part that could not be measured."""
    said = " ".join(str(error).split()).replace("|", "/")[:200]
    return Row(what, f"not measured: {type(error).__name__}: {said}", met=False)


def _missed(rows: list[Row]) -> str:
    judged = [row for row in rows if row.met is not None]
    missed = [row.what + (row.beside and f" ({row.beside})") for row in judged if not row.met]
    if not missed:
        return f"All {len(judged)} aims are met."
    return f"**{len(missed)} of {len(judged)} aims are missed: {'; '.join(missed)}.**"


def write_into(readme: Path, table: str) -> None:
    """Puts the table between the markers of a README."""
    text = readme.read_text(encoding="utf-8")
    if START not in text or END not in text:
        raise SystemExit(f"{readme.name} lacks the markers {START} and {END}")
    before, rest = text.split(START, 1)
    after = rest.split(END, 1)[1]
    readme.write_text(f"{before}{START}\n{table}{END}{after}", encoding="utf-8")


def _machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    libraries = ", ".join(f"{name} {version(name)}" for name in ("cabochon", "onnxruntime", "numpy"))
    return (
        f"Measured on {datetime.date.today().isoformat()}: {os.cpu_count()} cores of {_processor()}, "
        f"{memory:.0f} GiB of memory, Linux, Python {platform.python_version()}, {libraries}."
    )


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = {line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")}
    flags = next((line for line in lines if line.startswith("flags")), "")
    widest = next((name for name in ("avx512f", "avx2") if f" {name}" in flags), "no avx2")
    return f"{' and '.join(sorted(models)) or platform.machine()} ({widest})"
