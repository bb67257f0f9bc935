"""The site of a package: which files it has, and how it is written."""

import json
import os
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cabochon.cli.app import app
from cabochon.errors import PackageError
from cabochon.web import assemble, libraries, write
from packages import Packages


def test_the_page_the_manifest_and_the_package_have_their_urls(packages: Packages) -> None:
    package = packages("tiny", "webgpu", "f32")
    site = assemble(package)
    assert {"index.html", "web.json", "package/model.onnx", "package/model.onnx.data"} <= site.files.keys()
    assert site.files["package/model.onnx"] == (package / "model.onnx").resolve()
    said = json.loads(bytes(site.files["web.json"]))  # type: ignore[arg-type]
    assert said == site.manifest
    assert not [name for name in site.files if name.startswith("libraries/")]


def test_the_page_has_the_import_map(packages: Packages) -> None:
    page = bytes(assemble(packages()).files["index.html"]).decode()  # type: ignore[arg-type]
    assert page.count('<script type="importmap">') == 1
    text = page.split('<script type="importmap">')[1].split("</script>")[0]
    assert json.loads(text) == libraries.import_map(local=False)


def test_encoders_that_the_page_does_not_load_stay_away(packages: Packages) -> None:
    names = assemble(packages("tiny-full", "webgpu", "f32")).files.keys()
    assert {"package/decoder/model.onnx", "package/embedding/model.onnx", "package/README.md"} <= names
    assert not [name for name in names if "_encoder/" in name]


def test_symlinks_and_hidden_files_are_not_part_of_it(packages: Packages, tmp_path: Path) -> None:
    package = tmp_path / "package"
    shutil.copytree(packages(), package)
    (tmp_path / "secret").write_text("not to be read")
    (package / "leaves").symlink_to(tmp_path / "secret")
    (package / "folder").symlink_to(tmp_path, target_is_directory=True)
    (package / "stays").symlink_to("README.md")
    (package / ".hidden").write_text("not to be read")
    os.link(tmp_path / "secret", package / "linked")
    files = assemble(package).files
    assert files["package/stays"] == package / "README.md"
    assert "package/linked" in files
    assert not {"package/leaves", "package/folder/secret", "package/.hidden"} & files.keys()


def test_a_static_site_is_written_whole(packages: Packages, tmp_path: Path) -> None:
    package = packages("tiny", "webgpu", "f32")
    site = assemble(package)
    write(site, tmp_path / "site")
    written = {
        p.relative_to(tmp_path / "site").as_posix() for p in (tmp_path / "site").rglob("*") if p.is_file()
    }
    assert written == site.files.keys()
    assert sum((tmp_path / "site" / name).stat().st_size for name in written) == site.nbytes
    data = Path("package/model.onnx.data")
    assert (tmp_path / "site" / data).samefile(package / data.name)


def test_a_static_site_replaces_nothing(packages: Packages, tmp_path: Path) -> None:
    with pytest.raises(PackageError, match="OUT exists already"):
        write(assemble(packages()), tmp_path)


def test_a_static_site_does_not_go_into_its_package(packages: Packages) -> None:
    with pytest.raises(PackageError, match="SITE lies inside the package"):
        write(assemble(packages()), packages() / "site")


def test_the_program_writes_a_static_site_and_says_how_much(packages: Packages, tmp_path: Path) -> None:
    out = tmp_path / "site"
    done = CliRunner().invoke(app, ["web", str(packages()), "--out", str(out), "--json"])
    said = json.loads(done.output)
    assert said["path"] == str(out)
    assert said["files"] == sum(1 for path in out.rglob("*") if path.is_file())
    words = CliRunner().invoke(app, ["web", str(packages()), "--out", str(tmp_path / "other")]).output
    assert f"{said['files']} files" in words
    assert "python -m http.server --directory" in words
