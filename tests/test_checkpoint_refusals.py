import pytest

from cabochon.checkpoint.refusals import refuse_kinds, refuse_quantized
from cabochon.errors import UnsupportedError

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


@pytest.mark.parametrize(
    ("found", "method"),
    [
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes, 4 bits"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "bitsandbytes, 8 bits"),
        ({"quant_method": "compressed-tensors", "config_groups": {}}, "compressed-tensors"),
        ({"quant_method": "gptq", "bits": 4}, "gptq, 4 bits"),
        ({"quant_method": "awq", "bits": 4}, "awq, 4 bits"),
        ({"group_size": 64}, "an unnamed method"),
    ],
)
def test_quantized_checkpoints_are_refused_by_the_name_of_the_method(found, method):
    for config in ({"quantization_config": found}, {"text_config": {"quantization_config": found}}):
        with pytest.raises(UnsupportedError) as caught:
            refuse_quantized(config)
        assert method in caught.value.message
        assert "unquantized checkpoint" in caught.value.remedy


def test_a_config_without_quantization_passes():
    refuse_quantized({"quantization_config": None, "text_config": {}})
    refuse_quantized({"text_config": None})
