"""The reference: transformers in PyTorch. Only this module, `assisted`, `full_reference`, `full_processor` and
`unified_processor` know them.

Quirks of transformers 5.24 met here: a model with KV-shared layers and no per-layer inputs fails for more
than one query unless hidden states are asked for, so they always are; broken checkpoints load with random
tensors, so loading_info must be clean.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cabochon.errors import ParityError
from cabochon.parity.dequantized import Dequantized
from cabochon.parity.prompts import Prompt
from cabochon.parity.replaced import INT8, Standin
from cabochon.parity.routing import Heard, Routes, heard

__all__ = ["DTYPES", "WHOLE", "Answer", "Recording", "as_text", "record"]

CLASSES = {
    "gemma4_text": "Gemma4ForCausalLM",
    "gemma4": "Gemma4ForConditionalGeneration",
    "gemma4_unified_text": "Gemma4UnifiedForCausalLM",
    "gemma4_unified": "Gemma4UnifiedForConditionalGeneration",
}
FLOATS = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
ROUNDED = ", and what is multiplied with weights in blocks rounded to int8 block by block"
DTYPES = FLOATS | {f"{name}{INT8}": f"{dtype}{ROUNDED}" for name, dtype in FLOATS.items()}
"""What each arithmetic is called where it is reported."""
WHOLE = Dequantized()
UNUSED = re.compile(r"layers\.(\d+)\.self_attn\.(k_proj|v_proj|k_norm)\.weight$")


@dataclass(frozen=True)
class Answer:
    """What the reference says to one prompt of S tokens, as f32 arrays that lie in files.

    logits [S, V] and hidden [S, H] (after the final norm); tokens and margins: greedy generation and the
    distance of the two largest logits at each of its steps, empty where the prompt does not generate.
    routes: of a model with experts.
    """

    logits: np.ndarray
    hidden: np.ndarray
    tokens: tuple[int, ...]
    margins: tuple[float, ...]
    routes: Routes | None = None


@dataclass(frozen=True)
class Recording:
    """Answers by arithmetic ("f32", "f16", "f32+int8" ...) and prompt name; `identity` says who gave them.

    differences: by weight that was replaced, how far it is from the checkpoint's.
    """

    identity: Mapping[str, Any]
    answers: Mapping[str, Mapping[str, Answer]]
    differences: Mapping[str, float] = field(default_factory=dict[str, float])


def record(
    source: Path,
    config: Mapping[str, Any],
    prompts: Sequence[Prompt],
    *,
    precision: str,
    arithmetics: Sequence[str],
    folder: Path,
    new_tokens: int,
    progress: Callable[[str], None] = lambda _: None,
    weights: Dequantized = WHOLE,
) -> Recording:
    """Loads `source` in `precision` and answers every prompt in each of `arithmetics`.

    Those are `precision` itself, with the rounding of kernels where there is any, and "f32", last, on the same
    (rounded) weights. In bf16 no tokens are generated: nothing is held to them. `weights` stand in the place of the
    checkpoint's.
    Arrays are written below `folder`, so that no model is in memory when packages are compared with them.
    Raises ParityError where torch or transformers is missing, the kind of model is unknown, or loading was
    not clean.
    """
    torch, transformers = _libraries()
    model, identity = _load(torch, transformers, source, config, precision)
    as_text(torch, model)
    standin = Standin(torch, model, weights)
    answers: dict[str, dict[str, Answer]] = {}
    for name in arithmetics:
        place = folder / name
        place.mkdir(parents=True)
        answers[name] = {}
        with standin.computing(name), torch.inference_mode():
            for prompt in prompts:
                progress(f"transformers {name}: {prompt.name}")
                answers[name][prompt.name] = _answer(
                    torch,
                    model,
                    prompt,
                    place,
                    0 if name.startswith("bf16") or not prompt.generates else new_tokens,
                )
    identity |= {"arithmetic_dtypes": [DTYPES[name] for name in arithmetics], **standin.described()}
    return Recording(identity, answers, standin.differences)


def _libraries() -> tuple[Any, Any]:
    try:
        import torch
        import transformers
    except ImportError as error:
        raise ParityError(
            f"the reference needs torch and transformers; {error.name} is not installed",
            remedy='pip install "cabochon[parity]", or compare with published answers: --known',
        ) from error
    transformers.utils.logging.disable_progress_bar()
    return torch, transformers


def _load(
    torch: Any,
    transformers: Any,
    source: Path,
    config: Mapping[str, Any],
    precision: str,
    classes: Mapping[str, str] = CLASSES,
) -> tuple[Any, dict[str, Any]]:
    kind: Any = config.get("model_type")
    if kind not in classes:
        raise ParityError(
            f"no reference class for model_type {kind!r}; known: {', '.join(classes)}",
            at=f"{source}/config.json",
        )
    dtype = getattr(torch, DTYPES[precision])
    model, info = getattr(transformers, classes[kind]).from_pretrained(
        source, dtype=dtype, output_loading_info=True, local_files_only=True
    )
    model.generation_config = transformers.GenerationConfig(
        pad_token_id=0
    )  # no penalties of the checkpoint's
    identity = {
        "library": f"transformers {transformers.__version__}, torch {torch.__version__}, cpu",
        "class": classes[kind],
        "weights_dtype": DTYPES[precision],
        "loading_info": clean(info, config, at=str(source)),
    }
    return model.eval(), identity


def as_text(torch: Any, model: Any) -> None:
    """Lets a model with encoders embed every id as the text model does, and as packages of text do.

    As it is it takes the row of the pad token for a placeholder of a medium, also for one that it generated.
    """
    if hasattr(model.model, "get_placeholder_mask"):

        def none(ids: Any, embeds: Any = None) -> Any:
            nowhere = torch.zeros((ids if ids is not None else embeds).shape[:2], dtype=torch.bool)
            return nowhere, nowhere, nowhere

        model.model.get_placeholder_mask = none


def clean(info: Mapping[str, Any], config: Mapping[str, Any], *, at: str) -> dict[str, list[str]]:
    """The loading info, if nothing is missing, mismatched or unexpected but the unused K/V of borrowers.

    Raises ParityError otherwise: transformers fills what is missing with random numbers.
    """
    text = config.get("text_config", config)
    first_shared = text["num_hidden_layers"] - (text.get("num_kv_shared_layers") or 0)
    found = {key: sorted(str(x) for x in info.get(key) or ()) for key in
             ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs")}  # fmt: skip
    wrong = {key: [name for name in names if not (key == "unexpected_keys" and _unused(name, first_shared))]
             for key, names in found.items()}  # fmt: skip
    if any(wrong.values()):
        said = "; ".join(
            f"{key}: {', '.join(names[:4])} ({len(names)} in all)" for key, names in wrong.items() if names
        )
        raise ParityError(
            f"transformers did not load this checkpoint cleanly, so it is no reference: {said}",
            at=at,
            remedy="compare with a checkpoint whose tensor names transformers knows",
        )
    return found


def _unused(name: str, first_shared: int) -> bool:
    match = UNUSED.search(name)
    return bool(match and int(match[1]) >= first_shared)


def _answer(torch: Any, model: Any, prompt: Prompt, place: Path, new_tokens: int) -> Answer:
    ids = torch.tensor([prompt.ids])
    with heard(model) as routers:
        out = model(
            input_ids=ids, attention_mask=torch.ones_like(ids), output_hidden_states=True, use_cache=False
        )
    tokens, margins = _greedy(torch, model, ids, new_tokens) if new_tokens else ((), ())
    stem = re.sub(r"\W+", "_", prompt.name)
    return Answer(
        _stored(out.logits[0], place / f"{stem}.logits.npy"),
        _stored(out.hidden_states[-1][0], place / f"{stem}.hidden.npy"),
        tokens,
        margins,
        _routes(routers, routers.rows(torch, 1)[0], place / f"{stem}.routes.npy"),
    )


def _routes(routers: Heard, said: Any, path: Path) -> Routes | None:
    return None if said is None else Routes(_stored(said, path), routers.taken)


def _stored(x: Any, path: Path) -> np.ndarray:
    np.save(path, x.float().numpy())
    return np.load(path, mmap_mode="r")


def _greedy(torch: Any, model: Any, ids: Any, new_tokens: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Greedy tokens, never stopped by an end token, and the top-2 margin of each step."""
    out = model.generate(
        input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=new_tokens, do_sample=False,
        eos_token_id=[], return_dict_in_generate=True, output_scores=True, output_hidden_states=True,
    )  # fmt: skip
    top = [torch.topk(score[0].float(), 2).values for score in out.scores]
    return tuple(out.sequences[0, ids.shape[1] :].tolist()), tuple(float(a - b) for a, b in top)
