"""The reference of a full package: transformers' model with its encoders, and what passes between them."""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from cabochon.parity.dequantized import Dequantized
from cabochon.parity.full_processor import FullProcessor
from cabochon.parity.full_prompts import Asked
from cabochon.parity.passed import FullRecording, Passed, Prepared
from cabochon.parity.reference import DTYPES, WHOLE, Answer, _libraries, _load, _stored
from cabochon.parity.replaced import Standin
from cabochon.parity.routing import Heard, Routes
from cabochon.parity.routing import heard as routers_heard
from cabochon.parity.unified_masks import masked

__all__ = ["Reference", "prepare", "record_full"]


def record_full(
    source: Path,
    config: Mapping[str, Any],
    questions: Sequence[Asked],
    *,
    precision: str,
    arithmetics: Sequence[str],
    folder: Path,
    new_tokens: int,
    progress: Callable[[str], None] = lambda _: None,
    weights: Dequantized = WHOLE,
) -> FullRecording:
    """Loads `source` in `precision` and answers every question in each of `arithmetics`; see `record`.

    Raises ParityError as `record` does, and where transformers has no processor for this checkpoint.
    """
    torch, transformers = _libraries()
    prepared = prepare(source, config, questions)
    model, identity = _load(torch, transformers, source, config, precision)
    passed: dict[str, tuple[Passed, ...]] = {}
    standin = Standin(torch, model, weights)
    with masked(model) as masks:
        for name in arithmetics:
            with standin.computing(name), torch.inference_mode():
                count = 0 if name.startswith("bf16") else new_tokens
                reference = Reference(torch, model, config, folder / name, count)
                passed[name] = tuple(_told(reference, one, name, progress) for one in prepared)
    identity |= {"arithmetic_dtypes": [DTYPES[name] for name in arithmetics], **standin.described(), **masks}
    return FullRecording(identity, passed, standin.differences)


def prepare(source: Path, config: Mapping[str, Any], questions: Sequence[Asked]) -> list[Prepared]:
    """What the processor of `source` makes of questions. Raises ParityError as `record_full` does."""
    _, transformers = _libraries()
    text = config.get("text_config", config)
    processor = FullProcessor(
        transformers,
        source,
        text.get("bos_token_id"),
        bool(config.get("audio_config")),
        config.get("model_type") == "gemma4_unified",
    )
    return [processor(asked) for asked in questions]


def _told(reference: "Reference", one: Prepared, name: str, progress: Callable[[str], None]) -> Passed:
    progress(f"transformers {name}: {one.name}")
    return reference(one)


