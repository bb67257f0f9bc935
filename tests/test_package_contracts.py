from dataclasses import replace

import pytest

from cabochon.checkpoint import Tensor
from cabochon.dialects import TARGETS
from cabochon.gemma4 import expected_shapes, read_text_config, trace_text
from cabochon.package.contracts import contracts, fusions, hidden_tap, operators, owners
from cabochon.recipes import PRECISIONS
from checkpoints import BIG, E2B, published, tiny_config


def described(target="default", **changes):
    """The contracts of the tiny text checkpoint with `changes` of its config; no file is read."""
    raw = published(tiny_config()) | changes
    config = read_text_config(raw)
    shapes = expected_shapes(config).items()
    tensors = {name: Tensor(name, "BF16", shape, None, 0, 0) for name, shape in shapes}
    return config, raw, trace_text(config, tensors, TARGETS[target], PRECISIONS["f16"])


def test_the_tiny_checkpoint():
    assert contracts(*described()) == {
        "hybrid_attention": "sliding_window(8) + full_attention every 5th layer (layers 4, 9)",
        "num_hidden_layers": 10,
        "num_kv_shared_layers": 4,
        "owned_kv_layers": 6,
        "heterogeneous_head_dim": {"local_sliding": 16, "global_full": 32},
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "per_layer_input_hidden": 8,
        "double_wide_mlp": True,
        "final_logit_softcapping": 30.0,
        "tie_word_embeddings": True,
        "max_position_embeddings": 4096,
        "moe": "disabled in this checkpoint (enable_moe_block=false); dense MLP",
    }


def test_the_figures_of_the_first_record():
    found = contracts(*described("cuda", **E2B))
    assert found["num_hidden_layers"] == 35 and found["owned_kv_layers"] == 15
    assert found["num_kv_shared_layers"] == 20 and found["per_layer_input_hidden"] == 256
    assert found["heterogeneous_head_dim"] == {"local_sliding": 256, "global_full": 512}
    assert found["hybrid_attention"] == (
        "sliding_window(512) + full_attention every 5th layer (layers 4, 9, 14, 19, 24, 29, 34)"
    )


def test_heads_by_kind_and_keys_for_values():
    found = contracts(*described(**BIG))
    assert found["num_key_value_heads"] == {"local_sliding": 16, "global_full": 4}
    assert found["attention_k_eq_v"] is True and found["double_wide_mlp"] is False
    assert found["num_kv_shared_layers"] == 0 and "per_layer_input_hidden" not in found


def test_what_a_model_lacks_is_not_invented():
    config, raw, model = described(
        final_logit_softcapping=None, global_head_dim=16, hidden_size_per_layer_input=0
    )
    del raw["enable_moe_block"]
    found = contracts(config, raw, model)
    absent = {"moe", "final_logit_softcapping", "heterogeneous_head_dim", "per_layer_input_hidden"}
    assert not absent & set(found) and found["head_dim"] == 16


@pytest.mark.parametrize(
    "kinds, rhythm",
    [
        ("ffffffffff", "full_attention in every layer"),
        ("sfsfsfsfsf", "sliding_window(8) + full_attention every 2nd layer (layers 1, 3, 5, 7, 9)"),
        ("ssfssfssff", "sliding_window(8) + full_attention in layers 2, 5, 8, 9"),
    ],
)
def test_rhythm(kinds, rhythm):
    names = {"f": "full_attention", "s": "sliding_attention"}
    config, raw, model = described(layer_types=[names[kind] for kind in kinds], num_kv_shared_layers=0)
    assert contracts(config, raw, model)["hybrid_attention"] == rhythm


def test_owners_and_tap_are_the_graphs():
    _, _, model = described()
    assert owners(model) == {i: (1, 32 if i == 4 else 16) for i in range(6)}
    assert hidden_tap(model) == "hidden_states.9"


FUSED = {
    "default": ["fast_gelu", "fused_matmul"],
    "onnx-standard": [],
    "cuda": ["fast_gelu", "fused_matmul", "group_query_attention"],
    "webgpu": ["fast_gelu", "group_query_attention"],
}


@pytest.mark.parametrize("target", TARGETS)
def test_fusions_are_counted_from_the_nodes(target):
    _, _, model = described(target)
    counted, fused = operators(model), fusions(model)
    assert sum(counted.values()) == model.graph.num_nodes()
    assert ("group_query_attention" in fused) == ("com.microsoft.GroupQueryAttention" in counted)
    assert bool(fused) == any(name.startswith("com.microsoft.") for name in counted)
    assert fused == FUSED[target]
    if target == "cuda":
        assert counted["com.microsoft.GroupQueryAttention"] == 10


def test_the_window_is_that_of_the_config():
    config, raw, model = described()
    assert "sliding_window(77)" in contracts(replace(config, window=77), raw, model)["hybrid_attention"]
