"""Asks runtimes that list no kernels of their own: python tests/record_kernels.py webgpu|openvino writes the table.

WebGPU is asked in headless Chromium (tests/browser); ten thousand sessions take some minutes.
"""

import base64
import json
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from browser.driven import NODE_MODULES, Browser
from cabochon.kernels.generate import spelled
from cabochon.kernels.questions import Question, questions, rows
from cabochon.kernels.tables import FOLDER
from cabochon.web import Site, open_server

FILES = ("ort.webgpu.bundle.min.mjs", "ort-wasm-simd-threaded.asyncify.wasm")
AT_ONCE = 600  # sessions of one page
ASK = """
const ort = await import("./ort.webgpu.bundle.min.mjs");
const wasm = new URL("ort-wasm-simd-threaded.asyncify.wasm", location).href;
Object.assign(ort.env.wasm, { numThreads: 1, wasmPaths: { wasm } });
ort.env.logLevel = "fatal";
const answers = [];
for (const graph of argument) {
  const bytes = Uint8Array.from(atob(graph), (c) => c.charCodeAt(0));
  try {
    const session = await ort.InferenceSession.create(bytes, {
      executionProviders: ["webgpu"], graphOptimizationLevel: "disabled",
      extra: { session: { disable_cpu_ep_fallback: "1" } },
    });
    await session.release();
    answers.push("");
  } catch (error) {
    answers.push(String(error.message ?? error));
  }
}
return answers;
"""


@contextmanager
def browser() -> Generator[Any]:
    """A function that asks a browser: graphs to what each session failed with, "" where it did not."""
    dist = NODE_MODULES / "onnxruntime-web" / "dist"
    files: dict[str, Any] = {"index.html": b"<!doctype html>"} | {name: dist / name for name in FILES}
    server = open_server(Site(files, {}), "127.0.0.1", 0)
    thread = threading.Thread(target=server.serve_forever, args=[0.01])
    thread.start()
    asked = Browser()
    try:
        yield lambda graphs: _asked(asked, server.url, graphs)
    finally:
        asked.close()
        server.shutdown()
        server.server_close()
        thread.join()


def _asked(asked: Browser, url: str, graphs: Sequence[bytes]) -> list[str]:
    answers = list[str]()
    for start in range(0, len(graphs), AT_ONCE):
        page = asked.open(url)
        part = [base64.b64encode(graph).decode() for graph in graphs[start : start + AT_ONCE]]
        answers += page.evaluate(ASK, part)
        page.close()
    assert not any("no available backend" in said for said in answers), answers[0]
    return answers


def openvino(graphs: Sequence[bytes]) -> list[str]:
    """What reading each graph failed with, where OpenVINO has no conversion at all; else ""."""
    import openvino as ov

    core, answers = ov.Core(), list[str]()
    for graph in graphs:
        try:
            core.read_model(graph, b"")
            answers.append("")
        except RuntimeError as error:
            answers.append("" if "Conversion is failed for" in str(error) else str(error))
    return answers


def record(file: str, asked: Sequence[Question], answers: Sequence[str]) -> None:
    """Write what was taken into the table; control flow and constants stay as they are, no graph is made of them."""
    path = FOLDER / file
    table = json.loads(path.read_text())
    taken = [not said for said in answers]
    if not table["typed"]:
        asked = [Question(q.operator, q.since, {}, q.graph) for q in asked]
    found = rows(zip(asked, taken, strict=True))
    kept = {
        name: table["kernels"][""][name]
        for name in ("Constant", "If", "Loop")
        if name in table["kernels"][""]
    }
    found[""] = dict(sorted({**kept, **found[""]}.items()))
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    path.write_text(spelled({**table, "date": today, "kernels": found}))


if __name__ == "__main__":
    every = list(questions())
    given = [question.graph for question in every]
    if sys.argv[1] == "openvino":
        record("openvino.json", every, openvino(given))
    else:
        with browser() as ask:
            record("webgpu.json", every, ask(given))
