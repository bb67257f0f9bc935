"""Makes the tiny checkpoints of the family and records what transformers makes of them.

`python tests/record_family.py`, some minutes. Needs what `make parity` needs, and torchvision, which prepares images
and videos for the unified model. f32, one thread, everything seeded (build.json, outputs.json).
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import checkpoints
import family_checkpoints as family
from checkpoints import TINY
from family_training import trained

REF = TINY / "ref"
SEEDS = {"unified": 62, "e4b": 2, "31b": 32}  # the first, from 0 on, that keep a margin of 0.15 in every case
TRAINED = {
    "unified": 110,
    "e4b": 110,
    "31b": 40,
    "moe": 30,
}  # steps, so that some drafts are accepted and some are not
NEW, MARGIN, DISTINCT, STEPS = 16, 0.05, 9, 16
CASES = {
    "unified": ("text", "text_long", "image", "audio", "video"),
    "e4b": ("text", "text_long", "image", "audio", "video"),
    "31b": ("text", "text_long", "image"),
    "moe": ("text", "text_long", "image"),
}
ASKED = {"image": "Why?", "audio": "Transcribe.", "video": "Why?"}
USER, MODEL = "<bos><|turn>user\n", "<turn|>\n<|turn>model\n"
Inputs = dict[str, Any]  # of a model, by the names of transformers
Arrays = dict[str, np.ndarray]


def inputs(name: str, case: str, processor: Any) -> Inputs:
    """What a processor makes of a case: text and media are those that were recorded for the tiny target."""
    if not own(name, case):
        return dict(np.load(REF / f"inputs_{case}.npz"))
    media = np.load(REF / "media.npz")
    given: Inputs = {
        "image": {"images": [[media["image"]]]},
        "audio": {"audio": [media["wav"]]},
        "video": {"videos": [np.stack([media["image"], media["image"][::-1]])], "do_sample_frames": False},
    }[case]
    return dict(processor(text=[f"{USER}<|{case}|>{ASKED[case]}{MODEL}"], return_tensors="np", **given))


def own(name: str, case: str) -> bool:
    """Whether a case is not the tiny target's."""
    return case == "video" or (name == "unified" and case in ("image", "audio"))


def tensors(given: Inputs) -> Inputs:
    import torch

    return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in given.items()}


def loaded(name: str) -> Any:
    import torch
    import transformers

    raw = checkpoints.tiny_config(name)
    model, info = getattr(transformers, raw["architectures"][0]).from_pretrained(
        TINY / name, dtype=torch.float32, output_loading_info=True
    )
    assert not any(info.values()), info
    return model.eval()


@contextmanager
def mended() -> Iterator[None]:
    """The unified model of transformers 5.24 under the masks of Gemma 4: an image sees all of itself on sliding layers
    alone, within the window. The model was made for that (issue 46711 and pull request 46850 of transformers), and a
    static cache brings it about; without one, `forward` shows it all of itself on every layer.
    """
    from transformers.models.gemma4_unified import modeling_gemma4_unified as source

    plain = source.create_masks_for_generate

    def masks(block_sequence_ids: Any = None, **asked: Any) -> Any:
        if block_sequence_ids is None or (block_sequence_ids < 0).all():
            return plain(**asked)
        return source.create_masks_for_vision_model(block_sequence_ids=block_sequence_ids, **asked)

    source.create_masks_for_generate = masks
    try:
        yield
    finally:
        source.create_masks_for_generate = plain


def greedy(model: Any, given: Inputs, count: int = NEW) -> tuple[list[int], float]:
    """New tokens, and the least distance between the best logit and the second."""
    import torch

    with torch.no_grad():
        made = model.generate(
            **tensors(given), max_new_tokens=count, do_sample=False, eos_token_id=[],
            return_dict_in_generate=True, output_logits=True,
        )  # fmt: skip
    best = torch.stack(made.logits)[:, 0].topk(2).values
    return made.sequences[0, given["input_ids"].shape[1] :].tolist(), float((best[:, 0] - best[:, 1]).min())


def prefill(model: Any, case: str, given: Inputs) -> Arrays:
    """Logits, the input of every layer and the final state, what a drafter reads, and features of the medium."""
    import torch

    fed = tensors(given)
    with torch.no_grad():
        said = model(**fed, output_hidden_states=True, return_shared_kv_states=True)
        found = {"logits": said.logits}
        if case != "video":
            found |= {f"hidden_{i}": state for i, state in enumerate(said.hidden_states)}
            for kind, pair in said.shared_kv_states.items():
                found |= {f"shared_{kind}_{part}": x for part, x in zip(("key", "value"), pair, strict=True)}
        if case == "image":
            features = model.get_image_features(
                fed["pixel_values"], fed["image_position_ids"], return_dict=True
            )
            found |= {"vision_last": features.last_hidden_state}
            found |= {"image_features": torch.cat(tuple(features.pooler_output))}
        if case == "video":
            features = model.model.get_video_features(
                fed["pixel_values_videos"],
                fed["video_position_ids"],
                fed["num_frames_per_video"],
                return_dict=True,
            )
            found |= {"video_features": torch.cat(tuple(features.pooler_output)).flatten(0, -2)}
        if case == "audio":
            features = model.model.get_audio_features(
                fed["input_features"], fed["input_features_mask"], return_dict=True
            )
            found |= {"audio_features": features.pooler_output, "audio_mask": features.attention_mask}
            if "last_hidden_state" in features:  # of an encoder; the unified model has none
                found["audio_last"] = features.last_hidden_state
    return {name: value.numpy() for name, value in found.items()}


