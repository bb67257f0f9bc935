"""The evidence files of components, made of what was compared. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cabochon.parity.components import Limits, Match
from cabochon.parity.levels import Compared, Trial
from cabochon.parity.reports import _document, _head

__all__ = ["Matches", "Tried", "component"]

Matches = dict[str, list[Match]]
"""By component."""
WHAT = {
    "vision_encoder": "features of every image and frame; images of a prompt, of different shapes, in one call",
    "audio_encoder": "features of every clip; clips of a prompt, of different lengths, in one call",
    "embedding": "inputs_embeds and per_layer_inputs of every row, with the reference's features in their places",
    "decoder": "logits and hidden states of every row, fed the reference's inputs_embeds and per_layer_inputs",
}
ALONE = "; every component fed what the reference's was"
WHOLE = "; in cabochon's runtime, from text and media, with cabochon's processors"


@dataclass(frozen=True)
class Tried:
    """One trial: every component by itself, and the whole. Without limits nothing is judged."""

    trial: Trial
    limits: Limits | None
    matches: Matches
    compared: list[Compared]

    @property
    def whole(self) -> Trial:
        """How the whole was tried."""
        return replace(self.trial, how=self.trial.how + WHOLE)


def component(name: str, tried: Sequence[Tried], facts: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """l4_<component>.json and its one line."""
    trials = [_trial(name, one) for one in tried]
    document = _document("L4", WHAT[name], trials, {"component": name, **facts})
    return document, "; ".join(_line(name, one) for one in tried)


def _trial(name: str, tried: Tried) -> dict[str, Any]:
    head = _head(replace(tried.trial, how=tried.trial.how + ALONE))
    found, allowed = tried.matches[name], tried.limits
    rows = [{"name": m.label, "port": m.port, **m.found.described()} for m in found]
    if allowed is None:
        return {**head, "prompts": rows}
    ports = dict.fromkeys(m.port for m in found)
    held = tried.trial if name == "decoder" else replace(tried.trial, undecided=None)
    passed = [held.admits(allowed[name, m.port], m.label, m.found) for m in found]
    most = [held.mostly(allowed[name, p], (m.found for m in found if m.port == p)) for p in ports]
    return {
        **head,
        "thresholds": {port: allowed[name, port].described() for port in ports},
        "passed": bool(passed) and all(passed) and all(most),
        "prompts": [{**row, "passed": one} for row, one in zip(rows, passed, strict=True)],
    }


def _line(name: str, tried: Tried) -> str:
    found = tried.matches[name]
    ports = dict.fromkeys(m.port for m in found)
    each = {port: max(m.found.relative for m in found if m.port == port) for port in ports}
    figures = ", ".join(f"{port} {relative:.2e}" for port, relative in each.items())
    arithmetic = tried.trial.arithmetic
    return f"max relative difference {figures}" + (f" beside {arithmetic}" if arithmetic != "f32" else "")
