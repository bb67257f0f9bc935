import contextlib
import errno
import hashlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from cabochon import files
from cabochon.errors import PackageError


def beside(out: Path) -> list[str]:
    return sorted(path.name for path in out.parent.iterdir())


def test_a_stage_becomes_the_folder(tmp_path):
    out = tmp_path / "package"
    with files.staged(out) as stage:
        assert stage.parent == tmp_path and not out.exists()
        (stage / "evidence").mkdir()
        (stage / "evidence" / "l4.json").write_text("{}")
    assert beside(out) == ["package"]
    assert (out / "evidence" / "l4.json").read_text() == "{}"
    assert out.stat().st_mode & 0o777 == 0o777 & ~umask()


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_folders_above_are_made(tmp_path):
    with files.staged(tmp_path / "a" / "b" / "package"):
        pass
    assert (tmp_path / "a" / "b" / "package").is_dir()


@pytest.mark.parametrize("stop", [KeyboardInterrupt, ValueError, SystemExit])
def test_an_exception_leaves_nothing_and_passes(tmp_path, stop):
    with pytest.raises(stop), files.staged(tmp_path / "package") as stage:
        (stage / "model.onnx").write_bytes(b"half")
        raise stop
    assert beside(tmp_path / "package") == []


@pytest.mark.parametrize("stop", [None, KeyboardInterrupt, SystemExit])
def test_what_is_needed_on_the_way_is_removed(tmp_path, stop):
    out = tmp_path / "package"
    (tmp_path / ".package.aside-1").mkdir()  # a killed run's
    with contextlib.suppress(KeyboardInterrupt, SystemExit), files.aside(out) as folder:
        assert beside(out) == [folder.name, ".package.lock"]
        with files.staged(folder / "inner"):
            pass
        assert (folder / "inner").is_dir()
        if stop:
            raise stop
    assert beside(out) == []
    out.mkdir()
    with pytest.raises(PackageError, match="OUT exists already"), files.aside(out):
        pass


@pytest.mark.parametrize(
    "number, message, remedy",
    [
        (errno.ENOSPC, "no space left on device", "free space or choose a folder on another disk"),
        (errno.EACCES, "permission denied", "check the folder and its permissions"),
    ],
)
def test_what_the_system_refuses_is_said(tmp_path, number, message, remedy):
    with pytest.raises(PackageError, match=message) as caught, files.staged(tmp_path / "package"):
        raise OSError(number, os.strerror(number), "model.onnx.data")
    assert "(model.onnx.data); nothing was left behind" in caught.value.message
    assert caught.value.remedy == remedy and caught.value.at == str(tmp_path / "package")
    assert beside(tmp_path / "package") == []


def test_refusals(tmp_path):
    source = tmp_path / "checkpoint"
    source.mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "link").symlink_to(source)
    table = [
        (source, "OUT exists already"),
        (tmp_path / "file", "OUT is a file"),
        (tmp_path / "dangling", "OUT is a file"),
        (tmp_path / "file" / "package", "file, which is not a folder"),
        (source / "package", "OUT lies inside "),
        (tmp_path / "link" / "deep" / "package", "OUT lies inside "),
        (source / "other" / ".." / "package", "OUT lies inside "),
    ]
    for out, message in table:
        with pytest.raises(PackageError, match=message) as caught:
            files.refuse(out, source)
        assert caught.value.remedy.startswith(("delete it or choose", "choose"))
    files.refuse(tmp_path / "checkpoint-onnx", source)


@pytest.mark.parametrize("name", [b"bad\xff", b"bad\xff/package"])
def test_a_path_that_is_no_text_is_refused(tmp_path, name):
    out = tmp_path / os.fsdecode(name)
    with pytest.raises(PackageError, match="OUT is no UTF-8 text") as caught:
        files.refuse(out)
    assert caught.value.at == f"{tmp_path}/{name.decode('utf-8', 'backslashreplace')}"
    str(caught.value).encode()
    files.refuse(tmp_path / "schön 語 🦄")


