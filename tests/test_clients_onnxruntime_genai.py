"""The trials, and what follows when a process dies in the middle of them. No runtime but ours is needed here."""

import json
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

from cabochon.clients import onnx_genai, onnxruntime_genai
from cabochon.clients.child import Ended
from cabochon.clients.onnxruntime_genai import client, trials


def ours(ids: tuple[int, ...], count: int) -> tuple[int, ...]:
    return (sum(ids),) * count


TRIALS = trials(ours, [5, 6, 7, 8], 2, pad=0)


def test_trials_are_data() -> None:
    found = {trial.name: trial for trial in TRIALS}
    assert found["greedy"].steps == (("append", [[5, 6, 7, 8]]), ("draw", 2))
    assert found["greedy"].expected == ((26, 26),)
    assert found["rewind"].steps[2:] == (("rewind", 4), ("append", [[8, 7]]), ("draw", 2))
    assert found["rewind"].expected == ((41, 41),)
    assert found["rewind into the prompt"].expected == ((26, 26),)
    assert found["ragged, left"].steps[0] == ("append", [[5, 6, 7, 8], [0, 5, 6, 7]])
    assert found["ragged, right"].steps[0] == ("append", [[5, 6, 7, 8], [5, 6, 7, 0]])
    assert found["ragged, right"].expected == ((26, 26), (18, 18))
    request = found["rewind"].request("")
    assert (request["rows"], request["room"]) == (1, 4 + 2 + 2 + 2 + 8)
    assert json.loads(json.dumps(request))["steps"][0] == ["append", [[5, 6, 7, 8]]]


class Played:
    """Stands for the child process: dies when it comes to `deadly`."""

    def __init__(self, deadly: str) -> None:
        self.deadly, self.asked = deadly, list[list[str]]()

    def __call__(self, arguments: Sequence[str], request: dict[str, Any], *, seconds: float) -> Ended:
        names = [trial["name"] for trial in request["trials"]]
        self.asked.append(names)
        told = [
            {"name": "load", "event": "begins"},
            {"name": "load", "event": "gave", "found": None, "seconds": 0.1},
        ]
        for trial in request["trials"]:
            told.append({"name": trial["name"], "event": "begins"})
            if trial["name"] == self.deadly:
                return Ended(tuple(told), -11, "", 1.0)
            told.append({"name": trial["name"], "event": "gave", "found": [[26, 26]], "seconds": 0.1})
        return Ended(tuple(told), 0, "", 1.0)


def package(folder: Path, shared: bool) -> Path:
    (folder / "genai_config.json").write_text(json.dumps({"search": {"past_present_share_buffer": shared}}))
    return folder


def test_another_process_plays_what_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(deadly="chunks")
    monkeypatch.setattr(onnxruntime_genai, "run", played)
    monkeypatch.setattr(onnxruntime_genai, "version", lambda _: "0.18.0")
    found = client(package(tmp_path, True), TRIALS, seconds=9)
    assert [probe.name for probe in found.probes][:4] == ["load", "greedy", "chunks", "rewind"]
    assert (found["chunks"].outcome, found["chunks"].happened) == ("crashed", "its process died of SIGSEGV")
    assert found["greedy"].outcome == "worked"
    assert played.asked[1] == ["rewind", "rewind into the prompt", "ragged, left", "ragged, right"]
    assert played.asked[2] == ["without a shared buffer: greedy", "without a shared buffer: rewind"]


def test_a_claim_is_turned_around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(deadly="with a shared buffer: greedy")
    monkeypatch.setattr(onnxruntime_genai, "run", played)
    monkeypatch.setattr(onnxruntime_genai, "version", lambda _: "0.18.0")
    found = client(package(tmp_path, False), TRIALS, seconds=9)
    assert found["with a shared buffer: greedy"].outcome == "crashed"
    assert "with a shared buffer: rewind" in [probe.name for probe in found.probes]
    loads = [probe.name for probe in found.probes if "load" in probe.name]
    assert loads == ["load", "with a shared buffer: load"], "each once, however many processes there were"


def test_a_package_that_kills_at_loading_is_not_tried_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = Ended(({"name": "load", "event": "begins"},), -9, "", 1.0)
    monkeypatch.setattr(onnxruntime_genai, "run", lambda *_, **__: dead)
    monkeypatch.setattr(onnxruntime_genai, "version", lambda _: "0.18.0")
    (probe,) = client(tmp_path, TRIALS, seconds=9).probes
    assert (probe.name, probe.outcome, probe.happened) == ("load", "crashed", "its process died of SIGKILL")


def test_a_client_that_is_not_installed_is_not_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise PackageNotFoundError(name)

    for module in (onnxruntime_genai, onnx_genai):
        monkeypatch.setattr(module, "version", absent)
        monkeypatch.setattr(module, "run", lambda *_, **__: pytest.fail("nothing is started"))
    assert client(tmp_path, TRIALS, seconds=9).version is None
    found = onnx_genai.client(tmp_path, "text", [1], [2], seconds=9)
    assert (found.version, found.probes) == (None, ())
