"""A matrix on disk: what is built, linked, kept, refused; and what interruptions leave."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner

import cabochon
from cabochon import files, sums
from cabochon.cli.app import app
from cabochon.errors import PackageError
from cabochon.matrix import Event, Ran, build_matrix, making, standing
from cabochon.matrix.index import INDEX, write_index
from packages import TINY, Packages

SOURCE = TINY / "text"
ONLY = ("f16/default", "f16/onnx-standard", "f16/cuda")
Made = tuple[Path, Ran, list[Event]]


def run(out: Path, *only: str, source: Path = SOURCE, **said: Any) -> Ran:
    return build_matrix(source, out, only=only or ONLY, license="apache-2.0", **said)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Three variants, in two shards that share a disk, the second of which finds what the first has built."""
    out, events = tmp_path_factory.mktemp("matrix") / "out", list[Event]()
    first = run(out, shard=(2, 2))
    ran = run(out, shard=(1, 2), watch=events.append)
    assert {outcome.folder for one in (first, ran) for outcome in one.variants} == {*ONLY}
    return out, ran, events


@pytest.fixture
def copy(made: Made, tmp_path: Path) -> Path:
    """What was built, to change it: files with one name each."""
    return Path(shutil.copytree(made[0], tmp_path / "out", copy_function=shutil.copyfile))


def listed(out: Path) -> dict[str, tuple[int, int]]:
    found = (path for path in sorted(out.rglob("*")) if path.is_file() and path.name != INDEX)
    return {path.relative_to(out).as_posix(): (path.stat().st_ino, path.stat().st_mtime_ns) for path in found}


def test_shards_make_all_of_it(made: Made) -> None:
    out, ran, events = made
    assert ran.complete
    assert sorted(path.name for path in out.iterdir()) == [INDEX, "f16"]
    assert sorted(path.name for path in (out / "f16").iterdir()) == sorted(f[4:] for f in ONLY)
    for folder in ONLY:
        assert not sums.verify(out / folder) and not cabochon.validate(out / folder, quick=True).errors
    assert (out / INDEX).read_text().count("](f16/") == 3
    told = [event.event for event in events]
    assert (told[0], told[-1]) == ("planned", "finished")
    assert {event.total for event in events} == {events[0].said["bytes"]} and events[-1].done == events[
        -1
    ].total


def test_what_is_the_same_stands_there_once(made: Made, packages: Packages) -> None:
    """And is what a build by itself writes, byte for byte."""
    out = made[0]
    one, other = (out / f"f16/{target}" for target in ("default", "onnx-standard"))
    for name in ("model.onnx.data", "tokenizer.json", "config.json", "policies/token.onnx"):
        if (one / name).exists():
            assert (one / name).samefile(other / name), name
    for name in ("README.md", "provenance.json", "evidence/validation.json", "SHA256SUMS"):
        assert (other / name).stat().st_nlink == 1, name
    alone = sums.read(packages("tiny", "onnx-standard", "f16"))
    ours = sums.read(other)
    differing = {name for name in alone | ours if alone.get(name) != ours.get(name)}
    assert differing <= {"provenance.json", "evidence/validation.json"}


def test_what_a_variant_was_built_by_is_a_command_of_its_own(made: Made) -> None:
    record = json.loads((made[0] / "f16/cuda/provenance.json").read_text())
    command = ["cabochon", "build", str(SOURCE), "f16/cuda", "--license", "apache-2.0", "--target", "cuda"]
    assert record["build"]["command"] == [*command, "--precision", "f16"]


def test_a_second_run_keeps_everything(made: Made) -> None:
    out, before = made[0], listed(made[0])
    index = (out / INDEX).read_bytes()
    ran = run(out)
    assert [outcome.status for outcome in ran.variants] == ["kept"] * 3 and ran.reads == 0
    assert listed(out) == before and (out / INDEX).read_bytes() == index


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda package: (package / "model.onnx").unlink(), "f16/cuda is damaged: model.onnx is missing"),
        (lambda package: os.truncate(package / "model.onnx.data", 9), "model.onnx.data has 9 bytes; expected"),
        (lambda package: (package / "config.json").write_text("{}"), "config.json is not what SHA256SUMS says"),
        (lambda package: (package / "SHA256SUMS").unlink(), "f16/cuda is damaged: cannot be read"),
        (
            lambda package: (package / "provenance.json").write_text('{"build": {"tool": "cabochon"}}'),
            "f16/cuda is another package: build.version is None",
        ),
    ],
)  # fmt: skip
def test_what_is_not_whole_is_said(copy: Path, change: Any, message: str) -> None:
    change(copy / "f16/cuda")
    with pytest.raises(PackageError, match=re.escape(message)) as error:
        run(copy)
    assert "--replace" in error.value.remedy


