"""genai_config.json of a full package states what the graphs and config.json say, and nothing else: case 24."""

import json
from dataclasses import replace
from typing import Any

import pytest

from cabochon.metadata.folder import open_full
from cabochon.package.genai_full import genai_full
from packages import Packages

PARTS = {"embedding": "embedding", "vision": "vision_encoder", "speech": "audio_encoder"}


@pytest.fixture(params=["default", "cuda", "webgpu"])
def built(request: pytest.FixtureRequest, packages: Packages) -> tuple[dict[str, Any], Any]:
    root = packages("tiny-full", request.param)
    return json.loads((root / "genai_config.json").read_bytes()), open_full(root)


def test_every_name_is_a_port(built: tuple[dict[str, Any], Any]) -> None:
    found, full = built
    model = found["model"]
    members = {member.name: member for member in full.members}
    for part, component in PARTS.items():
        assert model[part]["filename"] == f"{component}/model.onnx" == members[component].artifact
        assert set(model[part]["inputs"].values()) == members[component].ports.inputs.keys()
        assert set(model[part]["outputs"].values()) == members[component].ports.outputs.keys()
    assert model["speech"]["inputs"] == {
        "audio_embeds": "input_features",
        "attention_mask": "input_features_mask",
    }
    decoder = model["decoder"]
    assert decoder["filename"] == "decoder/model.onnx"
    assert {"inputs_embeds", "per_layer_inputs", "attention_mask"} <= decoder["inputs"].keys()
    assert "input_ids" not in decoder["inputs"]


def test_every_number_is_derived(built: tuple[dict[str, Any], Any]) -> None:
    found, full = built
    model = found["model"]
    assert model["type"] == "gemma4" and model["context_length"] == 4096 and model["vocab_size"] == 512
    assert (model["image_token_id"], model["audio_token_id"], model["boa_token_id"]) == (8, 11, 10)
    assert (model["bos_token_id"], model["pad_token_id"], model["eos_token_id"]) == (2, 0, [1, 6])
    decoder = model["decoder"]
    assert (decoder["hidden_size"], decoder["num_hidden_layers"], decoder["num_attention_heads"]) == (
        64,
        10,
        4,
    )
    assert "head_size" not in decoder, "16 and 32"
    assert found["search"]["past_present_share_buffer"] is full.decoder.in_place
    assert not any("merge" in key for key in json.dumps(found).split('"')), "no invented fields"


def test_processor_files_are_named_and_there(packages: Packages, built: tuple[dict[str, Any], Any]) -> None:
    found, _ = built
    root = packages("tiny-full")
    for part in ("vision", "speech"):
        assert (root / found["model"][part]["config_filename"]).is_file()


def test_the_unified_model_is_of_a_type_that_reduces_nothing(packages: Packages) -> None:
    root = packages("unified-full")
    model = json.loads((root / "genai_config.json").read_bytes())["model"]
    assert model["type"] == "gemma4_unified" and model["decoder"]["inputs"]["input_ids"] == "input_ids"
    image, sound = (
        json.loads((root / model[part]["config_filename"]).read_bytes()) for part in ("vision", "speech")
    )
    cut = image["processor"]["transforms"][1]["operation"]["attrs"]
    frames = sound["feature_extraction"]["sequence"][1]["operation"]["attrs"]
    assert (cut["patch_size"], cut["pooling_kernel_size"]) == (12, 1)
    assert (frames["type"], frames["audio_samples_per_token"]) == ("raw_frames", 640)


def test_without_sound_its_processor_is_turned_off(packages: Packages) -> None:
    root = packages("tiny-full")
    full = open_full(root)
    deaf = replace(full, encoders={"image": full.encoders["image"]})
    model = genai_full(deaf, "CPUExecutionProvider", json.loads((root / "config.json").read_bytes()), ())[
        "model"
    ]
    assert model["speech"] == {"config_filename": ""}
    assert "audio_token_id" not in model and model["image_token_id"] == 8


def test_ids_go_to_a_decoder_that_takes_them(packages: Packages) -> None:
    model = json.loads((packages("big-full") / "genai_config.json").read_bytes())["model"]
    assert model["decoder"]["inputs"]["input_ids"] == "input_ids"
    assert "per_layer_inputs" not in model["embedding"]["outputs"] and model["speech"] == {
        "config_filename": ""
    }
