"""The NumPy oracle against what transformers says of every other member of the family, and their checkpoints."""

import hashlib
import json
from functools import cache

import numpy as np
import pytest

import checkpoints
import drafters
import oracle
from checkpoints import TINY
from family import CASES, MEMBERS, OTHERS, RECORDED, recorded_inputs, recorded_prefill
from full_graphs import REF, TEXT, Truth
from graphs import difference

EXACT = 1e-5
NOISE = {
    "e4b": 4e-5
}  # its twelve layers round more: transformers itself is 1.0e-5 from the oracle in float64
BUILT = json.loads((REF / "build.json").read_bytes())


@cache
def truth(folder: str) -> Truth:
    return Truth(TINY / folder)


@pytest.mark.parametrize(("folder", "case"), CASES)
def test_features_layers_and_logits(folder: str, case: str) -> None:
    known, fed, expected = truth(folder), recorded_inputs(folder, case), recorded_prefill(folder, case)
    images, sounds, exact = None, None, NOISE.get(folder, EXACT)
    for pixels, places, name in (
        ("pixel_values", "image_position_ids", "image_features"),
        ("pixel_values_videos", "video_position_ids", "video_features"),
    ):
        if pixels in fed:
            images = known.images(fed[pixels], fed[places])
            assert difference(images, expected[name]) < EXACT
    if "input_features" in fed:
        sounds = known.clips(fed["input_features"], fed["input_features_mask"].astype(bool))
        assert difference(sounds, expected["audio_features"]) < EXACT
    ids = fed["input_ids"][0]
    x, extras = known.embed(ids, images, sounds)
    blocks = oracle.blocks_of(fed["mm_token_type_ids"][0]) if known.bidirectional else None
    found: list[np.ndarray] = []
    oracle.decoder(
        known.geometry, known.weights, TEXT, x, extras, np.arange(len(ids)), blocks=blocks, all_hidden=found
    )
    for i, hidden in enumerate(found):
        assert case == "video" or difference(hidden, expected[f"hidden_{i}"][0]) < exact, i
    logits = oracle.head(known.geometry, known.weights, TEXT, found[-1])
    assert difference(logits, expected["logits"][0]) < exact
    assert logits[-1].argmax() == RECORDED[f"{folder}/{case}"]["tokens"][0]


@pytest.mark.parametrize("name", [member.assistant for member in OTHERS])
def test_steps_of_assistants(name: str) -> None:
    recorded, known = np.load(REF / f"drafter_steps_{name}.npz"), drafters.Truth(TINY / name)
    count = 1 + max(int(key.split(".")[0]) for key in recorded.files)
    for i in range(count):
        shared = {
            kind: tuple(recorded[f"{i}.kv_{kind}_{part}"] for part in ("key", "value"))
            for kind in drafters.KINDS
        }
        position = int(recorded[f"{i}.position_ids"].item())
        logits, state = known.step(recorded[f"{i}.inputs_embeds"][0, 0], shared, position=position)
        assert difference(logits, recorded[f"{i}.logits"][0, 0]) < EXACT, i
        assert difference(state, recorded[f"{i}.projected_state"][0, 0]) < EXACT, i
    assert count >= 8


def test_rounds_accept_different_numbers_of_drafts() -> None:
    for member in OTHERS:
        accepted = {
            row["last_matches"]
            for name, said in RECORDED.items()
            if name.startswith(f"{member.assistant}/{member.folder}/")
            for row in said["trace"][2:]
        }
        assert len(accepted) >= 3, member.assistant


def test_checkpoints_are_those_that_were_recorded() -> None:
    for name, said in BUILT.items():
        content = (TINY / name / "model.safetensors").read_bytes()
        assert hashlib.sha256(content).hexdigest() == said["sha256"], name
        assert len(content) < 1.25e6


def test_checkpoints_have_the_names_that_are_published() -> None:
    """The unified model's vision embedder has a name of its own; nothing stores a tied head."""
    for member in MEMBERS:
        for folder in (member.folder, member.assistant):
            assert "lm_head.weight" not in checkpoints.read(TINY / folder / "model.safetensors")
    names = [
        name for name in checkpoints.read(TINY / "unified" / "model.safetensors") if "language" not in name
    ]
    assert {name.rpartition(".")[0] for name in names} == {
        "model.embed_audio.embedding_projection",
        "model.embed_vision.embedding_projection",
        *(f"model.vision_embedder.{part}" for part in ("patch_ln1", "patch_dense", "patch_ln2", "pos_norm")),
        "model.vision_embedder",
    }


def test_members_have_their_files() -> None:
    for member in MEMBERS:
        sections = checkpoints.tiny_config(member.folder)
        assert ("audio" in member.media) == (sections["audio_config"] is not None)
        assert (TINY / member.folder / "processor_config.json").exists()
        assert (TINY / member.assistant / "generation_config.json").exists()
        backbone = checkpoints.tiny_config(member.assistant)["backbone_hidden_size"]
        assert backbone == sections["text_config"]["hidden_size"]


def test_tokenizers_are_one() -> None:
    folders = [folder for member in MEMBERS for folder in (member.folder, member.assistant)]
    assert len({(TINY / folder / "tokenizer.json").read_bytes() for folder in folders}) == 1
