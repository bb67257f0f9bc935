"""E2B as Q4_K_M beside llama.cpp's own Q4_K_M of the same checkpoint: sizes, memory, prefill, decoding, operators.

    python -m bench.quantized --llama /path/to/python        # everything is made: 27 GB of disk
    python -m bench.quantized --source DIR --package DIR --gguf FILE    # what is there is taken

llama-cpp-python is no dependency of cabochon. It is asked in a Python of its own, named by --llama or by
CABOCHON_BENCH_LLAMA, into which `pip install llama-cpp-python==0.3.36` put it (it needs a compiler and ten minutes).
Where there is none the rows give our side alone. Both sides feed the same ids with as many threads, one after the
other in each round, and give the logits of the last token as f32. llama.cpp: memory-mapped, kernels for its CPU
(repacked weights), f16 caches, flash attention, sliding caches of a window. cabochon: its own runtime with its caches.
"""

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import cabochon
from bench import beside, gguf, media, operators, steps
from bench.beside import PROMPT, VARIABLE, VERSION, absent
from bench.checkpoints import ROOT
from bench.table import Row, failed, markdown
from bench.watch import Watched, python
from cabochon.demo import MINIATURE

PRECISION, DEEP, CHECKED = "Q4_K_M", 4096, 40
WHAT = f"full E2B {PRECISION} text"
BUILD = """
import sys, cabochon
source, out, model, precision = sys.argv[1:]
lacking = ("tokenizer", "generation_config", "chat_template")
print(cabochon.build(source, out, precision=precision, model=model, allow_missing=lacking).seconds)
"""
LIMITS = {"text": 2.9e9, "full": 3.4e9}
SECONDS, ANONYMOUS = 180, 500e6


@dataclass(frozen=True)
class Given:
    """What is there already (None: it is made), the Python that has llama-cpp-python, and what is asked."""

    source: Path | None = None
    package: Path | None = None
    gguf: Path | None = None
    llama: str | None = os.environ.get(VARIABLE)
    threads: tuple[int, ...] = (2, 1)
    deep: int = DEEP


def quantized(work: Path, scale: float, rounds: int, given: Given | None = None) -> Iterator[Row]:
    """All rows, from what is given or made in `work`."""
    given = given or Given()
    fitting = llama_python(given.llama)
    source = given.source or (
        media.checkpoint(work / "e2b", scale) if _needs_source(given, fitting) else None
    )
    package = given.package
    if package is None:
        assert source is not None
        package = work / "e2b-q4"
        yield built(source, package, "text")
        yield _whole(source, work / "e2b-full")
    theirs: Path | None = None
    if fitting is not None:
        yield agreement(work, fitting)
        theirs = given.gguf or true_q4_k_m(source or work, work / "e2b-q4km.gguf", fitting)
    yield sizes(package, theirs)
    for threads in given.threads:
        with contextlib.ExitStack() as stack:
            sides = {"ours": stack.enter_context(steps.ours(package, threads))}
            if theirs is not None and fitting is not None:
                context = beside.context(rounds, given.deep)
                other = beside.theirs(theirs, fitting, threads, context)
                sides["llama.cpp"] = stack.enter_context(other)
            found = beside.measured(sides, rounds, given.deep, _vocabulary(package))
        yield from beside.rows(WHAT, found, threads, given.deep)
    for depth in (PROMPT, given.deep):
        yield operators.shares(package, work, max(given.threads), depth)


def _vocabulary(package: Path) -> int:
    config = json.loads((package / "config.json").read_text(encoding="utf-8"))
    return config.get("text_config", config)["vocab_size"]


def llama_python(asked: str | None) -> str | None:
    """A Python that imports llama_cpp: the one that is asked for, else this one; None where it has none."""
    found = asked or sys.executable
    code = "import llama_cpp; print(llama_cpp.__version__)"
    said = subprocess.run([found, "-c", code], capture_output=True, text=True)
    if said.returncode and asked:
        raise RuntimeError(
            f"{asked} has no llama-cpp-python; `{asked} -m pip install llama-cpp-python=={VERSION}`"
        )
    return None if said.returncode else found


def _needs_source(given: Given, fitting: str | None) -> bool:
    return given.package is None or (given.gguf is None and fitting is not None)


def built(source: Path, out: Path, model: str) -> Row:
    """A package, built in a child process so that starting and importing count too."""
    run: Watched = python(BUILD, str(source), str(out), model, PRECISION)
    nbytes = _size(out)
    met = run.seconds <= SECONDS and run.anonymous < ANONYMOUS and nbytes <= LIMITS[model]
    return Row(
        f"build full E2B {PRECISION}, {model}, {len(os.sched_getaffinity(0))} cores",
        f"{run.seconds:.0f} s ({run.said:.0f} s inside `build`), {run.anonymous / 1e6:.0f} MB anonymous, "
        f"{nbytes / 1e9:.2f} GB",
        aim=f"≤ {SECONDS} s, < {ANONYMOUS / 1e6:.0f} MB, ≤ {LIMITS[model] / 1e9} GB",
        met=met,
    )


