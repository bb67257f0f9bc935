"""The components of a full package, each by itself: driven through its ports with what the reference passed.

Legend: B rows · S columns · V vocabulary.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cabochon.errors import ParityError
from cabochon.parity.levels import STRICT, firmly, twice
from cabochon.parity.measures import Difference, Threshold, apart
from cabochon.parity.passed import COMPONENTS, Passed, Said
from cabochon.parity.subject import NUMPY, Subject

__all__ = ["Component", "Match", "component_file", "limits", "present", "rounded", "strict"]

ENCODERS = {
    "vision_encoder": ("image_features", ("pixel_values", "pixel_position_ids")),
    "audio_encoder": ("audio_features", ("input_features", "input_features_mask")),
}
"""The output and the inputs of each encoder."""
PORTS = {
    **{name: (port,) for name, (port, _) in ENCODERS.items()},
    "embedding": ("inputs_embeds", "per_layer_inputs"),
    "decoder": ("logits", "hidden_states"),
}
UNITS = {"f16": 2.0**-11, "bf16": 2.0**-8}
"""Half the distance of 1 from the next number: what one rounding does at most, relatively."""
ROUNDED = (("audio_encoder", "audio_features"), ("embedding", "per_layer_inputs"))
"""Outputs that depend on constants which the graph holds in the package's type, and the reference in its own."""
Limits = Mapping[tuple[str, str], Threshold]
"""By component and port."""


@dataclass(frozen=True)
class Match:
    """What one port of a component said of one row or medium, beside the reference."""

    port: str
    label: str
    found: Difference


def component_file(package: Path, name: str) -> Path:
    """Where the graph of a component lies."""
    return package / name / "model.onnx"


def present(package: Path) -> list[str]:
    """The components that a package has."""
    return [name for name in COMPONENTS if component_file(package, name).is_file()]


def strict(package: Path, precision: str) -> dict[tuple[str, str], Threshold]:
    """The limits of f32 arithmetic, for every component of a package of `precision` or its twin."""
    limits = {(name, port): STRICT for name in present(package) for port in PORTS[name]}
    return limits | {key: rounded(precision) for key in ROUNDED if key in limits}


def rounded(precision: str) -> Threshold:
    """The limit of f32 arithmetic where a package of halves has constants that the reference has exactly."""
    if precision not in UNITS:
        return STRICT
    unit = UNITS[precision]
    return Threshold(
        relative=unit,
        cosine=min(STRICT.cosine, float(np.cos(unit))),
        chosen=f"f32 against f32, but with the package's constants, rounded to {precision} as the reference's are not: "
        f"within one rounding of that type, {unit:.3g} relative and rad",
    )


def limits(
    own: Sequence[Passed], exact: Sequence[Passed], arithmetic: str = "f16"
) -> dict[tuple[str, str], Threshold]:
    """Twice what the reference's own rounding moves each port by, that of the components before it included."""
    found: dict[tuple[str, str], list[Difference]] = {}
    for ours, theirs in zip(own, exact, strict=True):
        for name in COMPONENTS:
            said = theirs.said(name)
            counts = _counts(ours, theirs) if name == "decoder" else {}
            for (port, label), array in ours.said(name).items():
                n = counts.get(label, len(array))
                if n:
                    found.setdefault((name, port), []).append(apart(array[:n], said[port, label][:n]))
    return {key: twice(noise, arithmetic) for key, noise in found.items()}


def _counts(own: Passed, exact: Passed) -> dict[str, int]:
    """By row, how many positions have the same experts in both."""
    rows = zip(own.asked.prompts, own.answers, exact.answers, strict=True)
    return {prompt.name: firmly(a, b) for prompt, a, b in rows}


