"""onnx-genai: what it does with a folder whose inference_metadata.yaml is in the form that it reads."""

from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from cabochon.clients.child import run
from cabochon.clients.judging import Expected, judged
from cabochon.clients.media_trials import Shown
from cabochon.clients.probes import Client, Probe

__all__ = ["DIALECT", "NAME", "client"]

NAME = "onnx-genai"
DIALECT = "v1.8"  # of the documents that it reads

_SHOW = "import sys; from onnx_genai_server import main; sys.exit(main())"
_FAILED = "error: "


def client(
    folder: Path,
    text: str,
    prompt: Sequence[int],
    answer: Sequence[int],
    told: Sequence[tuple[Shown, tuple[str, ...]]] = (),
    *,
    seconds: float,
) -> Client:
    """Validate the folder with its command `show`, load it, tokenize `text` and answer it.

    `prompt` are the tokens that `text` is expected to be, `answer` those expected to follow; `told` are prompts with
    files and the texts of which one is expected to follow.
    """
    if (found := _version(NAME)) is None:
        return Client(NAME, None, ())
    probes = (*_shown(folder, seconds), *_answered(folder, text, prompt, answer, seconds))
    return Client(NAME, found, (*probes, *_described(folder, told, len(answer), seconds)))


def _shown(folder: Path, seconds: float) -> Iterator[Probe]:
    """Its validator comes in a wheel of its own."""
    if (server := _version("onnx-genai-server")) is None:
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


def _described(
    folder: Path, told: Sequence[tuple[Shown, tuple[str, ...]]], count: int, seconds: float
) -> Iterator[Probe]:
    """Prompts with files, of which only its command takes any; it says text, not tokens."""
    if not told or _version("onnx-genai-server") is None:
        return
    trials = [
        {"name": one.name, "text": _spelled(one), "image": one.files("image"), "audio": one.files("audio")}
        for one, _ in told
    ]
    expected = {one.name: Expected(f"{count} tokens after {one.tried}", texts=texts) for one, texts in told}
    request = {"folder": str(folder), "tokens": count, "trials": trials}
    yield from judged(
        run(["-m", "cabochon.clients.programs.run_onnx_genai_media"], request, seconds=seconds), expected
    )


def _spelled(shown: Shown) -> str:
    """It makes as many placeholders of one as there are tokens, and puts nothing around them."""
    begin, end = shown.marks.get("boi_token", ""), shown.marks.get("eoi_token", "")
    return shown.text(begin, end)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
