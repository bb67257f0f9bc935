"""Graphs of every other member of the family, and of their drafters, against what transformers says, part by part."""

from functools import cache

import numpy as np
import pytest

from checkpoints import TINY
from drafters import Drafter, Truth, recorded
from family import CASES, OTHERS, RECORDED, recorded_inputs, recorded_prefill
from full_graphs import REF, Components
from graphs import difference

EXACT = 1e-4


@cache
def components(folder: str) -> Components:
    return Components(TINY / folder, "default")


@pytest.mark.parametrize(("folder", "case"), CASES)
def test_components(folder: str, case: str) -> None:
    whole, fed, expected = (
        components(folder),
        recorded_inputs(folder, case),
        recorded_prefill(folder, case),
    )
    images = sounds = None
    for pixels, places, name in (
        ("pixel_values", "image_position_ids", "image_features"),
        ("pixel_values_videos", "video_position_ids", "video_features"),
    ):
        if pixels in fed:
            images = whole.images(fed[pixels], fed[places])
            assert difference(images, expected[name]) < EXACT
    if "input_features" in fed:
        sounds = whole.clips(fed["input_features"], fed["input_features_mask"].astype(bool))
        assert difference(sounds, expected["audio_features"]) < EXACT
    embedded = whole.embed(fed["input_ids"], images, sounds)
    made = whole.decode(fed["input_ids"], embedded)
    assert difference(made["logits"], expected["logits"]) < EXACT
    if "hidden_0" not in expected:
        return
    assert difference(embedded["inputs_embeds"], expected["hidden_0"]) < EXACT
    last = len(whole.text.layers)
    assert difference(made[f"hidden_states.{last - 1}"], expected[f"hidden_{last}"]) < EXACT
    for kind in whole.text.kinds:
        owner = max(i for i in whole.text.owners if whole.text.layers[i].kind == kind)
        for part in ("key", "value"):
            assert difference(made[f"present.{owner}.{part}"], expected[f"shared_{kind}_{part}"]) < EXACT


@pytest.mark.parametrize("folder", [member.folder for member in OTHERS])
def test_greedy_tokens(folder: str) -> None:
    whole, said = components(folder), RECORDED[f"{folder}/text"]
    made, found = whole.forward(said["prompt"]), []
    while len(found) < len(said["tokens"]):
        found.append(int(made["logits"][0, -1].argmax()))
        made = whole.forward(found[-1:], past=whole.past(made))
    assert found == said["tokens"]


@pytest.mark.parametrize("name", [member.assistant for member in OTHERS])
def test_steps_of_drafters(name: str) -> None:
    steps, drafter, truth = (
        np.load(REF / f"drafter_steps_{name}.npz"),
        Drafter(TINY / name, "default"),
        Truth(TINY / name),
    )
    for i in range(1 + max(int(key.split(".")[0]) for key in steps.files)):
        logits, state = drafter.run(*recorded(steps, i, truth))
        assert difference(logits, steps[f"{i}.logits"]) < EXACT, i
        assert difference(state, steps[f"{i}.projected_state"]) < EXACT, i
