"""What is measured of a member: its tiny checkpoint and its assistant as a full pair, beside what was recorded."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import cabochon
from checkpoints import TINY
from drafters import Truth, recorded
from family import RECORDED, Member, recorded_inputs, recorded_prefill
from full_graphs import REF
from graphs import difference
from variants.comparing import OnDisk, graphs
from variants.runtimes import OnOnnxRuntime

FEATURES = {
    "image_features": ("pixel_values", "image_position_ids"),
    "video_features": ("pixel_values_videos", "video_position_ids"),
    "audio_features": ("input_features", "input_features_mask"),
}


@dataclass(frozen=True)
class Measured:
    """The largest differences from transformers' values, each divided by the largest value: of the member by name, of
    its assistant the logits. `faults`: what else is not as it should be."""

    member: dict[str, float]
    assistant: dict[str, float]
    faults: list[str]
    seconds: float


def measure(member: Member, folder: Path) -> Measured:
    """Build the pair in `folder`, and run each graph of it."""
    start, built = time.perf_counter(), folder / member.folder
    how = {"target": "default", "precision": "f32", "license": "apache-2.0"}
    cabochon.build(TINY / member.folder, built, model="full", assistant=TINY / member.assistant, **how)
    far, drafted, faults = (
        _target(member, built / "target"),
        _drafter(member, built),
        [*_faults(member, built)],
    )
    return Measured(far, drafted, faults, time.perf_counter() - start)


def _target(member: Member, package: Path) -> dict[str, float]:
    parts = {name: graph for name, graph in graphs(package).items() if graph.is_file()}
    whole, far = OnDisk(TINY / member.folder, parts, OnOnnxRuntime), dict[str, float]()
    for case in cases(member):
        fed, expected = recorded_inputs(member.folder, case), recorded_prefill(member.folder, case)
        made = dict[str, np.ndarray]()
        for name, ports in FEATURES.items():
            if ports[0] in fed:
                first, second = (fed[port] for port in ports)
                audio = name == "audio_features"
                made[name] = whole.clips(first, second.astype(bool)) if audio else whole.images(first, second)
                far[name] = max(far.get(name, 0), difference(made[name], expected[name]))
        images = made.get("image_features", made.get("video_features"))
        embedded = whole.embed(fed["input_ids"], images, made.get("audio_features"))
        logits = whole.decode(fed["input_ids"], embedded)["logits"]
        far["logits"] = max(far.get("logits", 0), difference(logits, expected["logits"]))
    return far


def _drafter(member: Member, package: Path) -> dict[str, float]:
    """Of every step that was recorded, teacher-forced."""
    steps = np.load(REF / f"drafter_steps{'_' + member.assistant if '-' in member.assistant else ''}.npz")
    graph, truth, far = OnOnnxRuntime(package / "model.onnx"), Truth(TINY / member.assistant), 0.0
    for i in range(1 + max(int(key.split(".")[0]) for key in steps.files)):
        inputs, shared = recorded(steps, i, truth)
        feeds = {
            f"shared_kv.{kind}.{part}": x
            for kind, both in shared.items()
            for part, x in zip(("key", "value"), both, strict=True)
        }
        mask = np.ones((1, shared["full_attention"][0].shape[2]), np.int64)
        made = graph.run({"inputs_embeds": inputs, "attention_mask": mask, **feeds})
        far = max(far, difference(made["logits"], steps[f"{i}.logits"]))
    return {"logits": far}


def _faults(member: Member, package: Path) -> Iterator[str]:
    """The pair, speculating, says what transformers said; and takes as many bytes as were planned."""
    said = RECORDED[f"{member.folder}/text"]
    model = cabochon.load(package, threads=1, provider="cpu")
    made = model.generate(said["prompt"], greedy=True, ignore_eos=True, max_new_tokens=len(said["tokens"]))
    if list(made.ids) != said["tokens"]:
        yield f"answers {list(made.ids)}; transformers {said['tokens']}"
    plan = cabochon.plan(TINY / member.folder, assistant=TINY / member.assistant, precision="f32")
    verdict = next(v for v in plan.verdicts if (v.target, v.model) == ("default", "full"))
    planned = verdict.disk - next(part.disk for part in verdict.components if part.name == "documents")
    files = {file.stat().st_ino: file.stat().st_size for file in package.rglob("*.data")}
    if sum(files.values()) != planned:
        yield f"takes {sum(files.values()):,} bytes of weights; planned {planned:,}"


def cases(member: Member) -> list[str]:
    """What was recorded of a member."""
    return [case for case in ("text", "text_long", *member.media) if f"{member.folder}/{case}" in RECORDED]
