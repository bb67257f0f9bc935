"""The rule on what a package of OpenVINO's IR does when it is run, which needs OpenVINO."""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np

from cabochon.errors import CabochonError
from cabochon.evidence import activations
from cabochon.validation.converted import Converted, converted
from cabochon.validation.findings import Severity
from cabochon.validation.opened import DRAFTER, Opened
from cabochon.validation.rules import Found, Skipped, rule

__all__: list[str] = []

SEED, LONGEST = 7, 40  # of the ids; tokens of a run, where the window is longer
CLOSE = {
    "f32": 1e-4,
    "f16": 2.0**-6,
    "bf16": 2.0**-4,
}  # of the largest logit: rounded caches, several times over


@rule("OVN020", Severity.ERROR, ("execute",))
def runs_otherwise(package: Opened) -> Iterator[Found]:
    """A converted model does not run, or says something else of a text in chunks than of all of it at once.

    Causes: an operator that this release of OpenVINO computes wrongly, or not at all; states that are lost between
    steps; caches that were joined in the wrong order; weights that are no numbers.
    Remedy: convert the package again with the release of runtime-requirements.txt, and report it if that does not help.
    """
    part = converted(package)
    if part is None:
        return
    if part.kind == DRAFTER:
        raise Skipped("a drafter runs beside its target")
    if part.wrapper is not None:
        raise Skipped("ONNX Runtime's OpenVINO provider runs it; what it wraps can be run as openvino-ir")
    if activations(part.properties) not in CLOSE:
        raise Skipped(f"cabochon cannot feed graphs of {activations(part.properties)}")
    if find_spec("openvino") is None:
        raise Skipped("OpenVINO is not installed: pip install 'cabochon[openvino]'")
    try:
        yield from _compared(part, _said(package, part))
    except (CabochonError, RuntimeError) as error:  # OpenVINO's own are RuntimeErrors
        yield Found(part.net.path, f"{error}".splitlines()[0][:300], "a prefill and steps that run")


def _said(package: Opened, part: Converted) -> dict[str, np.ndarray]:
    """The logits [V] of the last token of a text, by how it was fed: across the window where that is short."""
    from cabochon.runtime import load
    from cabochon.runtime.openvino_graph import EXACT

    text = part.text
    assert text is not None
    count = min((text.window or LONGEST) + 3, LONGEST)
    ids = np.random.default_rng(SEED).integers(0, text.vocab, count).tolist()
    config = package.json("config.json") or {}
    named = [ids for name, ids in config.items() if name.endswith("_token_id")]  # a number, a list, or null
    listed = [one for ids in named for one in (ids if isinstance(ids, list) else [ids])]
    taken = {one for one in listed if isinstance(one, int)}
    ids = [one for one in ids if one not in taken] or [text.pad_token_id]
    options: dict[str, Any] = {"threads": 1, "provider_options": EXACT}
    model = load(package.root, **options)
    return {name: model.state().prefill(ids, chunk=size) for name, size in _WAYS.items()}


_WAYS = {"at once": LONGEST, "token by token": 1, "in threes": 3}


def _compared(part: Converted, said: dict[str, np.ndarray]) -> Iterator[Found]:
    whole, close = (
        said["at once"].astype(np.float32),
        CLOSE.get(activations(part.properties) or "", CLOSE["f32"]),
    )
    for how, logits in said.items():
        if not np.isfinite(logits).all():
            yield Found(f"{part.net.path}: outputs.logits", f"numbers that are none, {how}", "finite numbers")
            return
        apart = float(np.abs(logits.astype(np.float32) - whole).max() / max(float(np.abs(whole).max()), 1e-9))
        if apart > close:
            found = f"{apart:.1g} (relative) from a prefill, fed {how}"
            yield Found(f"{part.net.path}: outputs.logits", found, f"at most {close:.1g}")
