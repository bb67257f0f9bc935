"""A package on OpenVINO beside the same on onnxruntime: loading, memory, prefill of 256 tokens, decoding, in turns.

    python -m bench.openvino --package DIR [--ir DIR] [--stateful DIR]     # what is not there is converted from DIR

`DIR` is a package of onnx-standard. Each side is a process of its own with as many threads, and they are asked one
after the other in each round. `exact` is OpenVINO with INFERENCE_PRECISION_HINT f32 and no dynamic quantization, `fast`
as it is by itself: both with our runtime and its caches, as onnxruntime is.
"""

import argparse
import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from bench import beside, steps
from bench.beside import PROMPT, Figures, counted
from bench.steps import Side
from bench.table import Row, failed, markdown
from bench.watch import python
from cabochon.runtime.openvino_graph import EXACT

DEEP = 2048


def openvino(
    package: Path, packages: Mapping[str, Path], rounds: int, threads: int, deep: int
) -> Iterator[Row]:
    """A row for each figure and each way to run the IR in `packages`, against onnxruntime on `package`."""
    ways = {
        f"{name}, {how}": (path, said) for name, path in packages.items() for how, said in _settings().items()
    }
    with contextlib.ExitStack() as stack:
        sides = {"onnxruntime": stack.enter_context(steps.ours(package, threads))}
        for name, (path, said) in ways.items():
            sides[name] = stack.enter_context(_side(path, threads, said))
        found = beside.measured(sides, rounds, deep, _vocabulary(package))
    base = found.pop("onnxruntime")
    for name, figures in found.items():
        yield from _rows(f"{name}, {counted(threads)}", figures, base, deep)


def _settings() -> dict[str, Mapping[str, str]]:
    return {"exact": EXACT, "fast": {}}


def _side(package: Path, threads: int, settings: Mapping[str, str]) -> Side:
    said = json.dumps(dict(settings))
    return Side([sys.executable, "-m", "bench.openvino", "serve", str(package), str(threads), said], threads)


def _rows(what: str, ours: Figures, base: Figures, deep: int) -> Iterator[Row]:
    against = f"onnxruntime: {base.load:.1f} s, {base.anonymous / 1e9:.2f} GB, {base.mapped / 1e9:.2f} GB"
    load = (
        f"{ours.load:.1f} s, {ours.anonymous / 1e9:.2f} GB anonymous, {ours.mapped / 1e9:.2f} GB file-backed"
    )
    yield Row(f"OpenVINO: load and first answer, {what} ({ours.about})", load, against)
    for title, key in (
        (f"prefill of {PROMPT} tokens", "prefill"),
        (f"decode one token after {PROMPT}", "decode"),
        (f"prefill of {deep} tokens, once", "deep_prefill"),
        (f"decode one token after {deep}", "deep_decode"),
    ):
        own, other = getattr(ours, key), getattr(base, key)
        yield Row(
            f"OpenVINO: {title}, {what}",
            f"{1e3 * own:,.1f} ms",
            f"onnxruntime: {1e3 * other:,.1f} ms",
            f"{other / own:.2f} × as fast",
        )


def _vocabulary(package: Path) -> int:
    config = json.loads((package / "config.json").read_text(encoding="utf-8"))
    return config.get("text_config", config)["vocab_size"]


class Decoder(steps.Ours):
    """A package in cabochon's runtime with settings of its provider; says what it computes in."""

    def __init__(self, package: str, threads: int, settings: Mapping[str, str]) -> None:
        super().__init__(package, threads, provider="openvino", provider_options=settings)
        said = self.model.session.settings
        self.about = ", ".join(
            [self.model.session.provider, *(f"{name} {value}" for name, value in said.items())]
        )


def main() -> None:
    """Measures and prints each row as it is known."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.openvino", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "--package", type=Path, required=True, help="a package of onnx-standard, text or full"
    )
    parser.add_argument("--ir", type=Path, help="what it was converted into (made)")
    parser.add_argument("--stateful", type=Path, help="the same with --stateful")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, nargs="+", default=[2])
    parser.add_argument("--deep", type=int, default=DEEP, help="tokens of the long prompt")
    parser.add_argument("--work", type=Path, help="a folder for what is made")
    asked, rows = parser.parse_args(), list[Row]()
    with tempfile.TemporaryDirectory(prefix="cabochon-bench-", dir=asked.work) as place:
        packages = {"stateless": asked.ir or Path(place) / "ir"}
        if asked.ir is None:
            rows.append(conversion(asked.package, packages["stateless"]))
            print(rows[-1].line(), flush=True)
        if asked.stateful:
            packages["stateful"] = asked.stateful
        for threads in asked.threads:
            try:
                for row in openvino(asked.package, packages, asked.rounds, threads, asked.deep):
                    print(row.line(), flush=True)
                    rows.append(row)
            except RuntimeError as error:
                rows.append(failed("OpenVINO", error))
    print(f"\n{markdown(rows, 1.0)}")


CONVERT = """
import json, sys
from cabochon.openvino import convert
print(json.dumps(convert(sys.argv[1], sys.argv[2]).nbytes))
"""


def conversion(package: Path, out: Path) -> Row:
    """A package of onnx-standard made into IR by a process of its own."""
    run = python(CONVERT, str(package), str(out))
    ours = f"{run.said / 1e9:.2f} GB in {run.seconds:.0f} s, {run.anonymous / 1e6:.0f} MB anonymous"
    source = sum(file.stat().st_size for file in package.rglob("*.data"))
    return Row(
        f"convert {package.name} to OpenVINO's IR, with starting Python",
        ours,
        f"weights of {source / 1e9:.2f} GB",
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        steps.serve(lambda: Decoder(sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4])))
    else:
        main()
