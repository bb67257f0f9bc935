import pytest

import checkpoints
from cabochon.checkpoint.refusals import refuse_kinds, refuse_quantized, refuse_quantized_tensors
from cabochon.errors import UnsupportedError
from cabochon.package import build

REFUSED = {
    "an adapter alone": (
        ["adapter_config.json", "adapter_model.safetensors"],
        "LoRA adapter",
        "merge_and_unload",
    ),
    "an adapter as pickle": (["adapter_model.bin"], "LoRA adapter", "merge"),
    "gguf": (["gemma-Q4_0.gguf", "README.md"], "GGUF files (gemma-Q4_0.gguf)", "original checkpoint"),
    "pickle": (["pytorch_model.bin", "config.json"], "pickle files (pytorch_model.bin)", "save_pretrained"),
    "many pickles": ([f"{i}.pt" for i in range(9)], "0.pt, 1.pt, 2.pt and 6 more", "safetensors"),
    "checkpoint of a trainer": (["model.pth"], "none was opened", "safetensors"),
    "modelopt": (["hf_quant_config.json", "model.safetensors"], "quantized (ModelOpt)", "unquantized"),
    "gptq": (["quantize_config.json", "model.safetensors"], "quantized (GPTQ)", "unquantized"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_kinds_are_refused_by_name_with_what_to_do(name):
    names, message, remedy = REFUSED[name]
    with pytest.raises(UnsupportedError) as caught:
        refuse_kinds(names, "folder")
    assert message in caught.value.message
    assert remedy in caught.value.remedy
    assert caught.value.at == "folder"


@pytest.mark.parametrize(
    "names",
    [
        ["model.safetensors", "pytorch_model.bin", "model.gguf"],
        ["model.safetensors", "adapter_config.json"],
        ["config.json"],
        [],
    ],
)
def test_safetensors_beside_other_kinds_are_fine(names):
    refuse_kinds(names, "folder")


INT4 = {
    "targets": ["Linear"],
    "weights": {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32},
}
QAT = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "quantization_status": "compressed",
    "config_groups": {"group_0": INT4},
    "ignore": ["lm_head", "re:.*vision_tower.*"],
}


@pytest.mark.parametrize(
    ("found", "method"),
    [
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes, 4 bits"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "bitsandbytes, 8 bits"),
        ({"quant_method": "compressed-tensors", "config_groups": {}}, "compressed-tensors"),
        ({"quant_method": "gptq", "bits": 4}, "gptq, 4 bits"),
        ({"quant_method": "awq", "bits": 4}, "awq, 4 bits"),
        ({"group_size": 64}, "an unnamed method"),
        (QAT, "compressed-tensors, 4 bits"),
        (
            {**QAT, "config_groups": {"a": {"weights": {"num_bits": 8}}, "b": INT4}},
            "compressed-tensors, 4 and 8 bits",
        ),
        ({**QAT, "config_groups": [3]}, "quantized (compressed-tensors)"),
        ({**QAT, "config_groups": {"a": 3, "b": {"weights": None}}}, "quantized (compressed-tensors)"),
    ],
)
def test_quantized_checkpoints_are_refused_by_the_name_of_the_method(found, method):
    for config in ({"quantization_config": found}, {"text_config": {"quantization_config": found}}):
        with pytest.raises(UnsupportedError) as caught:
            refuse_quantized(config)
        assert method in caught.value.message
        assert "unquantized checkpoint" in caught.value.remedy
        assert "of a QAT release the one whose name ends in -unquantized" in caught.value.remedy


def test_a_config_without_quantization_passes():
    refuse_quantized({"quantization_config": None, "text_config": {}})
    refuse_quantized({"text_config": None})


Q_PROJ = "model.layers.0.self_attn.q_proj"


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (("weight_packed", "weight_scale", "weight_shape"), f"(compressed-tensors): it holds {Q_PROJ}.weight_packed"),
        (("weight", "weight_scale"), f"(compressed-tensors, or ModelOpt): it holds {Q_PROJ}.weight_scale"),
        (("weight", "weight_scale_inv"), f"(FP8 by blocks): it holds {Q_PROJ}.weight_scale_inv"),
        (("qweight", "qzeros", "scales"), f"(GPTQ, or AWQ): it holds {Q_PROJ}.qweight"),
        (("weight", "weight.absmax", "weight.quant_map"), f"(bitsandbytes): it holds {Q_PROJ}.weight.absmax"),
        (("weight", "SCB"), f"(bitsandbytes): it holds {Q_PROJ}.SCB"),
        (("weight", "scales", "biases"), f"(MLX): it holds {Q_PROJ}.scales"),
    ],
)  # fmt: skip
def test_quantized_tensors_are_refused_by_their_names(parts, message):
    with pytest.raises(UnsupportedError) as caught:
        refuse_quantized_tensors([f"{Q_PROJ}.{part}" for part in parts], "folder")
    assert caught.value.message == f"the checkpoint is quantized {message}"
    assert "-unquantized" in caught.value.remedy and caught.value.at == "folder"


@pytest.mark.parametrize("name", ["text", "target", "moe", "assistant", "assistant-dense"])
def test_no_tensor_of_a_model_is_called_like_a_quantizers(name):
    refuse_quantized_tensors(checkpoints.read(checkpoints.TINY / name / "model.safetensors"), "folder")


def quantized(tensors):
    """The linear weights as compressed-tensors stores them: int4 packed into I32, with a scale for each 32."""
    result = {}
    for name, entry in tensors.items():
        if not name.endswith("_proj.weight"):
            result[name] = entry
            continue
        rows, columns = entry[1]
        groups = -(-columns // 32)
        result[f"{name}_packed"] = ("I32", [rows, columns // 8], bytes(rows * columns // 2))
        result[f"{name}_scale"] = ("BF16", [rows, groups], bytes(2 * rows * groups))
        result[f"{name}_shape"] = ("I64", [2], bytes(16))
    return result


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"quantization_config": QAT}, "config.json: quantization_config: the checkpoint is quantized (compressed-ten"),
        ({}, "the checkpoint is quantized (compressed-tensors): it holds model.layers.0.mlp.down_proj.weight_packed"),
    ],
)  # fmt: skip
def test_a_qat_release_in_int4_is_refused_with_its_config_and_without(tmp_path, config, message):
    folder = checkpoints.change(checkpoints.copy(tmp_path / "qat", **config), quantized)
    with pytest.raises(UnsupportedError) as caught:
        build(folder, tmp_path / "p")
    assert message in str(caught.value) and "give the unquantized checkpoint" in caught.value.remedy
    assert [path.name for path in tmp_path.iterdir()] == ["qat"]