class Reference:
    """A model in one arithmetic; what it says is kept in files of a folder."""

    def __init__(
        self, torch: Any, model: Any, config: Mapping[str, Any], place: Path, new_tokens: int
    ) -> None:
        self._torch, self._model, self._place, self._new_tokens = torch, model, place, new_tokens
        place.mkdir(parents=True, exist_ok=True)
        ids = (config.get(f"{kind}_token_id") for kind in ("image", "video", "audio"))
        self._kinds = {token: n for n, token in enumerate(ids, 1) if token is not None}

    def __call__(self, asked: Prepared) -> Passed:
        """One forward pass, with everything that passes between the components, and greedy tokens."""
        given = self.given(asked)
        stem = re.sub(r"\W+", "_", asked.name)

        def stored(x: Any, name: str) -> np.ndarray:
            return _stored(x, self._place / f"{stem}.{name}.npy")

        with self._overheard() as heard, routers_heard(self._model) as routers:
            out = self._model(**given, output_hidden_states=True, use_cache=False)
        extras = heard.get("per_layer_inputs")
        features = {
            encoder: tuple(stored(x, f"{encoder}.{n}") for n, x in enumerate(rows))
            for encoder, rows in self._features(asked, given).items()
        }
        answers = self._answers(asked, given, out, stored, routers)
        return Passed(
            asked,
            features,
            stored(heard["inputs_embeds"], "inputs_embeds"),
            None if extras is None else stored(extras.flatten(2), "per_layer_inputs"),
            answers,
        )

    def given(self, asked: Prepared) -> dict[str, Any]:
        """What the model takes, in its words."""
        tensor = self._torch.tensor
        kinds = np.vectorize(lambda token: self._kinds.get(token, 0), otypes=[np.int64])(asked.ids)
        given = {
            "input_ids": tensor(asked.ids),
            "attention_mask": tensor(asked.mask),
            "mm_token_type_ids": tensor(kinds),
        }
        media = {port: tensor(array) for port, array in asked.media.items()}
        if "input_features" in media:
            given |= {port: media[port] for port in ("input_features", "input_features_mask")}
        if "pixel_values" in media:
            pixels, places, n = media["pixel_values"], media["pixel_position_ids"], asked.images
            if n:
                given |= {"pixel_values": pixels[:n], "image_position_ids": places[:n]}
            if frames := len(pixels) - n:
                given |= {
                    "pixel_values_videos": pixels[n:],
                    "video_position_ids": places[n:],
                    "num_frames_per_video": tensor([frames]),
                }
        return given

    @contextmanager
    def _overheard(self) -> Any:
        """What the decoder is fed, and what it makes of its per-layer inputs before its first layer."""
        decoder, heard = self._model.model.language_model, {}

        def fed(_: Any, __: Any, given: Mapping[str, Any]) -> None:
            heard["inputs_embeds"] = given["inputs_embeds"]

        projected = getattr(decoder, "project_per_layer_inputs", None)

        def projecting(*given: Any, **more: Any) -> Any:
            assert projected is not None
            heard["per_layer_inputs"] = projected(*given, **more)
            return heard["per_layer_inputs"]

        if projected is not None:  # the unified model has no such thing
            decoder.project_per_layer_inputs = projecting
        hook = decoder.register_forward_pre_hook(fed, with_kwargs=True)
        try:
            yield heard
        finally:
            hook.remove()
            if projected is not None:
                del decoder.project_per_layer_inputs

    def _features(self, asked: Prepared, given: Mapping[str, Any]) -> dict[str, list[Any]]:
        """What each encoder makes of each image, frame or clip, asked for by itself."""
        inner, made = self._model.model, {}
        if "pixel_values" in asked.media:
            pixels, places = (
                self._torch.tensor(asked.media[key]) for key in ("pixel_values", "pixel_position_ids")
            )
            made["vision_encoder"] = list(
                inner.get_image_features(pixels, places, return_dict=True).pooler_output
            )
        if "input_features" in given:
            out = inner.get_audio_features(
                given["input_features"], given["input_features_mask"], return_dict=True
            )
            made["audio_encoder"] = [
                rows[real] for rows, real in zip(out.pooler_output, out.attention_mask, strict=True)
            ]
        return made

    def _answers(
        self,
        asked: Prepared,
        given: Mapping[str, Any],
        out: Any,
        stored: Callable[[Any, str], np.ndarray],
        routers: Heard,
    ) -> tuple[Answer, ...]:
        generates = self._new_tokens if all(prompt.generates for prompt in asked.prompts) else 0
        tokens, margins = self._greedy(given, generates) if generates else (((),) * len(asked.ids),) * 2
        real = given["attention_mask"] > 0
        routes = routers.rows(self._torch, len(asked.ids))
        return tuple(
            Answer(
                stored(out.logits[row][real[row]], f"{row}.logits"),
                stored(out.hidden_states[-1][row][real[row]], f"{row}.hidden"),
                tuple(tokens[row]),
                tuple(margins[row]),
                None
                if routes[row] is None
                else Routes(stored(routes[row][real[row]], f"{row}.routes"), routers.taken),
            )
            for row in range(len(asked.ids))
        )

    def _greedy(self, given: Mapping[str, Any], n: int) -> tuple[list[list[int]], list[list[float]]]:
        """Greedy tokens of each row, never stopped by an end token, and the top-2 margin of each step."""
        out = self._model.generate(
            **given, max_new_tokens=n, do_sample=False, eos_token_id=[], return_dict_in_generate=True,
            output_scores=True, output_hidden_states=True,
        )  # fmt: skip
        top = [self._torch.topk(score.float(), 2).values for score in out.scores]
        margins = self._torch.stack([two[:, 0] - two[:, 1] for two in top], 1)
        return out.sequences[:, -n:].tolist(), margins.tolist()
