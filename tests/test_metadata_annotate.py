"""The annotated copy: the same object, and comments that are true of this package alone."""

from typing import Any

import pytest

import checkpoints
from cabochon.metadata import yaml
from cabochon.metadata.annotate import comments
from cabochon.metadata.decoder import Decoder
from cabochon.metadata.derive import decoder_document
from cabochon.metadata.forms import dump
from cabochon.metadata.identity import identity
from decoders import E2B, decoder


def annotated(held: Decoder) -> str:
    document = decoder_document(held)
    return yaml.write(dump(document, "v1"), comments(document, held)).decode()


def said(text: str) -> str:
    return "\n".join(line.strip() for line in text.splitlines() if line.strip().startswith("#"))


@pytest.mark.parametrize("target", ["default", "onnx-standard", "cuda", "webgpu"])
def test_it_is_the_same_object(target: str):
    held = decoder(target=target)
    plain = dump(decoder_document(held), "v1")
    assert yaml.read(annotated(held).encode(), "copy.yaml") == plain
    assert identity(yaml.read(annotated(held).encode(), "copy.yaml")) == identity(plain)


@pytest.mark.parametrize("config", [None, E2B])
def test_every_comment_stands_above_a_key_that_is_there(config: dict[str, Any] | None):
    held = decoder(config)
    document = decoder_document(held)
    plain = dump(document, "v1")
    found = comments(document, held)
    assert len(found) > 10
    for path, lines in found.items():
        value: Any = plain
        for key in path:
            value = value[key]
        assert lines
        assert all(lines[1:]) or path == ()


def test_e2b_explained():
    text = said(annotated(decoder(E2B)))
    assert "this model has 256 in sliding_attention layers and 512 in full_attention layers" in text
    assert "A layer sees 512 keys, its own token included: all but the last 511 may be dropped." in text
    assert "layers 15-34: they read the cache of another layer and own none." in text
    assert "Layers 4, 9, 14. full_attention: float16 [batch, 1, past_sequence, 512] each." in text
    assert (
        "Layers 0-3, 5-8, 10-13. sliding_attention: float16 [batch, 1, sliding_past_sequence, 256] each."
        in text
    )
    assert "Embeddings were multiplied by 39.1875 on the way in." in text
    assert "30 cells: keys and values of 15 layers." in text


def test_the_text_follows_the_facts():
    """What one package says and another does not."""
    one, other = said(annotated(decoder())), said(annotated(decoder(target="cuda")))
    assert "Zeros may stand anywhere in it" in one
    assert "Zeros may stand anywhere in it" not in other
    assert "Its rows are left-justified" in other
    assert "aliasing forbidden" in one
    assert "aliasing permitted" in other
    assert "An answer ends with one of 1, 6" in one
    narrow = checkpoints.tiny_config("text") | {"sliding_window": 5}
    assert "A layer sees 5 keys, its own token included: all but the last 4 may be dropped." in said(
        annotated(decoder(narrow))
    )


def test_without_borrowers_and_without_a_tokenizer():
    config = checkpoints.tiny_config("text") | {"num_kv_shared_layers": 0}
    text = said(annotated(decoder(config, tokens=None)))
    assert "own none" not in text
    assert "An answer ends" not in text
    assert "20 cells: keys and values of 10 layers." in text


def test_one_head_size_is_no_reason_to_speak_of_two():
    config = checkpoints.tiny_config("text") | {"global_head_dim": 16}
    config.pop("per_layer_config", None)
    text = said(annotated(decoder(config)))
    assert "model.attention: the ports say heads and head size." in text


def test_of_experts_it_is_said_what_has_no_key():
    text = said(annotated(decoder(checkpoints.tiny_config("moe"))))
    assert "`per_expert_scale`, which shares are multiplied by once they add up to one" in text.replace(
        "\n# ", " "
    )
    assert "per_expert_scale" not in said(annotated(decoder()))
