"""The comparisons of each component: what it makes against recorded values and the NumPy oracle."""

from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path

import numpy as np

from checkpoints import TINY
from full_graphs import REF, TARGET, Components, Truth, big, padded, picture
from graphs import difference
from mutations.models import last_layers, loud

__all__ = ["Comparisons"]

MOE, UNIFIED = TINY / "moe", TINY / "unified"
Given = tuple[np.ndarray | None, np.ndarray | None]  # features of images and of sound
Found = Iterator[tuple[str, float]]


class Comparisons:
    """`of(component)` gives its comparisons by name, and the largest difference of each to the largest value."""

    def __init__(self, folder: Path, target: str) -> None:
        """`folder`: an empty one, for checkpoints."""
        self.target = target
        self.tiny, self.big, self.loud = TARGET, big(folder / "big", 24), loud(folder / "loud")
        self.mixture = last_layers(folder / "mixture", "moe", 2)
        self.damped = last_layers(folder / "damped", "moe", 1, rms_norm_eps=0.5)

    def of(self, component: str) -> Found:
        compare: dict[str, Callable[[], Found]] = {
            "vision_encoder": self._vision,
            "audio_encoder": self._audio,
            "embedding": self._embedding,
            "decoder": self._decoder,
            "experts": self._experts,
            "vision_embedder": self._vision_embedder,
            "audio_embedder": self._audio_embedder,
        }
        return compare[component]()

    def _traced(self, folder: Path) -> Components:
        """Traced as the formulas stand at this moment."""
        return Components(folder, self.target)

    @cached_property
    def truths(self) -> dict[Path, Truth]:
        return {folder: Truth(folder) for folder in (self.tiny, self.big, self.loud, self.damped, UNIFIED)}

    def _vision(self) -> Found:
        model, fed = self._traced(self.tiny), np.load(REF / "inputs_image.npz")
        made = np.load(REF / "prefill_target_image.npz")["image_features"]
        yield "a recorded image", _far(model.images(fed["pixel_values"], fed["image_position_ids"]), made)
        two = np.load(REF / "two_images.npz")
        yield (
            "two recorded images",
            _far(model.images(two["pixel_values"], two["image_position_ids"]), two["features"]),
        )
        made = np.load(REF / "prefill_moe_image.npz")["image_features"]
        found = self._traced(MOE).images(fed["pixel_values"], fed["image_position_ids"])
        yield "a recorded image, standardized", _far(found, made)
        truth = self.truths[self.big]
        images = padded([picture(truth, 12, 6), picture(truth, 3, 21)], 90)
        yield (
            "standardized",
            _far(self._traced(self.big).images(*images), truth.images(*images)),
        )

    def _audio(self) -> Found:
        fed, made = np.load(REF / "inputs_audio.npz"), np.load(REF / "prefill_target_audio.npz")
        found = self._traced(self.tiny).clips(fed["input_features"], fed["input_features_mask"])
        yield "a recorded clip", _far(found, made["audio_features"][made["audio_mask"]])
        clips = np.random.default_rng(0).normal(-2, 2, (2, 60, 16)).astype(np.float32)
        mask = np.arange(60) < [[60], [37]]
        found = self._traced(self.loud).clips(clips, mask)
        yield "loud clips, padded", _far(found, self.truths[self.loud].clips(clips, mask))

    def _embedding(self) -> Found:
        model, truth = self._traced(self.tiny), self.truths[self.tiny]
        for name, kind in (("image", "a recorded image"), ("audio", "a recorded clip")):
            made = np.load(REF / f"prefill_target_{name}.npz")
            features = (
                made["image_features"] if name == "image" else made["audio_features"][made["audio_mask"]]
            )
            given = (features, None) if name == "image" else (None, features)
            yield (
                kind,
                self._embedded(model, truth, np.load(REF / f"inputs_{name}.npz")["input_ids"], [given]),
            )
        rng = np.random.default_rng(1)
        images, sounds = rng.standard_normal((7, 64), np.float32), rng.standard_normal((3, 64), np.float32)
        rows = np.array([[2, 8, 8, 11, 9, 8, 40], [2, 50, 8, 13, 13, 8, 11], [11, 60, 61, 62, 63, 64, 65]])
        each = [(images[:3], sounds[:1]), (images[3:], sounds[1:2]), (None, sounds[2:])]
        yield "a batch", self._embedded(model, truth, rows, each)

    def _embedded(self, model: Components, truth: Truth, rows: np.ndarray, each: list[Given]) -> float:
        whole = [np.concatenate([r for r in given if r is not None] or [np.zeros((0, 64), np.float32)])
                 for given in zip(*each, strict=True)]  # fmt: skip
        found, apart = (
            model.embed(rows, *whole),
            [truth.embed(ids, *given) for ids, given in zip(rows, each, strict=True)],
        )
        x, extras = (np.stack(part) for part in zip(*apart, strict=True))
        return max(
            _far(found["inputs_embeds"], x), _far(found["per_layer_inputs"], extras.reshape(*rows.shape, -1))
        )

    def _decoder(self) -> Found:
        model, truth = self._traced(self.big), self.truths[self.big]
        rows = truth.images(
            *padded([picture(truth, 12, 9), picture(truth, 3, 21), picture(truth, 9, 9)], 108)
        )
        ids = np.array([2, 5, 7, *[8] * 12, 9, 40, 7, *[8] * 7, 9, 50, *[13] * 9, 60, 61, 62])
        found = model.decode(ids, {"inputs_embeds": truth.embed(ids, rows)[0][None]})["logits"][0]
        yield "images longer than the window", _far(found, truth.logits(ids, rows))
        yield from self._layers(self._traced(self.mixture), "image")

    def _experts(self) -> Found:
        yield from self._layers(self._traced(self.mixture), "text", "text_long", "image")
        truth, ids = self.truths[self.damped], np.load(REF / "inputs_text_long.npz")["input_ids"][0]
        found = self._traced(self.damped).decode(ids, {"inputs_embeds": truth.embed(ids)[0][None]})["logits"]
        yield "an epsilon that keeps the size of what is normed", _far(found[0], truth.logits(ids))

    def _layers(self, model: Components, *names: str) -> Found:
        """The last layers of the tiny mixture, given what the recorded ones before them made."""
        for name in names:
            ids, made = (
                np.load(REF / f"inputs_{name}.npz")["input_ids"],
                np.load(REF / f"prefill_moe_{name}.npz"),
            )
            found = model.decode(ids, {"inputs_embeds": made["hidden_4"]})["logits"]
            yield f"a mixture's recorded {name.replace('_', ' ')}", _far(found, made["logits"])

    def _vision_embedder(self) -> Found:
        model, truth = self._traced(UNIFIED), self.truths[UNIFIED]
        for kind, ports in (
            ("image", ("pixel_values", "image_position_ids")),
            ("video", ("pixel_values_videos", "video_position_ids")),
        ):
            fed, made = (np.load(REF / f"{what}_unified_{kind}.npz") for what in ("inputs", "prefill"))
            yield f"a recorded {kind}", _far(model.images(*(fed[p] for p in ports)), made[f"{kind}_features"])
        pixels, places = padded([picture(truth, 5, 2), picture(truth, 3, 4)], 14)
        pixels, places = 0.01 * pixels[:, ::-1], places[:, ::-1].copy()
        places[0, 0] = 3, -1
        yield "dark images, padded", _far(model.images(pixels, places), truth.images(pixels, places))

    def _audio_embedder(self) -> Found:
        model, truth = self._traced(UNIFIED), self.truths[UNIFIED]
        fed, made = (np.load(REF / f"{what}_unified_audio.npz") for what in ("inputs", "prefill"))
        found = model.clips(fed["input_features"], fed["input_features_mask"])
        yield "a recorded clip", _far(found, made["audio_features"][made["audio_mask"]])
        clips = np.random.default_rng(2).normal(5e-4, 1e-3, (2, 9, 640)).astype(np.float32)
        mask = np.arange(9) < [[6], [9]]
        yield "quiet clips, padded", _far(model.clips(clips, mask), truth.clips(clips, mask))


def _far(found: np.ndarray, expected: np.ndarray) -> float:
    """Infinite where it is no number, or of another shape."""
    if found.shape != expected.shape or not np.isfinite(found).all():
        return float("inf")
    return difference(found, expected)
