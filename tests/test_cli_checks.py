"""What a command makes of what it is told: exit codes of failed checks, flags that arrive, a bar that shows."""

import io
import json
from pathlib import Path
from typing import Any

import onnxruntime as ort
import pytest
from rich import console as rich_console

import cabochon.demo
import cabochon.parity
from cabochon.cli.app import app
from cabochon.cli.build import Bar
from cabochon.demo import Account, Check
from cabochon.parity.evidence import Evidence, Verdict
from cabochon.runtime import load
from test_cli import COMMANDS, call


def test_no_command_is_forgotten_here() -> None:
    names = {
        command.name or (command.callback and command.callback.__name__)
        for command in app.registered_commands
    }
    assert {str(name).removesuffix("_rows") for name in names} == set(COMMANDS)


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("passed", [True, False])
def test_a_failed_comparison_is_exit_code_1(
    monkeypatch: Any, tmp_path: Path, passed: bool, as_json: bool
) -> None:
    evidence = Evidence(tmp_path, (Verdict("L4", True, "fine", ""), Verdict("L5", passed, "so so", "")))
    monkeypatch.setattr(cabochon.parity, "check", lambda *_, **__: evidence)
    done = call("parity", tmp_path, "source", *(["--json"] if as_json else []))
    assert done.returncode == (0 if passed else 1)
    if as_json:
        assert json.loads(done.stdout)["passed"] is passed
    else:
        assert ("FAIL  L5: so so" in done.stdout) is not passed


@pytest.mark.parametrize("passed", [True, False])
def test_a_failed_demo_is_exit_code_1(monkeypatch: Any, passed: bool) -> None:
    account = Account((), (Check("it holds", "found", passed),), ())
    monkeypatch.setattr(cabochon.demo, "demo", lambda _: account)
    assert call("demo", "--json").returncode == (0 if passed else 1)


def test_threads_and_provider_options_arrive(monkeypatch: Any, package: Path) -> None:
    opened: dict[str, Any] = {}

    class Opened(ort.InferenceSession):
        def __init__(self, path: Path, options: ort.SessionOptions, providers: list[Any]) -> None:
            opened.update(threads=options.intra_op_num_threads, providers=providers)
            super().__init__(path, options, providers=providers)

    monkeypatch.setattr(ort, "InferenceSession", Opened)
    load(package, threads=3, provider="cpu", provider_options={"key": 7})
    assert opened == {"threads": 3, "providers": [("CPUExecutionProvider", {"key": "7"})]}


def test_flags_of_run_arrive(monkeypatch: Any, package: Path) -> None:
    import cabochon.runtime as runtime

    seen: dict[str, Any] = {}

    def loading(path: Path, **options: Any) -> Any:
        seen.update(options, path=path)
        return load(path)

    monkeypatch.setattr(runtime, "load", loading)
    options = [
        "--threads",
        "2",
        "--provider",
        "cpu",
        "--provider-option",
        "a=b",
        "--provider-option",
        "c=d=e",
    ]
    done = call("run", package, "--ids", "2,5,6", "--max-new-tokens", "1", "--greedy", *options)
    assert done.returncode == 0, done.stderr
    assert seen == {
        "path": package, "threads": 2, "provider": "cpu", "provider_options": {"a": "b", "c": "d=e"},
        "proposer": None,
    }  # fmt: skip


def test_the_bar_shows_sizes_rate_and_time_left(monkeypatch: Any) -> None:
    screen = io.StringIO()
    real = rich_console.Console
    monkeypatch.setattr(
        rich_console,
        "Console",
        lambda **_: real(file=screen, force_terminal=True, width=120, color_system=None),
    )
    with Bar() as bar:
        bar.start(4_000_000)
        bar.advance(1_000_000)
        bar.advance(1_000_000)
        assert bar._bar is not None
        bar._bar.refresh()
    shown = screen.getvalue()
    assert "writing" in shown and "2.0/4.0 MB" in shown and "/s" in shown
    assert "0:00:0" in shown or "-:--:--" in shown


def test_no_bar_where_there_is_no_terminal(tmp_path: Path) -> None:
    done = call("build", cabochon.demo.MINIATURE / "target", tmp_path / "a")
    assert (done.returncode, done.stderr) == (0, "")


def test_no_bar_beside_json(monkeypatch: Any) -> None:
    with Bar(silent=True) as bar:
        bar.start(10)
        bar.advance(10)
        assert bar._bar is None


@pytest.mark.parametrize("wrong", [["--shard", "3/2"], ["--shard", "two"], []])
def test_a_matrix_that_was_called_wrongly_is_exit_code_2(wrong: list[str]) -> None:
    out = ["out"] if wrong else []
    assert call("matrix", "source", *out, *wrong).returncode == 2