def test_one_alone_links_from_what_stands_there(copy: Path) -> None:
    shutil.rmtree(copy / "f16/onnx-standard")
    (outcome,) = run(copy, "f16/onnx-standard").variants
    assert outcome.linked == ("f16/default/model.onnx.data",) and not sums.verify(copy / outcome.folder)


def test_what_is_replaced_is_built_anew(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a disk without links by a copy of what is the same."""
    monkeypatch.setattr(files, "hard_link", lambda source, name: "no")
    os.truncate(copy / "f16/onnx-standard/model.onnx.data", 9)
    ran = run(copy, "f16/default", "f16/onnx-standard", replace=True)
    outcome = ran.variants[1]
    assert outcome.status == "built" and outcome.linked == ("f16/default/model.onnx.data",)
    assert (ran.reads, ran.reads_unlinked) == (0, 1) and not sums.verify(copy / "f16/onnx-standard")
    assert all(path.stat().st_nlink == 1 for path in copy.rglob("*") if path.is_file())


def test_only_verify_hashes_large_files(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing, "_SMALL", 0)
    with (copy / "f16/cuda/model.onnx.data").open("rb+") as file:
        file.write(b"?")
    assert run(copy, "f16/cuda").complete
    with pytest.raises(PackageError, match=r"model\.onnx\.data is not what SHA256SUMS says"):
        run(copy, "f16/cuda", verify=True)


def test_a_damaged_file_is_not_linked_from(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing, "_SMALL", 0)
    shutil.rmtree(copy / "f16/onnx-standard")
    with (copy / "f16/default/model.onnx.data").open("rb+") as file:
        file.write(b"?")
    outcome = run(copy, "f16/default", "f16/onnx-standard").variants[1]
    assert outcome.status == "built" and not outcome.linked and not sums.verify(copy / outcome.folder)


def test_another_checkpoint_is_another_package(made: Made, tmp_path: Path) -> None:
    source = Path(shutil.copytree(SOURCE, tmp_path / "text", copy_function=shutil.copyfile))
    with (source / "model.safetensors").open("rb+") as file:
        file.seek(-4, os.SEEK_END)
        file.write(bytes(4))
    with pytest.raises(
        PackageError, match=r"3 of the variants .*\nf16/default is another package: target\.finger"
    ):
        run(made[0], source=source)


@pytest.mark.parametrize("text", ["# My project\n", ""])
def test_a_readme_of_something_else_is_kept(tmp_path: Path, text: str) -> None:
    (tmp_path / INDEX).write_text(text)
    with pytest.raises(PackageError, match="no index of a matrix"):
        run(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [INDEX] and (tmp_path / INDEX).read_text() == text


def test_a_disk_that_is_too_small_is_told_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "free_space", lambda folder: 300_000)
    with pytest.raises(PackageError, match=r"3 variants need [\d,]+ bytes; 300,000 are free") as linked:
        run(tmp_path / "out")
    monkeypatch.setattr(files, "hard_link", lambda source, name: "no")
    with pytest.raises(PackageError, match="no hard links") as copied:
        run(tmp_path / "out")
    needs = [
        int(re.sub(r"\D", "", e.value.message.split("need ")[1].split(";")[0])) for e in (linked, copied)
    ]
    assert needs[0] < needs[1] - 400_000
    assert list((tmp_path / "out").iterdir()) == []


def test_one_that_cannot_be_built_keeps_no_other_from_it(
    made: Made, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where OpenVINO is absent; and where another run is at it."""
    monkeypatch.setattr(making, "find_spec", lambda name: None)
    out = Path(shutil.copytree(made[0], tmp_path / "out", copy_function=shutil.copyfile))
    with files.aside(out / "Q4_K_M/onnx-standard"):
        ran = run(out, "openvino-ir", "f16/default")
    said = {outcome.folder: (outcome.status, outcome.reason) for outcome in ran.variants}
    assert said["f16/default"] == ("kept", "") and not ran.complete
    assert said["openvino-ir"] == (
        "failed",
        "not built: OpenVINO is absent\n  -> pip install 'cabochon[openvino]'",
    )
    assert "another build is writing this package" in said["Q4_K_M/onnx-standard"][1]


def test_an_interruption_leaves_nothing_that_looks_finished(tmp_path: Path) -> None:
    def interrupt(event: Event) -> None:
        if event.event == "progress":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "out", watch=interrupt)
    assert list((tmp_path / "out/f16").iterdir()) == []


