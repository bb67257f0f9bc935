"""`probe`: one package through every other runtime that is installed; `record` puts that into its evidence."""

import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cabochon import evidence
from cabochon.clients import onnx_genai, onnxruntime_genai
from cabochon.clients.media_trials import Shown, shown
from cabochon.clients.onnxruntime_genai import Trial, trials
from cabochon.clients.probes import Probes

if TYPE_CHECKING:
    from cabochon.runtime import Generation, Model

__all__ = ["Asked", "ask", "probe", "record"]

PROMPT = "And it came to pass, when the king heard these words"
NEW_TOKENS = 40
LIMITATIONS = "runtime_limitations.json"


@dataclass(frozen=True)
class Asked:
    """What all clients are asked, and what cabochon's own runtime answers."""

    text: str
    prompt: Sequence[int]
    answer: Sequence[int]
    trials: tuple[Trial, ...]
    target: str
    precision: str
    head_sizes: Sequence[int]
    told: tuple[tuple[Shown, tuple[str, ...]], ...] = ()


def probe(
    package: str | Path,
    *,
    served: str | Path | None = None,
    prompt: str = PROMPT,
    new_tokens: int = NEW_TOKENS,
    seconds: float = 600,
) -> Probes:
    """Try a text or full package with onnxruntime-genai, and with onnx-genai in the form that it reads.

    `served` is a folder in that form; where none is given the package is converted, into a folder beside it that is
    removed afterwards. Everything runs on the CPU, each client in processes of its own, which may take `seconds` each.
    The answers are compared with those of cabochon's own runtime: `new_tokens` tokens after `prompt`, greedily. Raises
    PackageError where that cannot run the package, or where the package cannot be converted.
    """
    package = Path(package)
    with tempfile.TemporaryDirectory(prefix="cabochon-") as media, _served(package, served) as folder:
        asked = ask(package, prompt, new_tokens, Path(media))
        clients = (
            onnxruntime_genai.client(package, asked.trials, seconds=seconds),
            onnx_genai.client(folder, asked.text, asked.prompt, asked.answer, asked.told, seconds=seconds),
        )
    measured = {
        "package": evidence.identity(
            package, {"cabochon.target": asked.target, "cabochon.precision": asked.precision}
        ),
        "head_sizes": asked.head_sizes,
        "versions": evidence.versions(),
        "provider": "CPUExecutionProvider",
        "prompt": prompt,
        "new_tokens": new_tokens,
    }
    return Probes(package, measured, clients)


def record(probes: Probes) -> str:
    """Write evidence/runtime_limitations.json into the package. Returns its path inside."""
    return evidence.write(probes.package, LIMITATIONS, probes.as_json())


@contextmanager
def _served(package: Path, served: str | Path | None) -> Generator[Path]:
    """The package as onnx-genai reads it. Beside it, weights become hard links instead of copies."""
    if served is not None:
        yield Path(served)
        return
    from cabochon.metadata.folder import convert_package

    with tempfile.TemporaryDirectory(dir=package.resolve().parent, prefix=f".{package.name}-") as scratch:
        yield convert_package(package, Path(scratch) / "served", onnx_genai.DIALECT).path


def ask(package: Path, prompt: str = PROMPT, count: int = NEW_TOKENS, media: Path | None = None) -> Asked:
    """Our own answers; the model is gone from memory before another runtime loads it.

    `media` is a folder for the files that a package with encoders is shown; without one it is shown none.
    """
    from cabochon.media import read_processors
    from cabochon.runtime import load

    model = load(package, provider="cpu")

    @cache  # several trials expect the same answer
    def ours(ids: tuple[int, ...], count: int) -> tuple[int, ...]:
        return tuple(model.generate(list(ids), max_new_tokens=count, temperature=0).ids)

    ids, named, ports = (
        model.prompt_ids(prompt),
        model.tokens.named if model.tokens else {},
        model.session.ports,
    )
    pad = model.tokens.id_of(named.get("pad_token")) if model.tokens else None
    told = shown(model, read_processors(package), media) if media else ()
    return Asked(
        text=named.get("bos_token", "") + prompt,
        prompt=ids,
        answer=ours(tuple(ids), count),
        trials=(*trials(ours, ids, count, pad or 0), *(_showing(model, one, count) for one in told)),
        target=ports.contract.target,
        precision=ports.contract.precision,
        head_sizes=sorted({cache.size for cache in ports.caches}),
        told=tuple((one, _texts(model, _answer(model, one, count))) for one in told),
    )


def _showing(model: "Model", one: Shown, count: int) -> Trial:
    around = onnxruntime_genai.AROUND
    length = len(model.prompt_ids(one.ours(around, around), **one.given()))
    return onnxruntime_genai.showing(one, length, tuple(_answer(model, one, count, around).ids))


def _texts(model: "Model", answer: "Generation") -> tuple[str, ...]:
    """The text of an answer, decoded all at once and token by token: bytes of broken characters differ."""
    assert model.tokens is not None
    return answer.text, "".join(model.tokens.decode([token]) for token in answer.ids)


def _answer(model: "Model", one: Shown, count: int, around: str = "") -> "Generation":
    options: dict[str, Any] = {"max_new_tokens": count, "temperature": 0, **one.given()}
    return model.generate(one.ours(around, around), **options)
