"""The picture of docs/web.md: `python -m browser.screenshot PATH` chats with the shipped miniature and its drafter."""

import sys
import tempfile
import threading
from pathlib import Path

import cabochon
from browser.driven import NODE_MODULES, Browser
from cabochon.web import assemble, open_server

MINIATURE = Path(cabochon.__file__).parent / "demo" / "miniature"
SAYS = ("Hello", "Repeat: In the beginning God created the heaven and the earth.")
SIZE = {"width": 860, "height": 860}


def take(path: Path) -> None:
    """Build the pair, serve it, load it on WebGPU, ask for a story, and take the picture."""
    with tempfile.TemporaryDirectory() as folder:
        pair = Path(folder) / "miniature"
        cabochon.build(
            MINIATURE / "target", pair, assistant=MINIATURE / "assistant", target="webgpu", precision="f32",
            license="apache-2.0",
        )  # fmt: skip
        with open_server(assemble(pair, NODE_MODULES), "127.0.0.1", 0) as server:
            threading.Thread(target=server.serve_forever, args=[0.01]).start()
            photograph(server.url, path)
            server.shutdown()


def photograph(url: str, path: Path) -> None:
    browser = Browser()
    page = browser.open(url, viewport=SIZE)
    page.wait("document.querySelector('#about').textContent")
    page.click("#load")
    page.wait("!document.querySelector('#conversation').hidden", 300)
    page.evaluate("document.querySelector('#greedy').checked = true")
    page.evaluate("document.querySelector('#maxNewTokens').value = 60")
    for count, message in enumerate(SAYS, 1):
        page.fill("#prompt", message)
        page.press("#prompt", "Enter")
        page.wait(f"document.querySelectorAll('article[class=assistant]').length === {count}")
        page.wait("!document.querySelector('#send').disabled", 600)
    page.wait("/measured\\)|does not say/.test(document.querySelector('#memory').textContent)", 120)
    page.screenshot(path)
    browser.close()


if __name__ == "__main__":
    take(Path(sys.argv[1]))
