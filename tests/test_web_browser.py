"""The page in headless Chromium: the same token ids as the runtime in Python, on WebGPU and on wasm (make browser)."""

import shutil
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import cabochon
from browser.driven import NODE_MODULES, Browser, Page
from cabochon.web import Site, assemble, open_server, write
from packages import TINY, Packages, alone

pytestmark = pytest.mark.browser

EMPTY = b'<!doctype html><link rel="icon" href="data:,"><script type="importmap">%s</script>'
ANSWER = """
const { load } = await import("./engine/client.js");
const model = await load(argument.manifest, { device: argument.device });
try {
  const answer = await model.generate(argument.prompt, argument.options);
  const { device, remarks, speculates } = model;
  const plain = speculates && await model.generate(argument.prompt, { ...argument.options, speculation: false });
  return { answer, plain, device, remarks, speculates };
} finally {
  model.close();
}
"""
CHOICE = """
const { choose } = await import("./engine/device.js");
const manifest = await (await fetch(argument.manifest)).json();
return choose(argument.device, manifest).catch((error) => ({ error: String(error) }));
"""
PROMPT = list(range(20, 40))
GREEDY: dict[str, Any] = {"greedy": True, "ignore_eos": True, "max_new_tokens": 12}
WATCH = """
globalThis.watched = [0];
addEventListener("DOMContentLoaded", () => {
  const bar = document.querySelector("#progress");
  const note = () => { if (bar.hasAttribute("value")) globalThis.watched.push(bar.value); };
  new MutationObserver(note).observe(bar, { attributes: true });
});
"""
IN_BLOCKS = """
name = "blocks-f32"
activations = "f32"
[[rules]]
weights = "*"
method = "k-quant"
bits = 4
block = 32
"""


class Stand:
    """One browser, and one server for all packages of a run, each below its name.

    `engine` is a page of the engine alone: what was compiled for one package serves the next.
    """

    def __init__(self, packages: Packages) -> None:
        self.packages = packages
        self.browser = Browser()
        self.files: dict[str, Path | bytes] = {}
        self.server = open_server(Site(self.files, {}), "127.0.0.1", 0)
        self.address = cache(self._address)
        own = assemble(packages(), NODE_MODULES).files
        modules = bytes(own["index.html"]).split(b'type="importmap">')[1].split(b"</script>")[0]  # type: ignore[arg-type]
        self.files |= {"engine.html": EMPTY % modules}
        self.files |= {name: file for name, file in own.items() if name.startswith(("engine/", "libraries/"))}
        self._page: Page | None = None

    def _address(self, package: Path) -> str:
        """The address of a package's page."""
        self.files |= {f"{package.name}/{n}": f for n, f in assemble(package, NODE_MODULES).files.items()}
        return f"{self.server.url}{package.name}/"

    @property
    def engine(self) -> Page:
        if self._page is None:
            self._page = self.browser.open(f"{self.server.url}engine.html")
        return self._page

    def answer(self, package: Path, device: str, **options: Any) -> Any:
        """What the engine says to PROMPT, and what it says of itself."""
        manifest = f"{self.address(package)}web.json"
        asked = {
            "manifest": manifest,
            "device": device,
            "prompt": PROMPT,
            "options": spelled(options),
        }
        return self.engine.evaluate(ANSWER, asked)


@pytest.fixture(scope="session")
def stand(packages: Packages) -> Generator[Stand]:
    stand = Stand(packages)
    thread = threading.Thread(target=stand.server.serve_forever, args=[0.01])
    thread.start()
    yield stand
    stand.browser.close()
    stand.server.shutdown()
    stand.server.server_close()
    thread.join()


@pytest.fixture(scope="session")
def in_blocks(packages: Packages) -> Path:
    """The tiny text model with weights in blocks of 4 bits, and nothing in it that needs shader-f16."""
    recipe, out = packages.root / "blocks.toml", packages.root / "tiny-webgpu-blocks"
    with alone(out):
        if not out.exists():
            recipe.write_text(IN_BLOCKS)
            cabochon.build(TINY / "text", out, target="webgpu", precision=str(recipe), license="apache-2.0")
    return out