KILLED = textwrap.dedent("""
    import os, signal, sys
    from cabochon.matrix import build_matrix
    def watch(event):
        if event.event == "progress":
            os.kill(os.getpid(), signal.SIGKILL)
    build_matrix(sys.argv[1], sys.argv[2], only=["f16/cuda"], license="apache-2.0", watch=watch)
""")


@pytest.mark.skipif(sys.platform == "win32", reason="has no SIGKILL")
def test_a_killed_run_is_taken_up(copy: Path) -> None:
    shutil.rmtree(copy / "f16/cuda")
    done = subprocess.run([sys.executable, "-c", KILLED, SOURCE, copy], check=False)
    assert done.returncode == -signal.SIGKILL
    left = [path.name for path in (copy / "f16").iterdir() if path.name.startswith(".cuda.stage-")]
    assert len(left) == 1
    assert [o.status for o in run(copy, "f16/default", "f16/cuda").variants] == ["kept", "built"]
    assert not [path for path in copy.rglob(".*")] and not sums.verify(copy / "f16/cuda")


def test_pairs_share_what_their_parts_share(packages: Packages, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(packages("tiny-pair", "default", "f16"), out / "f16/default")
    ran = run(out, "f16/default", "f16/onnx-standard", assistant=TINY / "assistant")
    assert [outcome.status for outcome in ran.variants] == ["kept", "built"]
    assert (ran.reads, ran.reads_unlinked) == (0, 1)
    for name in ("model.onnx.data", "target/model.onnx.data"):
        assert (out / "f16/default" / name).samefile(out / "f16/onnx-standard" / name)
    assert "The drafter of a pair is used by itself." in (out / INDEX).read_text()
    with pytest.raises(PackageError, match="f16/default is another package"):
        run(out, "f16/default")


def test_a_matrix_of_the_unified_model(tmp_path: Path) -> None:
    """All of it, whose tables and embedders stand in few files: those of cuda are those of default."""
    only = ("f16/default", "f16/cuda", "NF4/default")
    ran = run(tmp_path / "out", *only, source=TINY / "unified")
    assert ran.complete and ran.model == "full"
    assert [outcome.folder for outcome in ran.variants] == [*only]
    weights = [
        f"f16/default/{name}/model.onnx.data" for name in ("audio_encoder", "decoder", "vision_encoder")
    ]
    assert {*weights} < {*ran.variants[1].linked} and ran.variants[1].read_bytes == 0
    for folder in only:
        assert not sums.verify(tmp_path / "out" / folder)
        assert not cabochon.validate(tmp_path / "out" / folder).errors
    assert "| [`NF4/default`](NF4/default) | NF4 | default |" in (tmp_path / "out" / INDEX).read_text()


def lines(*arguments: str | Path) -> tuple[int, list[dict[str, Any]]]:
    done = CliRunner().invoke(app, ["matrix", *map(str, arguments)])
    return done.exit_code, [json.loads(line) for line in done.stdout.splitlines()]


def test_the_command_tells_each_event_in_a_line(made: Made) -> None:
    only = [word for folder in ONLY for word in ("--only", folder)]
    code, told = lines(SOURCE, made[0], *only, "--license", "apache-2.0", "--json")
    assert code == 0 and [said["event"] for said in told] == ["planned", *["kept"] * 3, "finished"]
    assert told[1]["folder"] == "f16/default" and told[-1]["complete"] is True
    code, told = lines(SOURCE, made[0], "--only", "f16/*", "--shard", "1/2", "--license", "mit", "--json")
    assert code == 1 and not told


def test_the_command_lists_what_it_would_build(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["matrix", str(SOURCE), "--list", "--json"])
    said = json.loads(done.stdout)
    assert done.exit_code == 0 and len(said["variants"]) == 14 and said["model"] == "text"
    rows = {row["folder"]: row for row in said["variants"]}
    assert rows["f16/onnx-standard"]["read_bytes"] == 0 < rows["f16/onnx-standard"]["new_bytes"]
    assert rows["openvino-epcontext"]["needs"] == "openvino-ir"
    shown = CliRunner().invoke(app, ["matrix", str(SOURCE), "--list", "--only", "f16/[do]*"]).stdout
    assert re.search(r"2 variants, .* on a disk with hard links", shown)
    assert CliRunner().invoke(app, ["matrix", str(SOURCE)]).exit_code == 2  # wrong usage


def blocks(out: Path) -> Iterator[tuple[str, str, str]]:
    """Title, language and code of each block of the index."""
    for section in (out / INDEX).read_text().split("\n### ")[1:]:
        for language, code in re.findall(r"```(\w+)\n(.*?)\n```", section, re.DOTALL):
            yield section.partition("\n")[0], language, code


def execute(out: Path, title: str, monkeypatch: pytest.MonkeyPatch, *, last: bool = False) -> None:
    """Run the blocks under a title, or the last of them, in the folder of the variants."""
    monkeypatch.chdir(out)
    found = [(language, code) for name, language, code in blocks(out) if name == title][-1 if last else 0 :]
    assert found, title
    for language, code in found:
        commands = [line.removeprefix("$ cabochon ") for line in code.splitlines() if " pip " not in line]
        if language == "console":
            for command in commands:
                done = CliRunner().invoke(app, shlex.split(command))
                assert done.exit_code == 0, done.output
        else:
            exec(compile(code, title, "exec"), {})


@pytest.fixture(scope="module")
def full(packages: Packages, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A full package, as it is built by itself, in the place of a variant."""
    out = tmp_path_factory.mktemp("full")
    shutil.copytree(packages("tiny-full", "default", "f16"), out / "f16/default")
    write_index(out)
    Image.new("RGB", (40, 30), "teal").save(out / "photo.jpg")
    return out


@pytest.mark.parametrize("title", ["cabochon", "ONNX Runtime by itself"])
def test_usage(
    made: Made, title: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    execute(made[0], title, monkeypatch)
    assert capsys.readouterr().out.strip()


def test_usage_in_a_browser(packages: Packages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(packages("tiny", "webgpu", "f16"), tmp_path / "f16/webgpu")
    write_index(tmp_path)
    execute(tmp_path, "A browser", monkeypatch)
    assert (tmp_path / "site/index.html").is_file()


@pytest.mark.parametrize("title", ["cabochon", "ONNX Runtime by itself"])
def test_usage_of_full_packages(
    full: Path, title: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The blocks that no text package has."""
    assert [(name, "photo.jpg" in code) for name, _, code in blocks(full)][:4] == [
        ("cabochon", False), ("cabochon", False), ("cabochon", True), ("ONNX Runtime by itself", False),
    ]  # fmt: skip
    execute(full, title, monkeypatch, last=True)
    assert capsys.readouterr().out.strip()


def test_usage_on_cuda_compiles_and_says_so(made: Made) -> None:
    found = [code for title, _, code in blocks(made[0]) if title == "CUDA"]
    assert len(found) == 1 and '"f16/cuda"' in found[0] and compile(found[0], "CUDA", "exec")
    assert "Compiled only by the tests, which have no such device" in (made[0] / INDEX).read_text()


@pytest.mark.clients
@pytest.mark.parametrize("kind", ["text", "full"])
def test_usage_with_genai(
    kind: str, full: Path, packages: Packages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    if kind == "text":
        shutil.copytree(packages("tiny", "default", "f16"), tmp_path / "f16/default")
        write_index(tmp_path)
    execute(full if kind == "full" else tmp_path, "ONNX Runtime GenAI", monkeypatch)
    assert "Why is the sky blue?" in capsys.readouterr().out


def test_the_index_is_read_off_what_stands_there(copy: Path) -> None:
    text = (copy / INDEX).read_text()
    assert "| [`f16/cuda`](f16/cuda) | f16 | cuda |" in text and "| `onnx-standard` |" in text
    nbytes = sum(
        {d: (copy / "f16/cuda" / n).stat().st_size for n, d in sums.read(copy / "f16/cuda").items()}.values()
    )
    assert f"| f16 | cuda | {nbytes / 10**6:.2f} MB |" in text
    shutil.rmtree(copy / "f16/cuda")
    write_index(copy)
    assert "f16/cuda" not in (copy / INDEX).read_text()
    shutil.rmtree(copy / "f16")
    write_index(copy)
    assert (copy / INDEX).read_text() == "# Nothing stands here yet\n"


def test_what_is_no_package_is_never_replaced(tmp_path: Path) -> None:
    mine = tmp_path / "matrix" / "f16" / "default" / "mine"
    mine.parent.mkdir(parents=True)
    mine.write_text("notes")
    with pytest.raises(PackageError, match=r"f16/default: it has no provenance\.json"):
        run(tmp_path / "matrix", "f16/default", replace=True)
    assert mine.read_text() == "notes"
