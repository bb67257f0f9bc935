import math

import numpy as np
import pytest

import checkpoints
from cabochon.checkpoint import open_checkpoint
from cabochon.errors import TensorError
from cabochon.gemma4.config import read_text_config
from cabochon.gemma4.names import expected_shapes, text_tensors

TABLE = "model.embed_tokens.weight"


def names_of(folder):
    opened = open_checkpoint(folder)
    return text_tensors(opened.tensors, read_text_config(opened.config))


def contents(found):
    return {name: (tensor.shape, bytes(tensor.raw())) for name, tensor in found.used.items()}


@pytest.fixture
def folder(tmp_path):
    return checkpoints.copy(tmp_path / "checkpoint")


def shapes(**changed):
    return expected_shapes(read_text_config(checkpoints.published(checkpoints.tiny_config()) | changed))


@pytest.mark.parametrize(
    ("geometry", "count", "parameters"),
    [
        (checkpoints.E2B, 540, 1_863_343_395 + 402_653_184 + 2_348_810_240 + 13_762_560),
        (checkpoints.BIG, 832, (58_576_118_392 + 2_818_572_288) // 2),
    ],
)
def test_the_layout_of_the_published_models(geometry, count, parameters):
    """Tensors (without unused keys and values) and parameters of the text part of published files."""
    layout = shapes(**geometry | {"vocab_size": 262144, "sliding_window": 1024})
    assert (len(layout), sum(map(math.prod, layout.values()))) == (count, parameters)


def test_the_layout_of_single_layers():
    layout = shapes(**checkpoints.E2B)
    assert layout["model.embed_tokens_per_layer.weight"] == (262144, 35 * 256)
    assert layout["model.layers.4.self_attn.k_proj.weight"] == (512, 1536)
    assert layout["model.layers.14.mlp.down_proj.weight"] == (1536, 6144)
    assert layout["model.layers.15.mlp.down_proj.weight"] == (1536, 12288)
    assert layout["model.layers.0.layer_scalar"] == (1,)
    assert "model.layers.15.self_attn.k_proj.weight" not in layout
    big = shapes(**checkpoints.BIG)
    assert big["model.layers.5.self_attn.k_proj.weight"] == (2048, 5376)
    assert "model.layers.5.self_attn.v_proj.weight" not in big
    assert big["model.layers.4.self_attn.v_proj.weight"] == (4096, 5376)
    assert not any("per_layer" in name for name in big)
    assert "lm_head.weight" not in big and shapes(tie_word_embeddings=False)["lm_head.weight"] == (512, 64)


def test_the_text_checkpoint_is_used_whole(folder):
    found = names_of(folder)
    assert list(found.used) == list(shapes())
    assert found.unused == {}


PREFIXES = {
    "model.language_model.": lambda name: name.replace("model.", "model.language_model.", 1),
    "language_model.model.": lambda name: "language_model." + name,
    "model.": lambda name: name,
    "bare": lambda name: name.removeprefix("model."),
}


@pytest.mark.parametrize("prefix", PREFIXES)
def test_five_prefixes_give_the_same_tensors(folder, prefix):
    expected = contents(names_of(folder))
    found = names_of(checkpoints.rename(folder, PREFIXES[prefix]))
    assert contents(found) == expected
    assert list(found.used) == list(expected)


def test_towers_beside_the_text_model_are_unused_and_said(folder):
    """The fifth prefix: model.language_model. with towers beside it, and K/V of layers that borrow."""
    found = names_of(checkpoints.TINY / "target")
    assert contents(found) == contents(names_of(folder))
    reasons = set(found.unused.values())
    assert "vision_tower is not part of a text model" in reasons
    assert "embed_audio is not part of a text model" in reasons
    borrowed = {name: reason for name, reason in found.unused.items() if "language_model" in name}
    assert len(borrowed) == 4 * 3
    assert borrowed["model.language_model.layers.9.self_attn.v_proj.weight"] == (
        "layer 9 borrows the keys and values of layer 4"
    )
    assert borrowed["model.language_model.layers.6.self_attn.k_norm.weight"].endswith("of layer 5")


def test_towers_of_the_older_spelling(folder):
    def add(tensors):
        renamed = {"language_model." + name: entry for name, entry in tensors.items()}
        return renamed | {"vision_tower.x": ("BF16", [], b"12"), "embed_vision.y": ("BF16", [], b"12")}

    assert set(names_of(checkpoints.change(folder, add)).unused) == {"vision_tower.x", "embed_vision.y"}


@pytest.mark.parametrize("name", ["lm_head.weight", "language_model.lm_head.weight"])
def test_a_stored_head_that_equals_the_table_is_unused(folder, name):
    found = names_of(checkpoints.change(folder, lambda tensors: tensors | {name: tensors[TABLE]}))
    assert found.unused == {name: "the head is tied: these are the bytes of embed_tokens.weight"}
    assert "lm_head.weight" not in found.used


def test_a_stored_head_that_differs_wins_over_the_tie(folder):
    def add(tensors):
        dtype, shape, data = tensors[TABLE]
        return tensors | {"lm_head.weight": (dtype, shape, data[:-1] + bytes([data[-1] ^ 1]))}

    found = names_of(checkpoints.change(folder, add))
    assert found.unused == {}
    assert found.used["lm_head.weight"].name == "lm_head.weight"


def test_a_stored_head_of_another_dtype_is_used(folder):
    """The same values in another dtype are not the same bytes."""

    def add(tensors):
        _, shape, data = tensors[TABLE]
        wide = (np.frombuffer(data, "<u2").astype("<u4") << 16).tobytes()
        return tensors | {"lm_head.weight": ("F32", shape, wide)}

    assert names_of(checkpoints.change(folder, add)).used["lm_head.weight"].dtype == "F32"


def test_an_untied_head_must_be_stored(tmp_path):
    folder = checkpoints.copy(tmp_path / "checkpoint", tie_word_embeddings=False)
    with pytest.raises(TensorError, match=r"missing: lm_head\.weight \(tie_word_embeddings is false\)"):
        names_of(folder)
    checkpoints.change(folder, lambda tensors: tensors | {"lm_head.weight": tensors[TABLE]})
    assert names_of(folder).used["lm_head.weight"].shape == (512, 64)


Q_BIAS = "model.layers.0.self_attn.q_proj.bias"
V_SHARED = "model.layers.9.self_attn.v_proj.weight"
NORM = "model.norm.weight"


def without(*names):
    return lambda tensors: {name: entry for name, entry in tensors.items() if name not in names}


SMALL = ("BF16", [1], b"12")
WRONG = {
    "unknown": (lambda t: t | {Q_BIAS: SMALL}, [f"unknown: {Q_BIAS}"]),
    "missing": (without(NORM), [f"missing: {NORM}"]),
    "shape": (lambda t: t | {NORM: SMALL}, [f"wrong shape: {NORM} is [1], config.json promises [64]"]),
    "dtype": (
        lambda t: t | {NORM: ("I8", [64], bytes(64))},
        [f"wrong dtype: {NORM} is I8, expected BF16, F16, F32"],
    ),
    "all at once": (
        lambda t: without(TABLE)(t) | {Q_BIAS: SMALL, NORM: SMALL, "model.layers.10.layer_scalar": SMALL},
        [
            f"missing: {TABLE}",
            f"unknown: {Q_BIAS}",
            "unknown: model.layers.10.layer_scalar",
            f"wrong shape: {NORM}",
        ],
    ),
    "two heads": (
        lambda t: t | {"lm_head.weight": t[TABLE], "language_model.lm_head.weight": t[TABLE]},
        ["stored twice: lm_head.weight and language_model.lm_head.weight"],
    ),
    "two models": (
        lambda t: t | {"model.language_model.norm.weight": t[NORM]},
        ["unknown: model.language_model.norm.weight"],
    ),
    "an experts' tensor": (
        lambda t: t | {"model.layers.0.router.scale": SMALL},
        ["unknown: model.layers.0.router.scale"],
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_tensors_that_are_not_the_model_are_named(folder, name):
    how, messages = WRONG[name]
    with pytest.raises(TensorError) as caught:
        names_of(checkpoints.change(folder, how))
    for message in messages:
        assert message in caught.value.message
    assert caught.value.message.count("\n") == len(messages)


def test_a_long_list_is_cut_and_says_so(folder):
    with pytest.raises(TensorError) as caught:
        names_of(checkpoints.change(folder, lambda t: t | {f"x.{i}": SMALL for i in range(50)}))
    assert "unknown: x.29\n" in caught.value.message and "unknown: 20 more" in caught.value.message


def test_weights_of_another_model(folder):
    checkpoints.write(folder / "model.safetensors", {"transformer.wte.weight": SMALL})
    with pytest.raises(TensorError, match="none of the 1 tensors belongs to a Gemma 4 text model"):
        names_of(folder)


def test_ownership_comes_from_the_config_not_from_tensors(folder):
    """K/V of a layer that borrows are unused; those of an owner are required."""
    kv = {name: SMALL for name in (V_SHARED, V_SHARED.replace("v_proj", "k_proj"))}
    found = names_of(checkpoints.change(folder, lambda tensors: tensors | kv))
    assert set(found.unused) == set(kv)
    with pytest.raises(TensorError, match=r"missing: model\.layers\.5\.self_attn\.k_proj\.weight"):
        names_of(checkpoints.change(folder, without("model.layers.5.self_attn.k_proj.weight")))


def test_keys_that_are_values_leave_no_place_for_v(folder):
    full = [f"model.layers.{i}.self_attn.v_proj.weight" for i in (4,)]
    checkpoints.write_config(folder, checkpoints.tiny_config() | {"attention_k_eq_v": True})
    with pytest.raises(TensorError, match=rf"unknown: {full[0]}"):
        names_of(folder)
    assert full[0] not in names_of(checkpoints.change(folder, without(*full))).used


def test_sharded_and_renamed_at_once(tmp_path, folder):
    expected = contents(names_of(folder))
    checkpoints.shard(checkpoints.rename(folder, PREFIXES["bare"]))
    assert contents(names_of(folder)) == expected
