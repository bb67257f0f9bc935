"""Records what transformers makes of prompts with several media: `python tests/record_full.py`, some seconds.

Writes tests/data/tiny/ref/full.json (prompts and greedy tokens) and full.npz (media, and the logits of the last
positions). Needs what `make parity` needs. Everything is seeded; checkpoints are the tiny target, and "big", which
full_graphs.big writes with seed 24. f32, one thread.
"""

import hashlib
import json
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from full_graphs import REF, TARGET, big
from packages import BIG_SEED

NEW, KEPT, MARGIN = 16, 8, 0.05
USER, MODEL = "<bos><|turn>user\n", "<turn|>\n<|turn>model\n"


def picture(seed: int, height: int, width: int) -> np.ndarray:
    """u8 [height, width, 3]"""
    return np.random.default_rng([seed, height, width]).integers(0, 256, (height, width, 3), np.uint8)


def wave(seed: int, samples: int) -> np.ndarray:
    """f32 [samples], a tone in noise."""
    rng = np.random.default_rng([seed, samples])
    tone = np.sin(np.arange(samples) * rng.uniform(0.05, 0.6))
    return (0.3 * tone + 0.1 * rng.standard_normal(samples)).astype(np.float32)


# name -> checkpoint, prompt, sizes of its images, samples of its clips, sizes of the frames of its video
PROMPTS: dict[str, tuple[str, str, list[tuple[int, int]], list[int], list[tuple[int, int]]]] = {
    "two images": ("target", "<|image|> and <|image|> What is in both?", [(20, 90), (64, 30)], [], []),
    "image and audio": ("target", "<|image|> Describe. <|audio|> Transcribe.", [(30, 50)], [9000], []),
    "audio and image": ("target", "<|audio|> Why <|image|> is it?", [(90, 20)], [5000], []),
    "two clips": ("target", "<|audio|> then <|audio|> the speech", [], [16000, 3100], []),
    "one image": ("target", "<|image|> What is in the image?", [(24, 120)], [], []),
    "no image": ("target", "Why? Because it is faster!", [], [], []),
    "video": ("target", "<|video|> What is in the image?", [], [], [(30, 50)] * 4),
    "big, text": ("big", "the quick brown fox jumps over the lazy dog", [], [], []),
    "big, image": ("big", "<|image|> What is in the image?", [(30, 50)], [], []),
    "big, two images": ("big", "<|image|> and <|image|> in detail", [(20, 90), (64, 30)], [], []),
    "big, video": ("big", "<|video|> in detail", [], [], [(64, 30)] * 3),
}


def loaded(folder: Path) -> Any:
    import torch
    from transformers import Gemma4ForConditionalGeneration

    model, info = Gemma4ForConditionalGeneration.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True
    )
    assert not info["missing_keys"] and not info["mismatched_keys"], info
    return model.eval()


def greedy(model: Any, inputs: dict[str, Any]) -> tuple[list[int], float, np.ndarray]:
    """New tokens, the least distance between the best logit and the second, and the logits of the last positions."""
    import torch

    with torch.no_grad():
        # with hidden states: a quirk of transformers 5.24 without per-layer inputs (a TypeError otherwise)
        logits = model(**inputs, output_hidden_states=True).logits[0].numpy()
        made = model.generate(
            **inputs, max_new_tokens=NEW, do_sample=False, eos_token_id=[],
            return_dict_in_generate=True, output_logits=True, output_hidden_states=True,
        )  # fmt: skip
    best = torch.stack(made.logits)[:, 0].topk(2).values
    tokens = made.sequences[0, inputs["input_ids"].shape[1] :].tolist()
    return tokens, float((best[:, 0] - best[:, 1]).min()), logits[-KEPT:]


def record() -> None:
    import torch

    torch.set_num_threads(1)
    arrays: dict[str, np.ndarray] = {}
    said: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        source = big(Path(folder), BIG_SEED)
        said["big"] = {"sha256": hashlib.sha256((source / "model.safetensors").read_bytes()).hexdigest()}
        models = {"target": loaded(TARGET), "big": loaded(source)}
        for name, (checkpoint, text, images, clips, frames) in PROMPTS.items():
            for seed in range(40 if images or clips or frames else 1):
                media = {
                    "images": [picture(seed, *size) for size in images],
                    "audio": [wave(seed, size) for size in clips],
                    "frames": [picture(100 * seed + n, *size) for n, size in enumerate(frames)],
                }
                inputs = processed(USER + text + MODEL, media)
                tokens, margin, logits = greedy(models[checkpoint], inputs)
                print(f"{name}: seed {seed}, margin {margin:.3f}, {tokens}")
                if margin > MARGIN and len(set(tokens)) > 8:
                    break
            else:
                raise SystemExit(f"{name}: no seed of media keeps the best token apart from the second")
            ids = inputs["input_ids"][0].tolist()
            counts = {kind: len(those) for kind, those in media.items()}
            said[name] = dict(checkpoint=checkpoint, text=USER + text + MODEL, prompt=ids, tokens=tokens)
            said[name] |= dict(min_margin=margin, seed=seed, **counts)
            arrays[f"{name}/logits"] = logits
            for kind, those in media.items():
                arrays |= {f"{name}/{kind}/{n}": array for n, array in enumerate(those)}
    (REF / "full.json").write_text(json.dumps(said, indent=1) + "\n")
    np.savez_compressed(REF / "full.npz", **arrays)


def processed(text: str, media: dict[str, list[np.ndarray]]) -> dict[str, Any]:
    """What transformers' processor makes of text and media; written out here, because it wants torchvision."""
    import tokenizers
    import torch

    from cabochon.media import read_processors

    processors = read_processors(TARGET)
    inputs: dict[str, Any] = {}
    written: dict[str, list[str]] = {"<|image|>": [], "<|audio|>": [], "<|video|>": []}
    if media["images"]:
        made = processors.image(media["images"])
        inputs |= {"pixel_values": made.pixel_values, "image_position_ids": made.pixel_position_ids}
        written["<|image|>"] = [f"<|image>{'<|image|>' * n}<image|>" for n in made.tokens]
    if media["audio"]:
        made = processors.audio([(clip, 16_000) for clip in media["audio"]])
        inputs |= {"input_features": made.input_features, "input_features_mask": made.input_features_mask}
        written["<|audio|>"] = [f"<|audio>{'<|audio|>' * n}<audio|>" for n in made.tokens]
    if media["frames"]:
        made = processors.video(media["frames"])
        inputs |= {"pixel_values_videos": made.pixel_values, "video_position_ids": made.pixel_position_ids}
        inputs["num_frames_per_video"] = np.array([len(made.tokens)])
        each = [
            f"{at} <|image>{'<|video|>' * n}<image|>"
            for at, n in zip(made.timestamps, made.tokens, strict=True)
        ]
        written["<|video|>"] = [" ".join(each)]
    pieces = re.split(r"(<\|(?:image|audio|video)\|>)", text)
    text = "".join(written[piece].pop(0) if piece in written else piece for piece in pieces)
    ids = (
        tokenizers.Tokenizer.from_file(str(TARGET / "tokenizer.json"))
        .encode(text, add_special_tokens=False)
        .ids
    )
    inputs["input_ids"] = np.array([ids])
    inputs["attention_mask"] = np.ones_like(inputs["input_ids"])
    kinds = {8: 1, 13: 2, 11: 3}
    inputs["mm_token_type_ids"] = np.array([[kinds.get(token, 0) for token in ids]])
    return {name: torch.from_numpy(array) for name, array in inputs.items()}


if __name__ == "__main__":
    record()