class Component:
    """A graph in a session."""

    def __init__(self, name: str, subject: Subject) -> None:
        """`subject`: its graph."""
        self.name, self._subject = name, subject
        self._inputs = {port.name: port for port in subject.session.get_inputs()}

    @classmethod
    def open(cls, package: Path, name: str, *, threads: int | None = None) -> "Component":
        """Raises ParityError where onnxruntime refuses it."""
        return cls(name, Subject.open(component_file(package, name), threads=threads))

    def matches(self, passed: Passed) -> Iterator[Match]:
        """Everything it says to what the reference passed it, beside what the reference said."""
        expected = passed.said(self.name)
        if expected:
            heard = self.said(passed)
            for (port, label), array in expected.items():
                yield Match(port, label, apart(heard[port, label], array))

    def said(self, passed: Passed) -> Said:
        """What it says, in the form of `Passed.said`."""
        made = self.run(self.feeds(passed))
        if self.name in ENCODERS:
            port, _ = ENCODERS[self.name]
            ends = np.cumsum([len(x) for x in passed.features[self.name]])[:-1]
            rows = np.split(made[port], ends)
            return {(port, label): x for label, x in zip(passed.labels(self.name), rows, strict=True)}
        if self.name == "embedding":
            return dict(passed.rows(made))
        (hidden,) = (port for port in made if port.startswith("hidden_states."))
        told = {"logits": made["logits"], "hidden_states": made[hidden]}
        return dict(passed.rows(told, self._arranged(passed.asked.mask, passed.asked.mask)))

    def feeds(self, passed: Passed) -> dict[str, np.ndarray]:
        """What it is fed: what the component of the reference was."""
        given = getattr(self, f"_{self.name}")(passed)
        return {name: array for name, array in given.items() if name in self._inputs}

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """One run. Raises ParityError where onnxruntime gives up."""
        typed = {name: np.asarray(x, _type(self._inputs[name].type)) for name, x in feeds.items()}
        names = [port.name for port in self._subject.session.get_outputs()]
        try:
            return dict(zip(names, self._subject.session.run(names, typed), strict=True))
        except Exception as error:  # onnxruntime's exceptions share no base class but Exception
            raise ParityError(f"onnxruntime gives up: {error}", at=f"{self.name}/model.onnx") from error

    def _vision_encoder(self, passed: Passed) -> dict[str, np.ndarray]:
        return {port: passed.asked.media[port] for port in ENCODERS["vision_encoder"][1]}

    def _audio_encoder(self, passed: Passed) -> dict[str, np.ndarray]:
        return {port: passed.asked.media[port] for port in ENCODERS["audio_encoder"][1]}

    def _embedding(self, passed: Passed) -> dict[str, np.ndarray]:
        """Images and frames in the order in which their places come."""
        width = passed.inputs_embeds.shape[2]
        nothing = np.zeros((0, width), np.float32)
        metadata = self._subject.metadata
        image, video = (metadata.get(f"cabochon.{kind}_token_id") for kind in ("image", "video"))
        ids = passed.asked.ids
        there = [str(token) for token in ids[np.isin(ids, [int(t) for t in (image, video) if t])].tolist()]
        vision = passed.features.get("vision_encoder", ())
        left = {
            image: iter(np.concatenate([nothing, *vision[: passed.asked.images]])),
            video: iter(np.concatenate([nothing, *vision[passed.asked.images :]])),
        }
        return {
            "input_ids": ids,
            "image_features": np.array([next(left[token]) for token in there]).reshape(-1, width),
            "audio_features": np.concatenate([nothing, *passed.features.get("audio_encoder", ())]),
        }

    def _decoder(self, passed: Passed) -> dict[str, np.ndarray]:
        mask = passed.asked.mask
        arrays = {"input_ids": passed.asked.ids, "inputs_embeds": passed.inputs_embeds}
        if passed.per_layer_inputs is not None:
            arrays["per_layer_inputs"] = passed.per_layer_inputs
        caches = {
            name: np.zeros((len(mask), port.shape[1], 0, port.shape[3]))
            for name, port in self._inputs.items()
            if name.startswith("past_key_values.")
        }
        arranged = {name: self._arranged(array, mask) for name, array in arrays.items()}
        return {**arranged, "attention_mask": self._arranged(mask, mask), **caches}

    def _arranged(self, array: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Rows with their padding behind, where the graph wants real tokens first; else as they are."""
        if self._subject.metadata.get("cabochon.mask") != "left-justified":
            return array
        order = np.argsort(mask == 0, axis=1, kind="stable")
        return np.take_along_axis(array, order.reshape(*order.shape, *[1] * (array.ndim - 2)), axis=1)


def _type(port: str) -> type[Any]:
    return NUMPY.get(port) or {"tensor(int64)": np.int64, "tensor(bool)": np.bool_}[port]
