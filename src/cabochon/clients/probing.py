"""`probe`: one package through every other runtime that is installed; `record` puts that into its evidence."""

import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cabochon import evidence
from cabochon.clients import onnx_genai, onnxruntime_genai
from cabochon.clients.onnxruntime_genai import Trial, trials
from cabochon.clients.probes import Probes

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


def probe(
    package: str | Path,
    *,
    served: str | Path | None = None,
    prompt: str = PROMPT,
    new_tokens: int = NEW_TOKENS,
    seconds: float = 600,
) -> Probes:
    """Try a text package with onnxruntime-genai, and with onnx-genai in the form that it reads.

    `served` is a folder in that form; where none is given the package is converted, into a folder beside it that is
    removed afterwards. Everything runs on the CPU, each client in processes of its own, which may take `seconds` each.
    The answers are compared with those of cabochon's own runtime: `new_tokens` tokens after `prompt`, greedily. Raises
    PackageError where that cannot run the package, or where the package cannot be converted.
    """
    package = Path(package)
    asked = ask(package, prompt, new_tokens)
    with _served(package, served) as folder:
        clients = (
            onnxruntime_genai.client(package, asked.trials, seconds=seconds),
            onnx_genai.client(folder, asked.text, asked.prompt, asked.answer, seconds=seconds),
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


def ask(package: Path, prompt: str = PROMPT, count: int = NEW_TOKENS) -> Asked:
    """Our own answers; the model is gone from memory before another runtime loads it."""
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
    return Asked(
        text=named.get("bos_token", "") + prompt,
        prompt=ids,
        answer=ours(tuple(ids), count),
        trials=trials(ours, ids, count, pad or 0),
        target=ports.contract.target,
        precision=ports.contract.precision,
        head_sizes=sorted({cache.size for cache in ports.caches}),
    )
