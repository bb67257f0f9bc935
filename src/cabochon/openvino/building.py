"""A package for OpenVINO from a checkpoint: built for onnx-standard beside its place and converted."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

from cabochon import files
from cabochon.dialects import CONVERSIONS
from cabochon.errors import TargetError
from cabochon.openvino.conversion import convert, require_own_caches
from cabochon.package import Built, Progress, build
from cabochon.recipes.recipe_file import find_precision
from cabochon.runtime.openvino_graph import library

__all__ = ["build_converted"]


def build_converted(
    source: str | Path,
    out: str | Path,
    *,
    target: str,
    precision: str | Path = "f16",
    stateful: bool = False,
    command: Sequence[str] | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Built:
    """Build the package `out` of `target`, "openvino-ir" or "openvino-epcontext", from the checkpoint `source`.

    `precision` and `options` are those of `cabochon.package.build`; `stateful` is `convert`'s. Both packages are on
    the disk while one is converted into the other. Raises what `build` and `convert` do.
    """
    started, out = time.monotonic(), Path(out)
    if target not in CONVERSIONS:
        raise TargetError(f"unknown target {target!r}; expected one of {', '.join(CONVERSIONS)}")
    files.refuse(out)
    carries = CONVERSIONS[target].target
    stored = find_precision(precision).on(carries.storage)
    carries.require(stored.activations, (), stored.methods)
    if stateful:
        kind = "pair" if options.get("assistant") is not None else options.get("model", "text")
        require_own_caches(kind, target)
    library()
    to = cast('Literal["openvino-ir", "openvino-epcontext"]', target)
    said: dict[str, Any] = {"command": command, "progress": progress}
    with files.aside(out.with_name(f"{out.name}-{CONVERSIONS[target].of}")) as folder:
        standard = folder / CONVERSIONS[target].of
        built = build(source, standard, target=CONVERSIONS[target].of, precision=precision, **options, **said)
        made = convert(standard, out, to=to, stateful=stateful, **said)
    remarks = (*built.remarks, *made.remarks)
    return replace(made, remarks=remarks, seconds=time.monotonic() - started)