def spelled(options: dict[str, Any]) -> dict[str, Any]:
    """Options as the page's engine calls them."""
    words = {name: name.split("_") for name in options}
    return {first + "".join(map(str.title, more)): options[n] for n, (first, *more) in words.items()}


def told(package: Path, **options: Any) -> list[int]:
    """What Python says to PROMPT."""
    model = cabochon.load(package, threads=1, provider="cpu")
    return list(model.generate(PROMPT, **GREEDY, **options).ids)


@pytest.mark.parametrize("target", ["webgpu", "onnx-standard", "default"])
def test_the_same_tokens_as_in_python(stand: Stand, target: str) -> None:
    package = stand.packages("tiny", target, "f32")
    found = stand.answer(package, "wasm", **GREEDY)
    assert found["answer"]["ids"] == told(package), stand.engine.said
    assert (found["device"], found["remarks"]) == ("wasm", [])


@pytest.mark.parametrize("device", ["webgpu", "wasm"])
def test_weights_in_blocks(stand: Stand, in_blocks: Path, device: str) -> None:
    found = stand.answer(in_blocks, device, **GREEDY)
    assert found["answer"]["ids"] == told(in_blocks)
    assert found["device"] == device


@pytest.mark.parametrize(("source", "device"), [("tiny", "webgpu"), ("miniature", "wasm")])
def test_a_pair_speculates_and_says_the_same(stand: Stand, source: str, device: str) -> None:
    pair = stand.packages(f"{source}-pair", "webgpu", "f32")
    found = stand.answer(pair, device, **GREEDY, num_assistant_tokens=3)
    assert (found["device"], found["speculates"]) == (device, True)
    answer, plain = found["answer"], found["plain"]
    assert answer["ids"] == plain["ids"] == told(pair, speculation=False)
    assert answer["proposed"] >= answer["rounds"] > plain["rounds"] == 0


def test_a_full_package_talks(stand: Stand) -> None:
    package = stand.packages("tiny-full", "webgpu", "f32")
    assert stand.answer(package, "wasm", **GREEDY)["answer"]["ids"] == told(package)


def test_half_precision_without_shader_f16_runs_on_the_processor(stand: Stand) -> None:
    package = stand.packages("tiny", "webgpu", "f16")
    found = stand.answer(package, "auto", **GREEDY)
    assert found["device"] == "wasm"
    assert found["answer"]["ids"] == told(package)
    (remark,) = found["remarks"]
    assert "lacks the feature shader-f16, which this float16 package needs" in remark
    assert "it runs on the processor instead (WebAssembly)" in remark


NO_GPU = "Object.defineProperty(Navigator.prototype, 'gpu', { get: () => undefined }); delete Navigator.prototype.gpu"
NO_ADAPTER = "GPU.prototype.requestAdapter = async () => null"


@pytest.mark.parametrize(
    ("script", "said"),
    [(NO_GPU, "this browser has no WebGPU"), (NO_ADAPTER, "offers no graphics adapter for it")],
)
def test_a_browser_without_webgpu_is_told_so(stand: Stand, script: str, said: str) -> None:
    page = stand.browser.open(f"{stand.server.url}engine.html", script)
    manifest = f"{stand.address(stand.packages('tiny', 'webgpu', 'f32'))}web.json"
    chosen = page.evaluate(CHOICE, {"manifest": manifest, "device": "auto"})
    assert chosen["device"] == "wasm"
    assert said in chosen["remarks"][0]
    assert "it runs on the processor instead (WebAssembly)" in chosen["remarks"][0]
    refused = page.evaluate(CHOICE, {"manifest": manifest, "device": "webgpu"})["error"]
    assert said in refused
    assert 'or "wasm" for the processor' in refused
    page.close()


def test_another_target_is_told_that_it_does_not_run_on_the_gpu(stand: Stand) -> None:
    manifest = f"{stand.address(stand.packages())}web.json"
    chosen = stand.engine.evaluate(CHOICE, {"manifest": manifest, "device": "auto"})
    assert chosen["device"] == "wasm"
    assert "built with --target default" in chosen["remarks"][0]


@contextmanager
def program(*arguments: str) -> Generator[str]:
    """A server of its own process for as long as a test needs it: the first line it prints."""
    with subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            yield child.stdout.readline()
        finally:
            child.terminate()


