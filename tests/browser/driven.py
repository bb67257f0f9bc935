"""One headless Chromium for the tests of a run, driven through tests/browser/driver.mjs."""

import itertools
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
NODE_MODULES = HERE / "node_modules"
NAMES = ("chromium", "chromium-browser", "google-chrome")
PATIENCE = 60.0  # seconds; WebGPU on SwiftShader compiles its shaders on the CPU


def chromium() -> str | None:
    """The browser: that of the variable CHROMIUM, else the first that is installed."""
    named = os.environ.get("CHROMIUM")
    return named or next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """A browser; `version` is its own word for itself."""

    def __init__(self) -> None:
        self._driver = subprocess.Popen(
            ["node", str(HERE / "driver.mjs")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._numbers = itertools.count()
        executable = chromium()
        assert executable, f"no browser: expected one of {', '.join(NAMES)}, or its path in CHROMIUM"
        self.version: str = self.ask("start", executable=executable)

    def ask(self, command: str, **given: Any) -> Any:
        """What a command of the driver says; AssertionError with its stack where it fails."""
        assert self._driver.stdin is not None and self._driver.stdout is not None
        self._driver.stdin.write(json.dumps({"command": command, **given}) + "\n")
        self._driver.stdin.flush()
        line = self._driver.stdout.readline()
        assert line, f"the driver ended in {command}"
        answer = json.loads(line)
        assert "error" not in answer, answer["error"]
        return answer["value"]

    def open(self, url: str, script: str | None = None, beside: "Page | None" = None, **how: Any) -> "Page":
        """A page. `script` runs before its own scripts; it shares storage with the page `beside` alone."""
        number = next(self._numbers)
        given = {"script": script, "context": None if beside is None else beside.number, **how}
        self.ask("open", page=number, url=url, **{k: v for k, v in given.items() if v is not None})
        return Page(self, number)

    def close(self) -> None:
        """End the browser and its driver."""
        assert self._driver.stdin is not None
        self._driver.stdin.close()
        self._driver.wait(timeout=20)


class Page:
    """A tab. Selectors are CSS."""

    def __init__(self, browser: Browser, number: int) -> None:
        self._browser, self.number = browser, number

    def _ask(self, command: str, **given: Any) -> Any:
        return self._browser.ask(command, page=self.number, **given)

    def evaluate(self, code: str, argument: Any = None) -> Any:
        """What the body of an async function of `argument` returns."""
        return self._ask("evaluate", code=code, argument=argument)

    def wait(self, expression: str, seconds: float = PATIENCE) -> Any:
        """The value of an expression, once it holds."""
        try:
            return self._ask("wait", expression=expression, seconds=seconds)
        except AssertionError as error:
            text = self.evaluate("return document.body.innerText")
            raise AssertionError(f"{expression}\n{error}\n{self.said}\n{text}") from None

    def click(self, selector: str) -> None:
        self._ask("click", selector=selector)

    def fill(self, selector: str, text: str) -> None:
        self._ask("fill", selector=selector, text=text)

    def press(self, selector: str, key: str) -> None:
        self._ask("press", selector=selector, key=key)

    def screenshot(self, path: Path) -> None:
        self._ask("screenshot", path=str(path))

    @property
    def requests(self) -> list[str]:
        """Paths of what was asked of the server and answered."""
        return self._ask("heard")["requests"]

    @property
    def said(self) -> list[str]:
        """What the console has."""
        return self._ask("heard")["said"]

    def close(self) -> None:
        self._ask("close")