@contextmanager
def watched(drafter: Any, trace: list[dict[str, Any]], steps: list[Arrays]) -> Iterator[None]:
    """What a drafter is told and what it says while transformers generates with it: a row of each round, arrays of each
    step."""
    from transformers.generation import candidate_generator

    kind = candidate_generator.SinglePositionMultiTokenCandidateGenerator
    asked, forward = kind.get_candidates, drafter.forward

    def candidates(self: Any, ids: Any, **told: Any) -> Any:
        length, mask = ids.shape[1], told["model_kwargs"].get("attention_mask")
        row = {
            "len": length,
            "first": told["is_first_iteration"],
            "last_matches": int(told["n_last_matches"]),
        }
        row["mask"] = None if mask is None else mask.shape[1]
        if not row["first"]:
            outputs = told["model_outputs"]
            row["kv"] = {kind: list(key.shape) for kind, (key, _) in outputs.shared_kv_states.items()}
            row["hidden"] = list(outputs.hidden_states[-1].shape)
        found = asked(self, ids, **told)
        row["draft"] = found[0][0, length:].tolist()
        trace.append(row)
        return found

    def step(*args: Any, **fed: Any) -> Any:
        said = forward(*args, **fed)
        kept = {"inputs_embeds": fed["inputs_embeds"], "position_ids": fed["position_ids"]}
        if fed["attention_mask"] is not None:
            kept["attention_mask"] = fed["attention_mask"]
        kept |= {"logits": said.logits, "projected_state": said.last_hidden_state}
        for name, pair in fed["shared_kv_states"].items():
            kept |= {f"kv_{name}_{part}": x for part, x in zip(("key", "value"), pair, strict=True)}
        steps.append({"round": np.array(len(trace))} | {name: x.numpy() for name, x in kept.items()})
        return said

    kind.get_candidates, drafter.forward = candidates, step
    try:
        yield
    finally:
        kind.get_candidates, drafter.forward = asked, forward


def record_target(name: str, model: Any, given: dict[str, Inputs], said: dict[str, Any], decode: Any) -> None:
    for case, fed in given.items():
        tokens, margin = greedy(model, fed)
        print(f"{name}/{case}: margin {margin:.3f}, {tokens}", flush=True)
        assert margin > MARGIN and len(set(tokens)) >= DISTINCT, f"{name}/{case} is no good reference"
        prompt = fed["input_ids"][0].tolist()
        said[f"{name}/{case}"] = dict(prompt=prompt, tokens=tokens, min_margin=margin, text=decode(tokens))
        if own(name, case):
            np.savez_compressed(REF / f"inputs_{name}_{case}.npz", **fed)
        np.savez_compressed(REF / f"prefill_{name}_{case}.npz", **prefill(model, case, fed))


def record_assistant(name: str, model: Any, given: dict[str, Inputs], said: dict[str, Any]) -> None:
    """Rounds of every case, and the first two steps of the first rounds after short prompts."""
    import torch

    served, drafter, kept = family.DRAFTERS[name][0], loaded(name), []
    for case, fed in given.items():
        trace: list[dict[str, Any]] = []
        steps: list[Arrays] = []
        with watched(drafter, trace, steps), torch.no_grad():
            made = model.generate(
                **tensors(fed), max_new_tokens=NEW, eos_token_id=[], assistant_model=drafter, do_sample=False
            )
        equal = made[0, fed["input_ids"].shape[1] :].tolist() == said[f"{served}/{case}"]["tokens"]
        accepted = [row["last_matches"] for row in trace[2:]]
        print(f"{name}/{served}/{case}: equal {equal}, accepted {accepted}", flush=True)
        assert equal
        said[f"{name}/{served}/{case}"] = {"equal": equal, "trace": trace}
        rounds = [int(step.pop("round")) for step in steps]
        second = [step for i, step in enumerate(steps) if i < 2 or rounds[i] != rounds[i - 2]]
        kept += second[: STEPS // 2] if case in ("text", "text_long") else []
    arrays = {f"{i}.{key}": x for i, step in enumerate(kept) for key, x in step.items()}
    np.savez_compressed(REF / f"drafter_steps_{name}.npz", **arrays)


def record() -> None:
    import torch
    from transformers import AutoProcessor

    torch.set_num_threads(1)
    built, said = (json.loads((REF / f"{file}.json").read_bytes()) for file in ("build", "outputs"))
    for name, seed in SEEDS.items():
        family.written(family.target(name, seed), name, TINY / name)
        built[name] = {"seed": seed}
    for name, cases in CASES.items():
        model, processor = loaded(name), AutoProcessor.from_pretrained(TINY / name)
        given = {case: inputs(name, case, processor) for case in cases}
        if name in SEEDS:
            record_target(name, model, given, said, processor.tokenizer.decode)
            those = [said[f"{name}/{case}"] for case in cases]
            built[name]["min_margin"] = min(each["min_margin"] for each in those)
            built[name]["unique_tokens"] = len({token for each in those for token in each["tokens"]})
        for assistant, (served, _) in family.DRAFTERS.items():
            if served == name:
                said_long = {case: greedy(model, fed, NEW + 4)[0] for case, fed in given.items()}
                drafter = trained(
                    family.assistant(assistant, seed=1000), model, given, said_long, TRAINED[name]
                )
                family.written(drafter, assistant, TINY / assistant)
                record_assistant(assistant, model, given, said)
    for folder in sorted((TINY).glob("*/model.safetensors")):
        built.setdefault(folder.parent.name, {})["sha256"] = hashlib.sha256(folder.read_bytes()).hexdigest()
    (REF / "build.json").write_text(json.dumps(built, indent=1) + "\n")
    (REF / "outputs.json").write_text(json.dumps(said, indent=1))


if __name__ == "__main__":
    with mended():
        record()