def loaded(page: Page, device: str = "wasm") -> None:
    """Press the button, and wait for the package."""
    page.wait("document.querySelector('#about').textContent")
    page.evaluate("document.querySelector('#device').value = argument", device)
    page.click("#load")
    page.wait("!document.querySelector('#conversation').hidden || !document.querySelector('#error').hidden")


def text(page: Page, selector: str) -> str:
    return page.evaluate("return document.querySelector(argument).textContent", selector)


def test_a_person_loads_talks_stops_and_comes_back(stand: Stand) -> None:
    """The program as it is run, from its first line to its end."""
    package = stand.packages("miniature-pair", "webgpu", "f32")
    code = "from cabochon.cli import main; main()"
    asked = ["web", str(package), "--port", "0", "--libraries", str(NODE_MODULES)]
    with program("-uc", code, *asked) as line:
        url = line.split()[0]
        page = stand.browser.open(url, WATCH)
        loaded(page)
        assert page.evaluate("return crossOriginIsolated")
        assert max(page.evaluate("return globalThis.watched")) == 1.0
        assert "package/target/model.onnx.data" in "\n".join(page.requests)
        assert "processor (WebAssembly)" in text(page, "#deviceShown")

        page.evaluate("document.querySelector('#greedy').checked = true")
        page.evaluate("document.querySelector('#maxNewTokens').value = 8")
        page.fill("#prompt", "hello")
        page.press("#prompt", "Enter")
        page.wait("!document.querySelector('#send').disabled && document.querySelector('.assistant footer')")
        model = cabochon.load(package, threads=1, provider="cpu")
        messages = [{"role": "user", "content": "hello"}]
        expected = model.generate(messages, greedy=True, max_new_tokens=8, speculation=False).text
        answer = "return document.querySelector('.assistant').childNodes[1].data"
        assert page.evaluate(answer) == expected
        assert "tokens a second" in text(page, "#speed")
        assert "accepted" in text(page, "#drafted")

        page.evaluate("document.querySelector('#maxNewTokens').value = 400")
        page.evaluate("document.querySelector('#greedy').checked = false")
        page.fill("#prompt", "again")
        page.press("#prompt", "Enter")
        page.wait("document.querySelectorAll('.assistant')[1]?.childNodes[1].data")
        page.click("#stop")
        page.wait("document.querySelectorAll('.assistant footer')[1]")
        assert text(page, ".assistant:last-child footer") == "Stopped."

        later = stand.browser.open(url, WATCH, beside=page)
        loaded(later)
        assert not [path for path in later.requests if path.endswith((".data", ".onnx"))]
        assert max(later.evaluate("return globalThis.watched")) == 1.0
        later.close()
        page.close()


def test_a_damaged_package_is_not_loaded(stand: Stand, tmp_path: Path) -> None:
    package = tmp_path / "damaged"
    shutil.copytree(stand.packages("tiny", "webgpu", "f32"), package)
    with (package / "model.onnx.data").open("r+b") as file:
        file.seek(1000)
        file.write(b"\xff\xff")
    page = stand.browser.open(f"{stand.address(package)}index.html")
    loaded(page)
    said = text(page, "#error")
    assert "model.onnx.data: SHA-256" in said
    assert "sha256sum -c SHA256SUMS" in said
    page.close()


def test_a_static_site_works_below_any_path_and_without_headers(stand: Stand, tmp_path: Path) -> None:
    package = stand.packages("tiny", "webgpu", "f32")
    write(assemble(package, NODE_MODULES), tmp_path / "a" / "site")
    with program("-um", "http.server", "0", "--bind", "127.0.0.1", "--directory", str(tmp_path)) as line:
        port = line.split("port ")[1].split()[0]
        page = stand.browser.open(f"http://127.0.0.1:{port}/a/site/")
        loaded(page)
        assert page.evaluate("return crossOriginIsolated") is False
        assert "1 thread; more need the headers that `cabochon web` sends" in text(page, "#deviceShown")
        answer = page.evaluate(
            "return window.cabochon.model.generate(...argument)", [PROMPT, spelled(GREEDY)]
        )
        assert answer["ids"] == told(package)
        page.close()
