"""What the reference passed from component to component of a model, as it was recorded. Pure.

Legend: B rows · S columns · H hidden · E soft tokens · V vocabulary.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cabochon.parity.prompts import Prompt
from cabochon.parity.reference import Answer

__all__ = ["COMPONENTS", "FullRecording", "Passed", "Prepared", "Said"]

COMPONENTS = ("vision_encoder", "audio_encoder", "embedding", "decoder")
Said = Mapping[tuple[str, str], np.ndarray]
"""What a component said: arrays [n, width] by port and by the row or medium they belong to."""


@dataclass(frozen=True)
class Prepared:
    """What the reference's processor made of one question.

    prompts: its rows, ids filled in. ids, mask i64 [B, S], padded in front. media: the inputs of encoders by port, all
    images, frames or clips of all rows in one array. images: how many of those of the vision encoder are images, the
    rest are frames. pillow: pixel_values of the images where Pillow resizes them, if transformers would have it so.
    """

    name: str
    prompts: tuple[Prompt, ...]
    ids: np.ndarray
    mask: np.ndarray
    media: Mapping[str, np.ndarray]
    images: int
    pillow: np.ndarray | None = None


@dataclass(frozen=True)
class Passed:
    """One question on its way through the reference.

    features: by encoder, [E, H] of each image, frame or clip. answers: one for each row, at its real positions.
    """

    asked: Prepared
    features: Mapping[str, tuple[np.ndarray, ...]]
    inputs_embeds: np.ndarray
    per_layer_inputs: np.ndarray | None
    answers: tuple[Answer, ...]

    def said(self, component: str) -> Said:
        """What a component of the reference made; {} where this question does not need it."""
        if component in ("vision_encoder", "audio_encoder"):
            features = self.features.get(component, ())
            port = "image_features" if component == "vision_encoder" else "audio_features"
            return {(port, label): x for label, x in zip(self.labels(component), features, strict=True)}
        if component == "embedding":
            made = {"inputs_embeds": self.inputs_embeds, "per_layer_inputs": self.per_layer_inputs}
            return dict(self.rows({port: x for port, x in made.items() if x is not None}))
        pairs = [
            (prompt.name, answer) for prompt, answer in zip(self.asked.prompts, self.answers, strict=True)
        ]
        return {("logits", name): a.logits for name, a in pairs} | {
            ("hidden_states", name): a.hidden for name, a in pairs
        }

    def labels(self, component: str) -> list[str]:
        """A name for each medium of an encoder."""
        count = len(self.features.get(component, ()))
        if component == "audio_encoder":
            return [f"{self.asked.name}: clip {n + 1}" for n in range(count)]
        kinds = ["image"] * self.asked.images + ["frame"] * (count - self.asked.images)
        return [f"{self.asked.name}: {kind} {n + 1}" for n, kind in enumerate(kinds)]

    def rows(
        self, arrays: Mapping[str, np.ndarray], mask: np.ndarray | None = None
    ) -> Iterator[tuple[tuple[str, str], np.ndarray]]:
        """Arrays [B, S, n] as [tokens, n] for each row, without its padding."""
        mask = self.asked.mask if mask is None else mask
        for port, array in arrays.items():
            for prompt, row, real in zip(self.asked.prompts, array, mask > 0, strict=True):
                yield (port, prompt.name), row[real]


@dataclass(frozen=True)
class FullRecording:
    """By arithmetic ("f32", "f16", "bf16"), what was passed for each question; `identity` says who did.

    differences: by weight that was replaced, how far it is from the checkpoint's.
    """

    identity: Mapping[str, Any]
    passed: Mapping[str, tuple[Passed, ...]]
    differences: Mapping[str, float] = field(default_factory=dict[str, float])

    @property
    def prompts(self) -> list[Prompt]:
        """Every row of every question, with the reference's ids."""
        return [prompt for passed in self.passed["f32"] for prompt in passed.asked.prompts]

    def answers(self, arithmetic: str) -> dict[str, Answer]:
        """The answers by row."""
        return {
            prompt.name: answer
            for passed in self.passed[arithmetic]
            for prompt, answer in zip(passed.asked.prompts, passed.answers, strict=True)
        }
