"""Writes the table of the CPU provider from the onnxruntime that is installed: python -m cabochon.kernels.generate

Other tables are made by what docs/kernels.md says, from the rows that `merged` makes of what a wheel registers.
"""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

from cabochon.kernels.tables import FOLDER, Provider, read

__all__ = ["installed", "merged", "opset", "spelled"]

CPU = "CPUExecutionProvider"
_OPEN = 2**31 - 1  # the end of a range of versions that has none

Row = tuple[int, int | None, dict[str, str]]  # first and last version; element types, as words
Rows = dict[str, dict[str, list[Row]]]  # by domain and operator


def bindings() -> Any:
    """The part of onnxruntime that lists operators and kernels."""
    from onnxruntime import capi

    return import_module(f"{capi.__name__}.onnxruntime_pybind11_state")


def installed() -> Provider:
    """The kernels of the CPU provider, as the installed onnxruntime registers them."""
    return read(document())


def document() -> dict[str, Any]:
    """The table of the CPU provider as its file has it."""
    import onnxruntime

    kernels = [k for k in bindings().get_all_opkernel_def() if k.provider == CPU]
    listed = ((k.domain, k.op_name, *k.version_range, k.type_constraints) for k in kernels)
    return {
        "name": CPU,
        "runtime": "onnxruntime",
        "version": onnxruntime.__version__,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "source": "the kernels that the wheel registers: get_all_opkernel_def()",
        "measured": True,
        "opset": opset(),
        "beside": "",
        "typed": True,
        "unknown": {},
        "kernels": merged(listed),
    }


def opset() -> int:
    """The newest operator set of ai.onnx in which the installed onnxruntime knows an operator."""
    return max(s.since_version for s in bindings().get_all_operator_schema() if s.domain == "")


def merged(registered: Iterable[tuple[str, str, int, int, Mapping[str, list[str]]]]) -> Rows:
    """Rows of a table from kernels: domain, operator, first and last version, types ("tensor(float)") by variable.

    Kernels that differ in the types of one variable alone become one row. Types that are no tensors are left out.
    """
    rows = dict[tuple[str, str], list[Row]]()
    for domain, name, first, last, types in registered:
        words = {variable: _words(kinds) for variable, kinds in sorted(types.items())}
        row = (first, None if last == _OPEN else last, words)
        found = rows.setdefault(("" if domain == "ai.onnx" else domain, name), [])
        found[:] = _added(found, row)
    result: Rows = {}
    for domain, name in sorted(rows):
        ordered = sorted(
            rows[domain, name], key=lambda row: (row[0], row[1] or _OPEN, sorted(row[2].items()))
        )
        result.setdefault(domain, {})[name] = ordered
    return result


def _words(kinds: Iterable[str]) -> str:
    return " ".join(
        sorted(k.removeprefix("tensor(").removesuffix(")") for k in kinds if k.startswith("tensor("))
    )


def _added(rows: list[Row], new: Row) -> list[Row]:
    """The rows with one more, made one with those that it differs from in the types of one variable."""
    for i, old in enumerate(rows):
        if old[:2] != new[:2] or old[2].keys() != new[2].keys():
            continue
        apart = [name for name in new[2] if old[2][name] != new[2][name]]
        if len(apart) < 2:
            types = dict(new[2])
            for name in apart:
                types[name] = " ".join(sorted({*old[2][name].split(), *new[2][name].split()}))
            return _added([*rows[:i], *rows[i + 1 :]], (new[0], new[1], types))
    return [*rows, new]


def spelled(table: Mapping[str, Any]) -> str:
    """The text of a table's file: a line for each operator."""
    head = {key: value for key, value in table.items() if key != "kernels"}
    lines = [f" {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
    domains = [_domain(domain, operators) for domain, operators in table["kernels"].items()]
    return "\n".join(["{", *lines, ' "kernels": {', ",\n".join(domains), " }", "}", ""])


def _domain(domain: str, operators: Mapping[str, list[Row]]) -> str:
    lines = [f"   {json.dumps(name)}: {json.dumps(rows)}" for name, rows in operators.items()]
    return f"  {json.dumps(domain)}: {{\n" + ",\n".join(lines) + "\n  }"


if __name__ == "__main__":
    (FOLDER / "cpu.json").write_text(spelled(document()))
