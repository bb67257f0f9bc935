"""The full package of E2B: what each component takes, and what an image and ten seconds of sound cost."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench import checkpoints
from bench.table import Row
from bench.watch import python

TINY = checkpoints.ROOT / "tests" / "data" / "tiny" / "target"  # its tokenizer knows images and sound
PROCESSORS = "processor_config.json"
OPEN = """
import json, sys, time
sys.path.insert(0, sys.argv[2])
import numpy as np, onnxruntime as ort
from bench.watch import status
before, start = status(), time.perf_counter()
session = ort.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
loaded, after = time.perf_counter() - start, status()
rng = np.random.default_rng(0)
feeds = {
    "vision_encoder": lambda: {
        "pixel_values": rng.random((1, 2448, 768), np.float32),
        "pixel_position_ids": np.stack(np.meshgrid(np.arange(48), np.arange(51)), -1).reshape(1, -1, 2),
    },
    "audio_encoder": lambda: {
        "input_features": rng.standard_normal((1, 999, 128), np.float32),
        "input_features_mask": np.ones((1, 999), bool),
    },
}.get(sys.argv[3])
seconds = None
if feeds:
    fed = feeds()
    session.run(None, fed)
    start = time.perf_counter()
    session.run(None, fed)
    seconds = time.perf_counter() - start
print(json.dumps([loaded, seconds, after["RssAnon"] - before["RssAnon"], after["RssFile"] - before["RssFile"]]))
"""
ANSWER = """
import json, sys, time
import numpy as np, cabochon
rng = np.random.default_rng(0)
image = rng.integers(0, 256, (816, 768, 3), np.uint8)
sound = (rng.standard_normal(160_000).astype(np.float32) * 0.1, 16_000)
said = [{"role": "user", "content": [
    {"type": "image", "image": image}, {"type": "audio", "audio": sound}, {"type": "text", "text": "What is this?"},
]}]
start = time.perf_counter()
model = cabochon.load(sys.argv[1])
loaded = time.perf_counter() - start
answer = model.generate(said, max_new_tokens=5, temperature=0, ignore_eos=True)
again = model.generate(said, max_new_tokens=5, temperature=0, ignore_eos=True)
print(json.dumps([loaded, answer.timings.prompt_tokens, answer.timings.prefill_seconds,
                  answer.timings.decode_seconds / 4, again.timings.reused]))
"""


def checkpoint(folder: Path, scale: float) -> Path:
    """E2B with random weights, and the tokens and processors that a full package needs."""
    config = checkpoints.e2b(scale)
    tiny = json.loads((TINY / "config.json").read_text(encoding="utf-8"))
    config |= {key: value for key, value in tiny.items() if "token" in key and isinstance(value, int)}
    checkpoints.write(config, folder)
    for name in checkpoints.TRAVELLERS:
        shutil.copyfile(TINY / name, folder / name)
    (folder / PROCESSORS).write_text(json.dumps(_processors(config)), encoding="utf-8")
    return folder


def _processors(config: dict[str, Any]) -> dict[str, Any]:
    """The tiny checkpoint's, with E2B's numbers: 280 soft tokens of 9 patches, 128 bands."""
    said = json.loads((TINY / PROCESSORS).read_text(encoding="utf-8"))
    vision = config["vision_config"]
    said["image_processor"] |= {"patch_size": vision["patch_size"], "max_soft_tokens": 280}
    said["video_processor"] |= {"patch_size": vision["patch_size"], "num_frames": 32}
    said["feature_extractor"] |= {"feature_size": 128}
    return said


def sizes(package: Path) -> Row:
    """The bytes of each component; what has two names counts once."""
    counted: dict[int, int] = {}
    shares: list[str] = []
    for folder in sorted(path.parent for path in package.glob("*/model.onnx")):
        new = {f.stat().st_ino: f.stat().st_size for f in folder.iterdir() if f.stat().st_ino not in counted}
        counted |= new
        if folder.name != "policies":
            shares.append(f"{folder.name} {sum(new.values()) / 1e9:.3f} GB")
    whole = sum({f.stat().st_ino: f.stat().st_size for f in package.rglob("*") if f.is_file()}.values())
    return Row("full E2B f16, all components", f"{whole / 1e9:.2f} GB: {', '.join(shares)}")


def components(package: Path) -> Iterator[Row]:
    """Each loaded by itself, in a process of its own; encoders run once more after a first time."""
    said = {
        "vision_encoder": "an image of 768 x 816",
        "audio_encoder": "10 s of sound",
    }
    for folder in sorted(path.parent for path in package.glob("*/model.onnx")):
        run = python(OPEN, str(folder / "model.onnx"), str(checkpoints.ROOT), folder.name)
        loaded, seconds, anonymous, mapped = run.said
        cost = f", {said[folder.name]} {seconds:.2f} s" if folder.name in said else ""
        yield Row(
            f"full E2B f16, {folder.name} by itself in onnxruntime on this CPU",
            f"loaded in {loaded:.1f} s, {anonymous / 1e9:.2f} GB anonymous, {mapped / 1e9:.2f} GB file-backed{cost}",
        )


def answer(package: Path) -> Iterator[Row]:
    """One question about an image and ten seconds of sound, through cabochon's runtime."""
    run = python(ANSWER, str(package))
    loaded, tokens, prefill, step, reused = run.said
    yield Row(
        "full E2B f16 through `cabochon.load` on this CPU: an image, 10 s of sound and a question",
        f"load {loaded:.1f} s, {tokens} tokens of prompt in {prefill:.1f} s with encoding, then {step:.2f} s a token; "
        f"asked again, {reused} of them are reused",
        f"peak {run.anonymous / 1e9:.1f} GB anonymous, {run.resident / 1e9:.1f} GB resident",
    )