def test_a_file_is_replaced(tmp_path):
    file = tmp_path / "SHA256SUMS"
    for data in (b"one\n", b"", b"\r\n\xff" * 1000):
        files.replace(file, data)
        assert file.read_bytes() == data
    assert file.stat().st_mode & 0o777 == 0o666 & ~umask()
    assert beside(file) == ["SHA256SUMS"]


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr(files, "sync", lambda file: told.append(("sync", Path(file.name).name)))
    rename = Path.replace
    monkeypatch.setattr(Path, "replace", lambda a, b: (told.append(("rename", b.name)), rename(a, b))[1])
    monkeypatch.setattr(files, "_sync_folder", lambda folder: told.append(("folder", folder.name)))
    files.replace(tmp_path / "x.json", b"{}")
    aside = f".x.json.{os.getpid()}"
    assert told == [("sync", aside), ("rename", "x.json"), ("folder", tmp_path.name)]


def test_a_file_that_cannot_be_replaced_stays_as_it_was(tmp_path, monkeypatch):
    def full(file):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "x.json").write_bytes(b"old")
    monkeypatch.setattr(files, "sync", full)
    with pytest.raises(PackageError, match="no space left on device; nothing was left behind"):
        files.replace(tmp_path / "x.json", b"new")
    assert beside(tmp_path / "x.json") == ["x.json"] and (tmp_path / "x.json").read_bytes() == b"old"


def test_staged_refuses_what_exists(tmp_path):
    with pytest.raises(PackageError, match="exists already"), files.staged(tmp_path):
        pass


def test_a_folder_that_appears_meanwhile_is_kept(tmp_path):
    out = tmp_path / "package"
    with pytest.raises(PackageError, match="exists already"), files.staged(out):
        out.mkdir()
        (out / "theirs").write_text("kept")
    assert beside(out) == ["package"] and (out / "theirs").read_text() == "kept"


HOLD = """
    import sys, time
    from pathlib import Path
    from cabochon.files import staged
    with staged(Path(sys.argv[1])) as stage:
        (stage / "model.onnx.data").write_bytes(bytes(1000))
        print("inside", flush=True)
        time.sleep(60)
"""


def held(out: Path) -> subprocess.Popen:
    child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(HOLD), str(out)], stdout=subprocess.PIPE)
    assert child.stdout is not None and child.stdout.readline() == b"inside\n"
    return child


def test_what_a_killed_run_left_is_removed_by_the_next(tmp_path):
    out = tmp_path / "package"
    child = held(out)
    (tmp_path / f".package.stage-{child.pid}x").mkdir()  # looks similar, is not ours
    child.kill()
    child.wait()
    assert f".package.stage-{child.pid}" in beside(out) and not out.exists()
    with files.staged(out):
        pass
    assert beside(out) == [f".package.stage-{child.pid}x", "package"]


def test_a_living_run_is_left_alone(tmp_path):
    out = tmp_path / "package"
    child = held(out)
    with pytest.raises(PackageError, match="another build is writing this package"), files.staged(out):
        pass
    assert f".package.stage-{child.pid}" in beside(out)
    with files.staged(tmp_path / "other"):
        pass
    child.send_signal(signal.SIGINT)
    child.wait()
    assert beside(out) == ["other"]


def test_the_lock_of_a_file_just_removed_does_not_count(tmp_path, monkeypatch):
    path = tmp_path / ".package.lock"
    opened, real = [], Path.open

    def opens_what_is_removed_at_once(self, *args, **kwargs):
        file = real(self, *args, **kwargs)
        opened.append(file)
        if len(opened) == 1:
            self.unlink()
        return file

    monkeypatch.setattr(Path, "open", opens_what_is_removed_at_once)
    lock = files._lock(path)
    assert lock is opened[1] and opened[0].closed
    lock.close()


def test_space_is_counted_before_anything_is_written(tmp_path):
    free = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize
    with pytest.raises(PackageError) as caught:
        files.require_space(tmp_path, free + 10**12)
    needed, found = (int(word.replace(",", "")) for word in caught.value.message.split() if word[0].isdigit())
    assert needed == free + 10**12 and abs(found - free) < 10**9
    assert caught.value.remedy.endswith("choose a folder on another disk")
    files.require_space(tmp_path, 1)


