"""The program as a user meets it: help, results, JSON, messages, exit codes."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import cabochon
from cabochon.cli import main
from cabochon.demo import MINIATURE
from cabochon.dialects import CONVERSIONS, TARGETS
from cabochon.recipes import PRECISIONS

ROOT = Path(__file__).parents[1]
SOURCE = MINIATURE / "target"
COMMANDS = (
    "plan",
    "build",
    "run",
    "chat",
    "bench",
    "validate",
    "parity",
    "probe",
    "compare",
    "eval",
    "sensitivity",
    "convert",
    "inspect",
    "matrix",
    "web",
    "list",
    "demo",
)
ENVIRONMENT = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}
PROGRAM = [sys.executable, "-c", "from cabochon.cli import main; main()"]


class Done(NamedTuple):
    """How a call ended."""

    returncode: int
    stdout: str
    stderr: str


def call(*arguments: str | Path, input: str = "") -> Done:
    """The program with these arguments, in this process."""
    out, error = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["cabochon", *map(str, arguments)])
        patch.setattr(sys, "stdin", io.StringIO(input))
        patch.setattr(os, "environ", ENVIRONMENT)
        with redirect_stdout(out), redirect_stderr(error), pytest.raises(SystemExit) as left:
            main()
    return Done(int(left.value.code or 0), out.getvalue(), error.getvalue())


def start(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The program in a process of its own."""
    return subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True, env=ENVIRONMENT, check=True)


