"""The demo: its checks hold, and they fail where they should."""

from pathlib import Path

import pytest

from cabochon.demo import MINIATURE, Account, demo, tour
from cabochon.package import build
from cabochon.runtime import load
from test_cli import call


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Account:
    return demo(tmp_path_factory.mktemp("demo"))


def test_every_check_holds(account: Account) -> None:
    assert [check for check in account.checks if not check.passed] == []
    assert len(account.checks) == 9


def test_packages_and_samples(account: Account) -> None:
    found = [(p.target, p.precision, p.path.name) for p in account.packages]
    assert found[0] == ("default", "f32", "default-f32")
    assert account.packages[0].nbytes > 2 * account.packages[2].nbytes * 0.9
    assert [sample.prompt for sample in account.samples][2] == "Hello"
    assert all(sample.text.strip() and sample.speed > 0 for sample in account.samples)
    assert "King James" in account.samples[2].text


def test_a_wrong_token_fails_the_check(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tour, "GREEDY", (*tour.GREEDY[:-1], 7))
    found = list(tour._checks(account.packages[:1], [load(account.packages[0].path, threads=1)]))
    assert [(check.passed, check.found) for check in found][1] == (False, "15 of 16")
    assert not Account((), tuple(found), ()).passed


def test_a_flipped_bit_fails_the_check(tmp_path: Path) -> None:
    built = build(MINIATURE / "target", tmp_path / "a", precision="f16")
    model = load(built.path, threads=1)
    assert next(tour._checks([built], [model])).found == "all"
    data = bytearray((built.path / "model.onnx.data").read_bytes())
    data[1000] ^= 1
    (built.path / "model.onnx.data").unlink()  # the model keeps the file that it mapped
    (built.path / "model.onnx.data").write_bytes(data)
    check = next(tour._checks([built], [model]))
    assert (check.passed, check.found) == (False, "model.onnx.data")


def test_a_package_is_left_alone(account: Account) -> None:
    package = account.packages[0].path
    before = sorted(package.iterdir())
    done = call("demo", "--out", package)
    assert done.returncode == 1
    assert f"{package}: is a package; expected a folder to put packages in" in done.stderr
    assert "-> choose another name" in done.stderr
    assert sorted(package.iterdir()) == before


def test_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    done = call("demo", "--out", tmp_path / "a")
    assert done.returncode == 1
    assert f"{tmp_path / 'a'}: is a file; expected a folder to put packages in" in done.stderr
    assert "-> choose another name" in done.stderr


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_name_that_is_taken_is_refused_before_anything_is_built(
    account: Account, tmp_path: Path, which: int
) -> None:
    taken = tmp_path / account.packages[which].path.name
    taken.mkdir()
    done = call("demo", "--out", tmp_path)
    assert done.returncode == 1
    assert f"{taken}: OUT exists already; expected a name that is free" in done.stderr
    assert list(tmp_path.iterdir()) == [taken]


def test_the_folder_is_made(tmp_path: Path, account: Account) -> None:
    out = tmp_path / "a" / "b"
    assert call("demo", "--out", out).returncode == 0
    assert {path.name for path in out.iterdir()} == {package.path.name for package in account.packages}
