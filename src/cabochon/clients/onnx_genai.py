"""onnx-genai: what it does with a folder whose inference_metadata.yaml is in the form that it reads."""

from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from cabochon.clients.child import run
from cabochon.clients.judging import Expected, judged
from cabochon.clients.probes import Client, Probe

__all__ = ["DIALECT", "NAME", "client"]

NAME = "onnx-genai"
DIALECT = "v1.8"  # of the documents that it reads

_SHOW = "import sys; from onnx_genai_server import main; sys.exit(main())"
_FAILED = "error: "


def client(
    folder: Path, text: str, prompt: Sequence[int], answer: Sequence[int], *, seconds: float
) -> Client:
    """Validate the folder with its command `show`, load it, tokenize `text` and answer it.

    `prompt` are the tokens that `text` is expected to be, `answer` those expected to follow.
    """
    try:
        found = version(NAME)
    except PackageNotFoundError:
        return Client(NAME, None, ())
    return Client(NAME, found, (*_shown(folder, seconds), *_answered(folder, text, prompt, answer, seconds)))


def _shown(folder: Path, seconds: float) -> Iterator[Probe]:
    """Its validator comes in a wheel of its own."""
    try:
        server = version("onnx-genai-server")
    except PackageNotFoundError:
        return
    ended = run(["-c", _SHOW, "show", str(folder)], seconds=seconds)
    tried = f"`onnx-genai show` of onnx-genai-server {server}: its validation of the document and the ports"
    if ended.code == 0:
        yield Probe("show", tried, "worked", "no error", ended.seconds)
    elif ended.code is not None and ended.code > 0 and _FAILED in ended.words:
        said = ended.words.partition(_FAILED)[2]
        yield Probe("show", tried, "refused", said, ended.seconds)
    else:
        yield Probe("show", tried, ended.fault or "crashed", ended.how, ended.seconds)


def _answered(
    folder: Path, text: str, prompt: Sequence[int], answer: Sequence[int], seconds: float
) -> Iterator[Probe]:
    expected = {
        "load": Expected("load, on the CPU"),
        "tokenize": Expected(f"tokenize a prompt of {len(prompt)} tokens", [prompt]),
        "generate": Expected(f"{len(answer)} tokens, greedily", [answer]),
    }
    request = {"folder": str(folder), "prompt": text, "tokens": len(answer)}
    yield from judged(
        run(["-m", "cabochon.clients.programs.run_onnx_genai"], request, seconds=seconds), expected
    )
