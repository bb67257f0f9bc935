"""genai_config.json states what the graph is: case 24."""

import json
import re
from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest

import checkpoints
from cabochon.dialects import TARGETS
from cabochon.package.genai_config import genai_text
from described import facts
from graphs import random_checkpoint

F = "full_attention"


def config(*args: Any, **changes: Any) -> dict[str, Any]:
    return json.loads(genai_text(facts(*args, **changes)))


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest) -> str:
    return request.param


def shapes(model: ir.Model) -> dict[str, list[int | str]]:
    return {
        v.name: [d if isinstance(d, int) else d.value for d in v.shape]
        for v in (*model.graph.inputs, *model.graph.outputs)
    }


def test_every_number_is_the_graphs(target: str) -> None:
    described = facts(target=target)
    found, ports = json.loads(genai_text(described)), shapes(described.model)
    model, decoder = found["model"], found["model"]["decoder"]
    owners = sorted({int(m[1]) for name in ports if (m := re.match(r"present\.(\d+)\.", name))})
    assert model["type"] == "gemma4_text" and decoder["filename"] == "model.onnx"
    assert model["vocab_size"] == ports["logits"][2] == 512
    assert model["context_length"] == int(described.properties["cabochon.max_positions"])
    assert decoder["hidden_size"] == ports["hidden_states.9"][2]
    assert decoder["num_hidden_layers"] == 10 and decoder["num_attention_heads"] == 4
    for side in ("inputs", "outputs"):
        for name in decoder[side].values():
            for layer in owners if "%d" in name else [0]:
                assert name.replace("%d", str(layer)) in ports
    assert decoder["outputs"]["present_key_names"] == "present.%d.key"


def test_one_head_size_is_claimed_only_where_all_layers_have_it(tmp_path: Path) -> None:
    assert "head_size" not in config()["model"]["decoder"], "16 and 32"
    assert config()["model"]["decoder"]["num_key_value_heads"] == 1
    alike = random_checkpoint(
        tmp_path, layer_types=[F] * 4, num_hidden_layers=4, num_kv_shared_layers=2, use_double_wide_mlp=False
    )
    assert config(alike)["model"]["decoder"]["head_size"] == 32
    heads = random_checkpoint(
        tmp_path / "heads",
        num_key_value_heads=2,
        num_global_key_value_heads=1,
        num_kv_shared_layers=0,
        attention_k_eq_v=True,
    )
    assert "num_key_value_heads" not in config(heads)["model"]["decoder"]


@pytest.mark.parametrize("precision", ["f32", "f16"])
def test_a_shared_buffer_is_claimed_only_by_graphs_that_write_into_their_past(
    target: str, precision: str
) -> None:
    described = facts(target=target, precision=precision)
    makers = {v.producer().op_type for v in described.model.graph.outputs if v.name.startswith("present")}
    shared = json.loads(genai_text(described))["search"]["past_present_share_buffer"]
    assert shared is (makers == {"GroupQueryAttention"})
    assert shared is (target in ("cuda", "webgpu"))


@pytest.mark.parametrize(
    "name, options",
    [("cuda", [{"cuda": {}}]), ("webgpu", [{"webgpu": {}}]), ("default", []), ("onnx-standard", [])],
)
def test_providers_are_the_targets(name: str, options: list[dict[str, Any]]) -> None:
    assert config(target=name)["model"]["decoder"]["session_options"] == {"provider_options": options}


def test_tokens_are_those_of_all_files() -> None:
    model = config()["model"]
    assert (model["bos_token_id"], model["eos_token_id"], model["pad_token_id"]) == (2, [1, 6], 0)


@pytest.mark.parametrize(
    "name, changes, key, expected",
    [
        ("generation_config.json", {"eos_token_id": 9}, "eos_token_id", [1, 9]),
        ("generation_config.json", {"eos_token_id": None}, "eos_token_id", [1]),
        ("tokenizer_config.json", {"eos_token": "<turn|>"}, "eos_token_id", [1, 6]),
        ("tokenizer_config.json", {"pad_token": None}, "pad_token_id", 0),
        ("tokenizer_config.json", {"bos_token": None}, "bos_token_id", 2),
    ],
)
def test_tokens_of_one_file(
    tmp_path: Path, name: str, changes: dict[str, Any], key: str, expected: Any
) -> None:
    folder = checkpoints.copy(tmp_path, "text")
    file = folder / name
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    assert config(folder)["model"][key] == expected


def test_without_tokenizer_and_generation_config(tmp_path: Path) -> None:
    folder = checkpoints.copy(tmp_path, "text")
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        (folder / name).unlink()
    found = config(folder)
    assert found["model"]["eos_token_id"] == [1]
    assert found["search"] == {
        "max_length": found["model"]["context_length"],
        "past_present_share_buffer": False,
    }


def test_defaults_of_the_search_are_the_authors() -> None:
    search = config()["search"]
    assert {k: search[k] for k in ("do_sample", "temperature", "top_k", "top_p")} == {
        "do_sample": True,
        "temperature": 1.0,
        "top_k": 64,
        "top_p": 0.95,
    }
