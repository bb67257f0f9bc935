"""onnxruntime-genai: what it does with a package and its genai_config.json."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from cabochon.clients.child import run
from cabochon.clients.judging import Expected, judged
from cabochon.clients.media_trials import Shown
from cabochon.clients.probes import Client, Probe

__all__ = ["AROUND", "NAME", "Greedy", "Trial", "client", "showing", "trials"]

NAME = "onnxruntime-genai"
Greedy = Callable[[tuple[int, ...], int], tuple[int, ...]]  # the tokens that follow these, so many

AROUND = "\n\n"  # what it puts before and behind the tokens of a medium
_SPARE = 8  # positions beyond the last token drawn
_LOAD = Expected("load, on the CPU")


@dataclass(frozen=True)
class Trial:
    """Steps: ("append", rows of token ids), ("rewind", length), ("draw", count), ("show", a prompt with files).

    `expected` are the tokens of the last draw, by row; `shown` how many tokens stand for what is shown.
    """

    name: str
    tried: str
    steps: tuple[tuple[str, Any], ...]
    expected: tuple[tuple[int, ...], ...]
    shown: int = 0

    def request(self, prefix: str) -> dict[str, Any]:
        """As a program is asked to play it."""
        drawn = sum(value for verb, value in self.steps if verb == "draw")
        fed = sum(len(value[0]) for verb, value in self.steps if verb == "append")
        return {
            "name": prefix + self.name,
            "steps": self.steps,
            "rows": len(self.expected),
            "room": fed + self.shown + drawn + _SPARE,
        }


def trials(ours: Greedy, prompt: Sequence[int], count: int, pad: int) -> tuple[Trial, ...]:
    """What is tried with a prompt of at least four tokens; `ours` is cabochon's own runtime."""
    prompt, half = list(prompt), len(prompt) // 2
    other, short = prompt[half:][::-1], prompt[: half + 1]
    padding = [pad] * (len(prompt) - len(short))
    begin, draw = ("append", [prompt]), ("draw", count)

    def after(*rows: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        return tuple(ours(tuple(row), count) for row in rows)

    return (
        Trial("greedy", f"{count} tokens, greedily", (begin, draw), after(prompt)),
        Trial(
            "chunks", "a prompt in two pieces",
            (("append", [prompt[:half]]), ("append", [prompt[half:]]), draw), after(prompt),
        ),
        Trial(
            "rewind", f"rewind_to the end of the prompt after {count} tokens, then go on another way",
            (begin, draw, ("rewind", len(prompt)), ("append", [other]), draw), after(prompt + other),
        ),
        Trial(
            "rewind into the prompt",
            f"rewind_to the middle of the prompt after {count} tokens, then go on another way",
            (begin, draw, ("rewind", half), ("append", [other]), draw), after(prompt[:half] + other),
        ),
        Trial(
            "ragged, left", "two prompts of different length, padded on the left",
            (("append", [prompt, padding + short]), draw), after(prompt, short),
        ),
        Trial(
            "ragged, right", "two prompts of different length, padded on the right",
            (("append", [prompt, short + padding]), draw), after(prompt, short),
        ),
    )  # fmt: skip


def showing(shown: Shown, length: int, expected: tuple[int, ...]) -> Trial:
    """A prompt with files, `length` tokens long, as this runtime spells it: it puts line breaks around media itself."""
    files = {kind: shown.files(kind) for kind in ("image", "audio")}
    steps = (("show", {"text": shown.text(), **files}), ("draw", len(expected)))
    return Trial(shown.name, f"{len(expected)} tokens after {shown.tried}", steps, (expected,), length)


def client(package: Path, tried: Sequence[Trial], *, seconds: float) -> Client:
    """Everything with the package as it is; then, with its claim of a shared buffer turned around, greedy and rewind.

    A process that dies or hangs is followed by another one for what is left.
    """
    try:
        found = version(NAME)
    except PackageNotFoundError:
        return Client(NAME, None, ())
    probes = list(_played(package, tried, "", "", seconds))
    shared = _shared(package)
    if shared is not None:
        overlay = json.dumps({"search": {"past_present_share_buffer": not shared}})
        prefix = f"{'without' if shared else 'with'} a shared buffer: "
        turned = [trial for trial in tried if trial.name in ("greedy", "rewind")]
        probes += _played(package, turned, overlay, prefix, seconds)
    return Client(NAME, found, tuple(probes))


def _shared(package: Path) -> bool | None:
    """What genai_config.json claims; None where it claims nothing or cannot be read."""
    try:
        return json.loads((package / "genai_config.json").read_bytes())["search"]["past_present_share_buffer"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _played(
    package: Path, tried: Sequence[Trial], overlay: str, prefix: str, seconds: float
) -> Iterator[Probe]:
    expected = {f"{prefix}{t.name}": Expected(f"{prefix}{t.tried}", t.expected) for t in tried}
    expected |= {"load": _LOAD}
    left, seen = [t.request(prefix) for t in tried], set[str]()
    while left:
        request = {"package": str(package), "overlay": overlay, "trials": left}
        ended = run(["-m", "cabochon.clients.programs.run_onnxruntime_genai"], request, seconds=seconds)
        found = list(judged(ended, expected))
        fresh = [probe for probe in found if probe.name not in seen]
        yield from (
            replace(probe, name=f"{prefix}load") if probe.name == "load" else probe for probe in fresh
        )
        seen |= {probe.name for probe in fresh}
        played = [request for request in left if request["name"] not in seen]
        left = played if ended.fault and len(played) < len(left) else []