def test_hard_links_and_their_refusal(tmp_path, monkeypatch):
    source = tmp_path / "model.safetensors"
    source.write_bytes(b"weights")
    assert files.hard_link(source, tmp_path / "model.onnx.data") is None
    assert (tmp_path / "model.onnx.data").samefile(source)
    assert (
        files.hard_link(source, tmp_path / "model.onnx.data") == "the system refuses a hard link: file exists"
    )

    def across(*_):
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", across)
    assert files.hard_link(source, tmp_path / "b") == "the checkpoint lies on another filesystem"


def test_a_copy_is_a_file_of_its_own(tmp_path):
    (tmp_path / "blob").write_bytes(b"{}")
    (tmp_path / "tokenizer.json").symlink_to(tmp_path / "blob")
    files.copy(tmp_path / "tokenizer.json", tmp_path / "copied")
    assert (tmp_path / "copied").read_bytes() == b"{}" and not (tmp_path / "copied").is_symlink()
    assert (tmp_path / "copied").stat().st_nlink == 1
    assert files.sha256(tmp_path / "copied") == hashlib.sha256(b"{}").hexdigest()


def test_everything_is_synced_before_the_rename(tmp_path, monkeypatch):
    calls = []
    fsync, rename = os.fsync, Path.rename
    monkeypatch.setattr(
        os, "fsync", lambda fd: (calls.append(str(Path(f"/proc/self/fd/{fd}").readlink())), fsync(fd))
    )
    monkeypatch.setattr(Path, "rename", lambda self, to: (calls.append("rename"), rename(self, to))[1])
    with files.staged(tmp_path / "package") as stage:
        (stage / "model.onnx").write_bytes(b"x")
    assert calls == [str(stage / "model.onnx"), str(stage), "rename", str(tmp_path)]


def test_the_lock_waits_for_nobody(tmp_path):
    start = time.monotonic()
    with files.staged(tmp_path / "package"), pytest.raises(PackageError), files.staged(tmp_path / "package"):
        pass
    assert time.monotonic() - start < 5


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="the system takes no such advice")
def test_memory_of_what_is_on_the_disk_is_given_back(tmp_path, monkeypatch):
    advice = []
    monkeypatch.setattr(os, "posix_fadvise", lambda descriptor, *told: advice.append(told))
    with (tmp_path / "data").open("wb") as file:
        files.forget(file, 4096, 12288)
    assert advice == [(4096, 8192, os.POSIX_FADV_DONTNEED)]


def test_a_system_that_takes_no_advice_gets_none(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "posix_fadvise", raising=False)
    with (tmp_path / "data").open("wb") as file:
        file.write(bytes(5000))
        files.forget(file, 0, 5000)
    assert (tmp_path / "data").read_bytes() == bytes(5000)


def test_what_killed_runs_left_is_swept(tmp_path):
    out = tmp_path / "package"
    for name in (".package.stage-12", ".package.aside-13", ".package.lock", ".other.stage-1"):
        (tmp_path / name).mkdir() if "-" in name else (tmp_path / name).touch()
    out.mkdir()
    files.sweep(out)
    assert beside(out) == [".other.stage-1", "package"]
    files.sweep(tmp_path / "nowhere" / "package")


def test_a_retired_folder_is_gone_at_once(tmp_path):
    out = tmp_path / "package"
    (out / "decoder").mkdir(parents=True)
    files.retire(out)
    assert beside(out) == []


def test_a_file_becomes_another_name_of_its_like(tmp_path):
    for name in ("one", "other"):
        (tmp_path / name).write_text("the same")
    assert files.has_links(tmp_path)
    for _ in range(2):
        assert files.link_over(tmp_path / "one", tmp_path / "other", tmp_path / "aside") is None
        assert beside(tmp_path / "one") == ["one", "other"]
    assert (tmp_path / "one").samefile(tmp_path / "other")


def test_who_comes_second_waits(tmp_path):
    code = textwrap.dedent("""
        import sys, time
        from pathlib import Path
        from cabochon import files
        with files.alone(Path(sys.argv[1])):
            Path(sys.argv[1]).write_text("theirs")
            print(flush=True)
            time.sleep(0.3)
            Path(sys.argv[1]).write_text("still theirs")
    """)
    path = tmp_path / "README.md"
    with subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with files.alone(path):
            assert path.read_text() == "still theirs"
    assert beside(path) == ["README.md"]