def ended(*arguments: str | bytes, stdout: Any = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    """Like `start`, for what goes wrong."""
    command = [*PROGRAM, *arguments]
    return subprocess.run(
        command, stdout=stdout, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, check=False
    )


def succeed(*arguments: str | Path, input: str = "") -> str:
    done = call(*arguments, input=input)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("cli") / "package"
    return cabochon.build(SOURCE, out, target="default", precision="f32").path


# help


@pytest.mark.parametrize("command", COMMANDS)
def test_help(command: str) -> None:
    text = succeed(command, "--help")
    assert f"cabochon {command}" in text or "Usage" in text
    assert "--json" in text
    assert text == succeed(command, "-h")


@pytest.mark.parametrize(("command", "extra"), [("parity", "parity"), ("probe", "clients")])
def test_help_names_the_extra_to_install(command: str, extra: str) -> None:
    """In help, words in brackets are markup unless they are escaped."""
    assert f"pip install 'cabochon[{extra}]'" in " ".join(succeed(command, "--help").split())


def test_help_names_every_command() -> None:
    text = succeed("--help")
    assert all(f" {command} " in text for command in COMMANDS)


def test_help_is_fast() -> None:
    """In seconds of processor time, which a busy machine does not stretch; best of three."""

    def seconds() -> float:
        before = os.times()
        start("--help")
        after = os.times()
        return after.children_user - before.children_user + after.children_system - before.children_system

    assert min(seconds() for _ in range(3)) < 0.6


def test_help_loads_nothing_heavy() -> None:
    code = "import cabochon.cli.app, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"onnx", "onnx_ir", "onnxruntime", "torch", "sympy", "tokenizers"} & set(done.stdout.split())


def test_version() -> None:
    assert succeed("--version") == f"cabochon {cabochon.__version__}\n"


# results


def test_plan_of_a_config_alone() -> None:
    config = ROOT / "tests" / "data" / "geometries" / "e2b.json"
    text = succeed("plan", "--config", config)
    assert "5,104,298,467 parameters, 10.2 GB in 1951 tensors" in text
    assert "6,144 B a token + 12,288 B for the last 512 tokens" in text
    assert "no released onnxruntime has bf16 kernels" in text
    assert "split into 35 tables" in text
    found = json.loads(succeed("plan", "--config", config, "--json"))
    assert found["nbytes"] == 10_208_596_934
    assert [verdict["model"] for verdict in found["verdicts"]] == 48 * ["text"] + 48 * ["full"]
    names = [part["name"] for part in found["verdicts"][-1]["components"]]
    assert names == ["decoder", "embedding", "vision_encoder", "audio_encoder", "documents"]


def test_plan_of_a_pair() -> None:
    folder = ROOT / "tests" / "data" / "geometries"
    pair = ("plan", "--config", folder / "e2b.json", "--assistant", folder / "e2b-assistant.json")
    text = succeed(*pair)
    assert "e2b-assistant.json: gemma4_assistant, 77,993,476 parameters, 158 MB in 50 tensors" in text
    assert "Text package, in a pair:" in text
    assert "Full package (--model full), in a pair:" in text
    assert re.search(r"^on disk, default +decoder +embedding +vision +audio +drafter +documents$", text, re.M)
    assert re.search(r"^f32 +7\.46 GB +11\.1 GB +681 MB +1\.24 GB +314 MB +66\.3 MB$", text, re.M)
    assert "onnxruntime-web 1.30.0 has no kernels of Loop" in text
    assert "webgpu but f32/bf16/NF4: the adapter must offer the feature shader-f16" in text
    assert "onnx-standard NF4: target 'onnx-standard' cannot carry weights in 'nf4'" in text
    wide = [line for line in text.splitlines() if len(line) > 100]
    assert all(line.startswith(("- ", "Keys and values", str(folder), "with ")) for line in wide)
    assert json.loads(succeed(*pair, "--json"))["assistant"]["nbytes"] == 157_559_816


def test_plan_of_a_source() -> None:
    assert "gemma4_text, 2,964,458 parameters" in succeed("plan", SOURCE)


def test_plan_of_one_precision(tmp_path: Path) -> None:
    found = json.loads(succeed("plan", SOURCE, "--precision", "Q4_K_M", "--json"))
    assert [(v["target"], v["precision"]) for v in found["verdicts"]] == [
        (name, "Q4_K_M") for name in (*TARGETS, *CONVERSIONS)
    ]
    recipe = tmp_path / "mine.toml"
    rule = 'method = "round"\nbits = 8\nblock = 32'
    recipe.write_text(f'name = "mine"\n[[rules]]\nweights = "decoder/mlp.*"\n{rule}')
    found = json.loads(succeed("plan", SOURCE, "--precision", recipe, "--json"))
    assert {v["precision"] for v in found["verdicts"]} == {"mine"}
    recipe.write_text(f'name = "mine"\n[[rules]]\nweights = "decoder/mlp.down"\n{rule}')
    text = succeed("plan", SOURCE, "--precision", recipe)
    assert f"{recipe}: rules[0]: weights: 'decoder/mlp.down' fits no weight (did you mean" in text


def test_list() -> None:
    text = succeed("list", "targets")
    assert all(target in text for target in ("default", "onnx-standard", "cuda", "webgpu"))
    rows = json.loads(succeed("list", "targets", "--json"))
    assert {row["target"]: row["provider"] for row in rows}["cuda"] == "CUDAExecutionProvider"
    beside = next(row["caveats"] for row in rows if row["target"] == "onnx-standard")
    assert any(
        each.startswith("bf16: ") and "; " in each and f"- onnx-standard: {each}\n" in text for each in beside
    )
    rows = json.loads(succeed("list", "precisions", "--json"))
    known = {row["precision"]: row for row in rows}
    assert list(known) == list(PRECISIONS)
    assert known["NF4"]["targets"] == "default cuda"
    assert any("'onnx-standard' cannot carry weights in 'nf4'" in line for line in known["NF4"]["remarks"])
    (rule,) = known["Q8"]["rules"]
    assert (rule["weights"], rule["bits"], rule["block"]) == ("*", 8, 32)
    assert "8 bits in blocks of 32, symmetric, round" in rule["stored"]
    first = known["Q4_K_M"]["rules"][0]
    assert "asymmetric, k-quant (onnx-standard, webgpu)" in first["stored"]
    assert " symmetric, k-quant (default, cuda)" in first["stored"]
    assert min(first["bits_per_weight"]) == 4.5
    text = succeed("list", "precisions")
    assert re.search(r"^Q4_K_M +\* +k-quant 4 +32 +by target +4\.5-", text, re.M)
    assert "the formats of llama.cpp under such names are others" in text


@pytest.mark.parametrize("terminal", [{}, {"FORCE_COLOR": "1"}], ids=["no terminal", "terminal"])
def test_tables_are_not_cut_off(terminal: dict[str, str]) -> None:
    environment = {**ENVIRONMENT, "COLUMNS": "60", **terminal}
    command = [*PROGRAM, "list", "precisions"]
    text = subprocess.run(command, capture_output=True, text=True, env=environment, check=True).stdout
    assert "…" not in text
    assert ("decoder/per_layer_input_gate" in text) != bool(terminal)  # in several lines


def test_build(tmp_path: Path) -> None:
    text = succeed("build", SOURCE, tmp_path / "a", "--precision", "f16")
    assert "default f16" in text
    found = json.loads(succeed("build", SOURCE, tmp_path / "b", "--precision", "f16", "--json"))
    assert (found["target"], found["precision"], found["linked"]) == ("default", "f16", False)
    assert found["path"] == str(tmp_path / "b")
    assert (tmp_path / "a" / "model.onnx").read_bytes() == (tmp_path / "b" / "model.onnx").read_bytes()


def test_build_notes_its_command(tmp_path: Path) -> None:
    succeed("build", SOURCE, tmp_path / "a", "--precision", "f32", "--logits-to-keep", "1")
    provenance = (tmp_path / "a" / "provenance.json").read_text()
    assert "--logits-to-keep" in provenance


def test_run(package: Path) -> None:
    arguments = ("run", package, "--prompt", "And it came to pass", "--max-new-tokens", "16", "--greedy")
    assert succeed(*arguments) == ", that, behold, the king's servants came, and said, Behold\n"
    found = json.loads(succeed(*arguments, "--json"))
    assert found["ids"] == [292, 418, 292, 861, 292, 378, 535, 287, 363, 1041, 597, 292, 387, 512, 292, 950]
    assert found["finish_reason"] == "length"
    assert found["timings"]["new_tokens"] == 16


def test_run_of_ids_and_of_a_user(package: Path) -> None:
    ids = "2, 313,380 476,597,408,750"
    by_id = json.loads(succeed("run", package, "--ids", ids, "--max-new-tokens", "4", "--greedy", "--json"))
    assert by_id["ids"] == [292, 418, 292, 861]
    asked = json.loads(succeed("run", package, "--chat", "Hello", "--max-new-tokens", "2", "--json"))
    assert asked["prompt_ids"] == [2, 5, 1583, 280, 320, 697, 359, 6, 280, 5, 1588, 280]


def test_sampling_options_reach_the_model(package: Path) -> None:
    def sampled(*options: str) -> list[int]:
        common = ("--prompt", "Blessed are", "--max-new-tokens", "12", "--json")
        return json.loads(succeed("run", package, *common, *options))["ids"]

    hot = (
        "--temperature",
        "1.5",
        "--top-k",
        "500",
        "--top-p",
        "0.99",
        "--min-p",
        "0.0001",
        "--repetition-penalty",
        "1.2",
    )
    assert sampled(*hot, "--seed", "1") == sampled(*hot, "--seed", "1", "--threads", "1")
    assert sampled(*hot, "--seed", "1") != sampled(*hot, "--seed", "2")
    assert sampled("--top-k", "1") == sampled("--greedy")


def test_stop(package: Path) -> None:
    found = json.loads(
        succeed(
            "run", package, "--prompt", "Blessed are", "--greedy", "--stop", "Israel", "--stop", "x", "--json"
        )
    )
    assert (found["text"], found["finish_reason"]) == (" the children of ", "stop")


def test_chat(package: Path) -> None:
    text = succeed("chat", package, "--greedy", "--max-new-tokens", "8", input="Hello\n\nAgain\n")
    assert len(text.splitlines()) >= 2
    lines = succeed(
        "chat", package, "--greedy", "--max-new-tokens", "8", "--json", input="Hello\nAgain\n"
    ).splitlines()
    first, second = map(json.loads, lines)
    assert second["prompt_ids"][: len(first["prompt_ids"])] == first["prompt_ids"]
    assert second["timings"]["reused"] >= len(first["prompt_ids"])


def test_a_turn_that_cannot_be_answered_is_left_out(package: Path) -> None:
    turns = b"Hello\n\xff\nAgain\n"
    command = [*PROGRAM, "chat", str(package), "--greedy", "--max-new-tokens", "8", "--json"]
    done = subprocess.run(command, input=turns, capture_output=True, env=ENVIRONMENT, check=False)
    first, fault, last = map(json.loads, done.stdout.splitlines())
    assert fault["error"]["message"] == "'\\udcff' at character 5; expected Unicode text"
    assert last["prompt_ids"][: len(first["prompt_ids"])] == first["prompt_ids"]
    assert last["timings"]["reused"] >= len(first["prompt_ids"])
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr


def test_compare(package: Path, tmp_path: Path) -> None:
    other = cabochon.build(SOURCE, tmp_path / "b", target="onnx-standard", precision="f32").path
    found = json.loads(succeed("compare", package, other, "--json"))
    assert found["metadata"]["cabochon.target"] == ["default", "onnx-standard"]
    assert all(pair["relative"] < 1e-4 for pair in found["pairs"])


def test_comparison_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    from cabochon.cli.compare import print_comparison
    from cabochon.parity.comparison import Comparison, Pair

    pair = Pair("emoji", 1.5e-6, 0.99999, 0.75, 31, 32, 0.01)
    sizes = {"model.onnx": (1_500_000, None)}
    ran = "onnxruntime, CPUExecutionProvider", "OpenVINO"
    print_comparison(Comparison(sizes, {}, {"cabochon.target": ("default", "cuda")}, ran, (pair,)))
    said = capsys.readouterr().out
    assert all(
        text in said for text in ("1.5 MB", "cabochon.target", "cuda", "1.50e-06", "75.0%", "31 of 32")
    )


# what can go wrong


USAGE = [
    (("nonsense",), "No such command 'nonsense'"),
    (("plan",), "give SOURCE or --config"),
    (("plan", "a", "--config", "b"), "give SOURCE or --config"),
    (("build", "a"), "OUT"),
    (("build", "a", "b", "--weights", "teleport"), "teleport"),
    (("run", "a"), "give one of --prompt, --chat and --ids"),
    (("run", "a", "--prompt", "x", "--ids", "1"), "give one of"),
    (("run", "a", "--ids", "one"), "is not a list of numbers"),
    (("run", "a", "--prompt", "x", "--system", "y"), "--system goes with --chat"),
    (("run", "a", "--prompt", "x", "--provider-option", "k"), "is not KEY=VALUE"),
    (("run", "a", "--prompt", "x", "--max-new-tokens", "0"), "--max-new-tokens"),
    (("run", "a", "--prompt", "x", "--threads", "100000"), "--threads"),
    (("build", "a", "b", "--logits-to-keep", "99999999999999999999"), "--logits-to-keep"),
    (("build", "a", "b", "--calibrate-limit", "1"), "--calibrate-limit goes with --calibrate"),
    (("build", "a", "b", "--assistant-revision", "c"), "--assistant-revision goes with --assistant"),
    (("matrix", "a", "b", "--assistant-revision", "c"), "--assistant-revision goes with --assistant"),
    (("plan", "a", "--assistant-revision", "c"), "--assistant-revision goes with --assistant"),
    (("run", "a", "--prompt", "x", "--num-draft-tokens", "4", "--no-speculation"), "guesses nothing ahead"),
    (
        ("run", "a", "--prompt", "x", "--num-draft-tokens", "auto", "--no-speculation"),
        "guesses nothing ahead",
    ),
    (("chat", "a", "--num-draft-tokens", "4", "--no-speculation"), "guesses nothing ahead"),
    (("matrix", "a", "--list", "--verify"), "--list writes nothing: no --verify"),
    (("matrix", "a", "--list", "--replace"), "--list writes nothing: no --verify"),
    (("parity", "a"), "name the SOURCE, or pass --known"),
    (("parity", "a", "b", "--new-tokens", "31"), "--new-tokens"),
    (("list", "colours"), "colours"),
    (("web", "a", "--out", "b", "--port", "0"), "--out writes a site"),
    (("web", "a", "--out", "b", "--open"), "--out writes a site"),
]


@pytest.mark.parametrize(
    ("arguments", "message"), USAGE, ids=lambda value: " ".join(value) if type(value) is tuple else ""
)
def test_usage(arguments: tuple[str, ...], message: str) -> None:
    done = call(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stdout == ""


ERRORS = [
    (("plan", "/nowhere/at/all"), "/nowhere/at/all"),
    (("plan", "--config", "/nowhere/config.json"), "cannot be read"),
    (("build", SOURCE, "{tmp}/out", "--target", "toaster"), "toaster"),
    (("build", SOURCE, "{tmp}/out", "--precision", "f7"), "f7"),
    (("build", SOURCE, "{tmp}/out", "--target", "webgpu", "--precision", "bf16"), "WebGPU has no bf16"),
    (("build", SOURCE, "{tmp}"), "{tmp}"),
    (("run", "{tmp}", "--prompt", "x"), "model.onnx"),
    (("chat", "{tmp}"), "model.onnx"),
    (("parity", "{tmp}", "--known"), "{tmp}"),
    (("compare", "{tmp}", "{tmp}"), "{tmp}"),
]


@pytest.mark.parametrize(
    ("arguments", "message"), ERRORS, ids=lambda value: value[0] if type(value) is tuple else ""
)
def test_errors(arguments: tuple[str | Path, ...], message: str, tmp_path: Path) -> None:
    done = call(*(str(argument).format(tmp=tmp_path) for argument in arguments))
    assert done.returncode == 1
    assert done.stderr.startswith("cabochon: ")
    assert message.format(tmp=tmp_path) in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_errors_as_json() -> None:
    done = call("plan", "--config", "/nowhere/config.json", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["error"] == {
        "kind": "SourceError",
        "at": "/nowhere/config.json",
        "message": "cannot be read: No such file or directory",
        "remedy": "check the path",
    }


@pytest.mark.parametrize("option", ["--prompt", "--chat"])
def test_bytes_that_are_no_text_are_refused(package: Path, option: str) -> None:
    done = ended("run", os.fsencode(package), option.encode(), b"a\xff")
    assert done.returncode == 1
    assert done.stderr.startswith("cabochon: prompt: '\\udcff' at character ")


def test_a_path_that_is_no_text_is_named(tmp_path: Path) -> None:
    done = ended("run", os.fsencode(tmp_path) + b"/\xff", "--prompt", "x", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["error"]["at"].endswith("/\udcff")
    assert r"\udcff: is not a folder" in done.stderr


@pytest.mark.parametrize("tail", [[], ["--json"]])
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
def test_an_output_that_takes_nothing(package: Path, tail: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = ended("run", str(package), "--prompt", "a", "--max-new-tokens", "2", *tail, stdout=full)
    assert (done.returncode, done.stderr) == (1, "cabochon: No space left on device\n")


def test_an_output_that_is_closed(package: Path) -> None:
    done = subprocess.run(
        f"{sys.executable} -c 'from cabochon.cli import main; main()' list targets --json >&-",
        shell=True, capture_output=True, text=True, env=ENVIRONMENT, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


INTERRUPTED = """
import builtins, os, signal
real = builtins.__import__
def interrupted(name, *rest):
    if name == {module!r}:
        builtins.__import__ = real
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt:
            {then}
    return real(name, *rest)
builtins.__import__ = interrupted
from cabochon.cli import main
main()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT for a child process")
@pytest.mark.parametrize("module", ["typer", "onnxruntime"])
@pytest.mark.parametrize("then", ["raise", "raise ImportError('initialization failed')"])
def test_interrupting_an_import(package: Path, module: str, then: str) -> None:
    """An extension module that is interrupted while it loads may say ImportError."""
    code = INTERRUPTED.format(module=module, then=then)
    done = subprocess.run(
        [sys.executable, "-c", code, "run", str(package), "--prompt", "x", "--max-new-tokens", "1"],
        capture_output=True, text=True, env=ENVIRONMENT, check=False,
    )  # fmt: skip
    assert done.returncode == 130
    assert "Traceback" not in done.stderr


def test_a_bad_request(package: Path) -> None:
    done = call("run", package, "--prompt", "x", "--top-p", "7")
    assert done.returncode == 1
    assert "top_p" in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT for a child process")
def test_interrupting_a_run(package: Path) -> None:
    command = [*PROGRAM, "run", str(package), "--prompt", "x", "--ignore-eos", "--max-new-tokens", "4000"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT
    ) as process:
        assert process.stdout is not None
        assert process.stdout.read(1)  # it has begun to speak
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in said


UNHURRIED = """
import os, time
real = os.fsync
os.fsync = lambda file: (time.sleep(1), real(file))
from cabochon.cli import main
main()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows ends a process without a signal")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_build_that_is_ended_leaves_no_stage(tmp_path: Path, number: signal.Signals, code: int) -> None:
    command = [sys.executable, "-c", UNHURRIED, "build", str(SOURCE), str(tmp_path / "out")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT
    ) as process:
        while not list(tmp_path.glob(".out.stage-*/*")):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert (process.returncode, list(tmp_path.iterdir())) == (code, [])
    assert b"Traceback" not in said


def test_a_reader_that_leaves() -> None:
    done = subprocess.run(
        f"{sys.executable} -c 'from cabochon.cli import main; main()' list targets --json | head -c 1",
        shell=True, capture_output=True, text=True, env=ENVIRONMENT, check=False,
    )  # fmt: skip
    assert done.stdout == "["
    assert "Traceback" not in done.stderr
