"""The libraries of the page: pinned once, for the page and for the tests in a browser."""

import base64
import hashlib
import json
from pathlib import Path

import pytest

from cabochon.errors import PackageError
from cabochon.web import libraries
from cabochon.web.libraries import LIBRARIES, Library, import_map, local_files

TEXT = b"export const one = 1;\n"
INTEGRITY = "sha384-" + base64.b64encode(hashlib.sha384(TEXT).digest()).decode()
ONE = Library("@made/up", "1.2.3", "dist/one.mjs", len(TEXT), INTEGRITY, ("@made/up",))


@pytest.fixture
def node_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that holds the one library there is."""
    monkeypatch.setattr(libraries, "LIBRARIES", (ONE,))
    (tmp_path / "@made/up/dist").mkdir(parents=True)
    (tmp_path / "@made/up/dist/one.mjs").write_bytes(TEXT)
    return tmp_path


def test_files_of_the_pinned_hash_are_served(node_modules: Path) -> None:
    served = {"libraries/@made/up/dist/one.mjs": node_modules / "@made/up/dist/one.mjs"}
    assert local_files(node_modules) == served


def test_another_file_is_refused(node_modules: Path) -> None:
    (node_modules / "@made/up/dist/one.mjs").write_bytes(b"export const one = 2;\n")
    with pytest.raises(PackageError, match=f"expected {INTEGRITY[:20]}") as refused:
        local_files(node_modules)
    assert refused.value.remedy == "npm install @made/up@1.2.3"


def test_a_missing_file_is_refused(node_modules: Path) -> None:
    (node_modules / "@made/up/dist/one.mjs").unlink()
    with pytest.raises(PackageError, match="it is missing") as refused:
        local_files(node_modules)
    assert "npm install @made/up@1.2.3" in refused.value.remedy


def test_the_import_map_names_each_module_and_its_hash() -> None:
    local, remote = import_map(local=True), import_map(local=False)
    assert local["imports"].keys() == remote["imports"].keys()
    builds = {f"onnxruntime-web/{build}" for build in ("webgpu", "jspi", "wasm")}
    assert local["imports"].keys() == builds | {"@huggingface/tokenizers", "@huggingface/jinja"}
    for made in (local, remote):
        assert set(made["imports"].values()) < made["integrity"].keys()
        assert len({url for url in made["integrity"] if url.endswith(".wasm")}) == 3
    jinja = "@huggingface/jinja"
    assert local["imports"][jinja] == f"./libraries/{jinja}/dist/index.js"
    assert remote["imports"][jinja].startswith("https://")
    assert f"/{jinja}@0.5." in remote["imports"][jinja]


def test_the_tests_in_a_browser_install_what_is_pinned() -> None:
    asked = json.loads((Path(__file__).parent / "browser/package.json").read_text())["dependencies"]
    pinned = {library.package: library.version for library in LIBRARIES}
    assert pinned.items() <= asked.items()