def _whole(source: Path, out: Path) -> Row:
    """The full package, which nothing else here needs: what comes after it is measured even where it fails."""
    try:
        return built(source, out, "full")
    except RuntimeError as error:
        return failed(f"build full E2B {PRECISION}, full", error)
    finally:
        shutil.rmtree(out, ignore_errors=True)


def _size(folder: Path) -> int:
    """Bytes of a folder; what has two names counts once."""
    found = (path.stat() for path in folder.rglob("*") if path.is_file())
    return sum({stat.st_ino: stat.st_size for stat in found}.values())


def true_q4_k_m(source: Path, out: Path, llama: str, threads: int = 2) -> Path:
    """llama.cpp's Q4_K_M of a checkpoint, through a bf16 file that goes when it is made."""
    whole = out.with_suffix(".bf16.gguf")
    gguf.write(source, whole)
    command = [llama, "-m", "bench.llama", "quantize", str(whole), str(out), str(threads)]
    subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": str(ROOT)})
    whole.unlink()
    return out


def agreement(work: Path, llama: str) -> Row:
    """The trained miniature in f32 through our package and through a file of ours in llama.cpp: the same words."""
    source, package = MINIATURE / "target", work / "miniature"
    cabochon.build(source, package, precision="f32")
    file = gguf.write(source, work / "miniature.gguf", f32=True)
    ids = cabochon.load(package).prompt_ids((MINIATURE / "heldout.txt").read_text("utf-8"))[:PROMPT]
    said: list[list[int]] = []
    for side in (steps.ours(package, 1), beside.theirs(file, llama, 1, 2 * PROMPT, "f32")):
        with side:
            said.append(side.ask([], greedy_after=ids, greedy=CHECKED)["greedy"])
    same = sum(a == b for a, b in zip(*said, strict=True))
    return Row(
        "the miniature in f32, greedy: our package and our GGUF file in llama.cpp",
        f"{same} of {CHECKED} tokens are the same",
        aim="all: both sides compute the same model",
        met=same == CHECKED,
    )


def sizes(package: Path, theirs: Path | None) -> Row:
    """Bytes, bits per weight, and what is read for one token: everything but the table of per-layer inputs."""
    provenance = json.loads((package / "provenance.json").read_text(encoding="utf-8"))
    weights = provenance["build"]["stored"]["weights"]
    ours = [(w["role"], w["precision"], w["parameters"], w["bytes"]) for w in weights]
    said = _sizes("embed_tokens_per_layer", ours)
    if theirs is None:
        return Row(f"size of {WHAT}", said, absent())
    held = [(name, its.type, its.parameters, its.nbytes) for name, its in gguf.read(theirs).items()]
    against, ratio = _sizes("per_layer_token_embd.weight", held), _bytes(ours) / _bytes(held)
    return Row(f"size of {WHAT}", said, f"llama.cpp: {against}", f"{ratio:.2f}")


def _sizes(table: str, weights: Sequence[tuple[str, str, int, int]]) -> str:
    parameters, read = sum(w[2] for w in weights), [w for w in weights if w[0] != table]
    kinds: Counter[str] = Counter()
    for _, kind, _, nbytes in weights:
        kinds[kind] += nbytes
    shares = ", ".join(f"{kind} {count / 1e9:.2f}" for kind, count in kinds.most_common(4))
    return (
        f"{_bytes(weights) / 1e9:.2f} GB, {8 * _bytes(weights) / parameters:.2f} bits per weight; read for one token "
        f"{_bytes(read) / 1e9:.2f} GB, {8 * _bytes(read) / sum(w[2] for w in read):.2f} bits per weight (GB: {shares})"
    )


def _bytes(weights: Sequence[tuple[str, str, int, int]]) -> int:
    return sum(w[3] for w in weights)


def main() -> None:
    """Measures and prints each row as it is known."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.quantized", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--source", type=Path, help="a checkpoint (made: E2B's geometry, random weights)")
    parser.add_argument("--package", type=Path, help="a Q4_K_M text package of it; then no build is measured")
    parser.add_argument("--gguf", type=Path, help="llama.cpp's Q4_K_M of it")
    parser.add_argument(
        "--llama", default=Given.llama, help=f"a Python that has llama-cpp-python ({VARIABLE})"
    )
    parser.add_argument("--threads", type=int, nargs="+", default=Given.threads)
    parser.add_argument("--deep", type=int, default=DEEP, help="tokens in the caches of the deep rows")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="shrinks the checkpoint that is made")
    parser.add_argument("--work", type=Path, help="a folder on the disk to measure (the current one)")
    chosen = parser.parse_args()
    given = Given(
        chosen.source, chosen.package, chosen.gguf, chosen.llama, tuple(chosen.threads), chosen.deep
    )
    with tempfile.TemporaryDirectory(prefix="cabochon-bench-", dir=chosen.work or Path.cwd()) as place:
        found: list[Row] = []
        for row in quantized(Path(place), chosen.scale, chosen.rounds, given):
            print(row.line(), flush=True)
            found.append(row)
    print(f"\n{markdown(found, chosen.scale)}")


if __name__ == "__main__":
    main()
