"""The page's engine in headless Chromium: one browser, and one server of all packages."""

import json
import threading
from functools import cached_property
from pathlib import Path
from typing import Any

from browser.driven import NODE_MODULES, Browser, Page
from cabochon.web import Site, assemble, open_server

EMPTY = b'<!doctype html><link rel="icon" href="data:,"><script type="importmap">%s</script>'
ANSWER = """
const { load } = await import("./engine/client.js");
const model = await load(argument.manifest, { device: argument.device });
try {
  const { ids } = await model.generate(argument.prompt, argument.options);
  return { ids, device: model.device };
} finally {
  model.close();
}
"""


class Browsing:
    """Starts with the first package that is asked for."""

    def __init__(self) -> None:
        self._files: dict[str, Path | bytes] = {}
        self._started = False

    @cached_property
    def _page(self) -> Page:
        self._started = True
        self._server = open_server(Site(self._files, {}), "127.0.0.1", 0)
        threading.Thread(target=self._server.serve_forever, args=[0.01], daemon=True).start()
        self._browser = Browser()
        return self._browser.open(f"{self._server.url}engine.html")

    def ids(self, package: Path, device: str, prompt: list[int], new: int) -> tuple[str, list[int]]:
        """In words what ran it, and the tokens that a package answers on "webgpu" or "wasm"."""
        name = "-".join(package.parts[-2:])
        own = assemble(package, NODE_MODULES).files
        if not self._files:
            index = own["index.html"]
            assert isinstance(index, bytes)
            modules = index.split(b'type="importmap">')[1].split(b"</script>")[0]
            self._files["engine.html"] = EMPTY % modules
            self._files |= {n: file for n, file in own.items() if n.startswith(("engine/", "libraries/"))}
        self._files |= {f"{name}/{n}": file for n, file in own.items()}
        options: dict[str, Any] = {"greedy": True, "ignoreEos": True, "maxNewTokens": new}
        page = self._page
        asked = {"manifest": f"{self._server.url}{name}/web.json", "device": device}
        made = page.evaluate(ANSWER, asked | {"prompt": prompt, "options": options})
        assert made["device"] == device, made
        web = json.loads((NODE_MODULES / "onnxruntime-web" / "package.json").read_bytes())["version"]
        on = {"webgpu": "WebGPU on SwiftShader", "wasm": "wasm"}[device]
        return f"onnxruntime-web {web} {on}, Chromium {self._browser.version.split('.')[0]}", made["ids"]

    def close(self) -> None:
        """End what was started."""
        if self._started:
            self._browser.close()
            self._server.shutdown()
            self._server.server_close()
