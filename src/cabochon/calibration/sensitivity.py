"""Which roles suffer most in blocks: each put into blocks alone, everything else staying f32."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from cabochon.calibration.collect import collect
from cabochon.calibration.roles import Group, groups, rounded
from cabochon.calibration.session import Run, keep_needed, read_graph, read_windows
from cabochon.errors import RequestError
from cabochon.evaluation.scores import Scores, scores
from cabochon.evaluation.text import Windows
from cabochon.recipes.recipe_file import find_precision
from cabochon.runtime.folder import Folder, open_folder

__all__ = ["Role", "Sensitivity", "sensitivity"]

Told = Callable[[int, int], object]


@dataclass(frozen=True)
class Role:
    """Weights of one role, and what the model loses where they alone are stored in blocks.

    `loss` is the mean of -log p over the tokens, in nats; `divergence` the mean of KL(f32 || this), `divergence_error`
    its standard error; `agreement` the share of tokens where both find the same one likeliest. `nbytes` in blocks, and
    8 bits would take `more`.
    """

    addresses: tuple[str, ...]
    stored: str
    bits: int
    parameters: int
    nbytes: int
    more: int
    loss: float
    divergence: float
    divergence_error: float
    agreement: float

    @property
    def perplexity(self) -> float:
        """exp(loss)."""
        return math.exp(self.loss)

    @property
    def harm(self) -> float:
        """Divergence that a million bytes would save; 0 where 8 bits take no more."""
        return self.divergence / self.more * 1e6 if self.more else 0.0

    def as_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "weights": list(self.addresses),
            "stored": self.stored,
            "bits": self.bits,
            "parameters": self.parameters,
            "bytes": self.nbytes,
            "bytes_more_at_8_bits": self.more,
            "loss": self.loss,
            "perplexity": self.perplexity,
            "kl_mean": self.divergence,
            "kl_error": self.divergence_error,
            "top1_agreement": self.agreement,
            "kl_per_megabyte": self.harm,
        }


@dataclass(frozen=True)
class Sensitivity:
    """The roles of a package by harm, the worst first. `loss`: of f32, over `scored` tokens in `windows` windows."""

    package: Path
    precision: str
    text: str
    sha256: str
    windows: int
    scored: int
    calibrated: bool
    loss: float
    roles: tuple[Role, ...]

    @property
    def perplexity(self) -> float:
        """exp(loss) of f32."""
        return math.exp(self.loss)

    def as_json(self) -> dict[str, Any]:
        """As plain data, for `--json`."""
        return {
            "package": str(self.package),
            "precision": self.precision,
            "text": {"name": self.text, "sha256": self.sha256},
            "windows": self.windows,
            "scored_tokens": self.scored,
            "calibrated": self.calibrated,
            "f32": {"loss": self.loss, "perplexity": self.perplexity},
            "roles": [role.as_json() for role in self.roles],
        }


def sensitivity(
    package: str | Path,
    text: str | Path,
    *,
    precision: str | Path = "Q4_K_M",
    calibrate: str | Path | None = None,
    limit: int | None = None,
    threads: int | None = None,
    progress: Told = lambda done, total: None,
) -> Sensitivity:
    """Measure what each role that `precision` puts into blocks costs the f32 text package `package` on a file `text`.

    The text is fed in windows of 511 tokens behind <bos>, or the first `limit` of them. `calibrate`: another file,
    whose statistics then guide the search of scales. What is in blocks is computed with exactly, so that rounding of
    activations is no part of the figures. Memory is that of one role in f32, and of the logits of a window twice.
    `progress` is told the runs done and of all. Raises PackageError for a package that is another, RequestError for a
    text that is none or a precision without blocks, TargetError or ConfigError for a precision that is none.
    """
    folder, wanted = open_folder(package), find_precision(precision)
    model = read_graph(folder)
    said, windows = read_windows(folder, Path(text), limit)
    found = groups(model.graph, folder, wanted)
    if not found:
        raise RequestError(f"{wanted.name} puts no weight into blocks", at="precision", remedy="name another")
    importance = collect(package, calibrate, threads=threads).mean_squares if calibrate else {}
    count, total = len(windows.ids), len(windows.ids) * (1 + len(found))
    reference = _Reference(model, folder, windows, threads, lambda done: progress(done, total))
    roles, loss = list[Role](), 0.0
    for n, group in enumerate(found, 1):
        weights = rounded(group, folder.path, chain.from_iterable(windows.ids), importance)
        its = reference.against(weights, lambda done, n=n: progress(n * count + done, total))
        roles.append(_role(group, its))
        loss = float(its.reference.mean())
    roles.sort(key=lambda role: -role.harm)
    return Sensitivity(
        folder.path, wanted.name, said.name or "", said.sha256, count, windows.scored, bool(calibrate), loss,
        tuple(roles),
    )  # fmt: skip


class _Reference:
    """The f32 package on windows: its last hidden states are kept, and make its logits whenever they are asked for."""

    def __init__(
        self,
        model: onnx.ModelProto,
        folder: Folder,
        windows: Windows,
        threads: int | None,
        told: Callable[[int], object],
    ) -> None:
        self._model, self._folder, self._windows, self._threads = model, folder.path, windows, threads
        self._name = next(out.name for out in model.graph.output if out.name.startswith("hidden_states."))
        run, self._hidden = Run(model, self._folder, threads), list[np.ndarray]()
        for ids in windows.ids:
            self._hidden += run.window(ids[:-1], [self._name])
            told(len(self._hidden))
        self._head = Run(_head(model, self._name), self._folder, threads)

    def against(self, weights: Mapping[str, np.ndarray], told: Callable[[int], object]) -> Scores:
        """The scores of the same package with other weights."""
        run, parts = Run(self._model, self._folder, self._threads, weights), list[Scores]()
        for ids, hidden in zip(self._windows.ids, self._hidden, strict=True):
            (logits,) = run.window(ids[:-1], ["logits"])
            (reference,) = self._head.once({self._name: hidden}, ["logits"])
            parts.append(scores(logits[0], np.asarray(ids[1:]), reference[0]))
            told(len(parts))
        return Scores.joined(parts)


def _head(model: onnx.ModelProto, hidden: str) -> onnx.ModelProto:
    """What makes logits of the value `hidden`."""
    head = onnx.ModelProto()
    head.CopyFrom(model)
    outputs = {out.name: out for out in model.graph.output}
    del head.graph.output[:], head.graph.input[:]
    head.graph.input.append(outputs[hidden])
    head.graph.output.append(outputs["logits"])
    keep_needed(head.graph, [hidden])
    return head


def _role(group: Group, its: Scores) -> Role:
    error = its.divergence.std() / math.sqrt(len(its.divergence))
    return Role(
        group.addresses, str(group.scheme), group.scheme.bits, group.parameters, group.nbytes, group.more,
        float(its.losses.mean()), float(its.divergence.mean()), float(error), float(its.agrees.mean()),
    )  # fmt: skip
