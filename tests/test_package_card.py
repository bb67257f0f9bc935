import io
import re
from dataclasses import replace

import pytest
from ruamel.yaml import YAML

from cabochon.dialects import TARGETS
from cabochon.package.card import card
from cabochon.package.license import License
from cabochon.package.notices import requirements, source_license
from checkpoints import TINY, copy
from described import facts, hub_snapshot

FILES = {"model.onnx": "the graph", "a|b": "a | in a name"}


def front(text):
    return YAML(typ="safe").load(io.StringIO(text.split("---\n")[1]))


def test_front_matter_has_the_fields_of_the_seeds(tmp_path):
    text = card(facts(hub_snapshot(tmp_path, "---\nlicense: gemma\n---\n")), FILES)
    assert front(text) == {
        "license": "gemma",
        "base_model": ["google/gemma-4-tiny"],
        "tags": ["onnx", "onnxruntime", "gemma4", "text-generation"],
        "pipeline_tag": "text-generation",
        "library_name": "onnxruntime",
    }
    assert "# gemma-4-tiny: ONNX text decoder (f16, default)" in text


@pytest.mark.parametrize(
    "said, expected",
    [
        ("base_model: org/a", ["org/a"]),
        ("base_model: [org/a, org/b]", ["org/a", "org/b"]),
        ("x: 1", None),
        ("{", None),
    ],
)
def test_a_local_finetune_names_what_its_own_card_names(tmp_path, said, expected):
    source = copy(tmp_path / "source")
    (source / "README.md").write_text(f"---\n{said}\n---\n")
    assert front(card(facts(source), FILES)).get("base_model") == expected


@pytest.mark.parametrize("license", ["no", "1e10", "710e4927", "null", "a: b", "# x"])
def test_yaml_readers_cannot_retype_a_value(license):
    text = card(facts(license=License(license, "given")), FILES)
    assert front(text)["license"] == license
    line = next(line for line in text.splitlines() if line.startswith("license:"))
    assert line.endswith(("'", '"'))


def test_contracts_are_those_of_the_graph_and_the_config():
    text = card(facts(target="cuda"), FILES)
    for row in (
        "| Layers | 10 (`GroupQueryAttention` × 10) |",
        "| Hybrid attention | sliding_window(8) + full_attention every 5th layer (layers 4, 9) |",
        "| **Heterogeneous head size** | local/sliding **16**, global/full **32** |",
        "| Key/value caches | **6** layers own one; the last 4 read another's (`num_kv_shared_layers=4`) |",
        "| MLP | gated GELU (tanh), width 96 in 6 layers, 192 in 4 layers |",
        "| Logits | soft-capped at 30.0; head tied to the embedding table |",
        "| Embedding scale | 8.0 (√hidden in float16) |",
        "| MoE | disabled in this checkpoint (enable_moe_block=false); dense MLP |",
        "| `a\\|b` | a \\| in a name |",
    ):
        assert row in text
    assert "| Fused operators | none |" in card(facts(target="onnx-standard"), FILES)


@pytest.mark.parametrize(
    "target, precision, limit",
    [
        ("default", "f16", "Zeros may stand anywhere in `attention_mask`"),
        ("default", "bf16", "bf16 on default: no released onnxruntime has bf16 kernels for the CPU"),
        ("cuda", "f16", "Rows of `attention_mask` are left-justified: real tokens first"),
        ("cuda", "f32", "f32 on cuda: GroupQueryAttention has no f32 kernel for CUDA"),
    ],
)
def test_limits_are_those_of_the_target(target, precision, limit):
    assert f"- {limit}" in card(facts(target=target, precision=precision), FILES)


def test_nothing_is_claimed_that_a_build_does_not_know():
    text = card(facts(), FILES).lower()
    assert "a build proves nothing about results" in text
    for claim in ("verified", "validated", "parity evidence", "tok/s", "cosine"):
        assert claim not in text


def test_links_are_a_limit():
    assert "`model.onnx.data`: another name of the checkpoint's own file" in card(
        facts(linked=("model.onnx.data",)), FILES
    )


def test_the_card_has_no_line_of_a_machine():
    assert str(TINY.parent) not in card(facts(), FILES)
    assert not re.search(r"\d{4}-\d\d-\d\d", card(facts(), FILES))


def test_source_license_repeats_the_text_that_came_with_the_checkpoint():
    text = source_license(
        facts(license=License("mit", "the source's LICENSE", "MIT License\n\nPermission ...\n"))
    )
    assert text.startswith("# License of text\n\n`mit`: the source's LICENSE.\n")
    assert text.endswith("MIT License\n\nPermission ...\n")


def test_source_license_invents_no_text(tmp_path):
    assert "its text is not repeated here from memory" in source_license(facts())
    gemma = source_license(facts(hub_snapshot(tmp_path, "---\nlicense: gemma\n---\n")))
    assert "Terms: https://ai.google.dev/gemma/terms" in gemma
    assert "Source: https://huggingface.co/google/gemma-4-tiny/tree/" in gemma


def test_requirements_pin_what_is_installed_and_no_more(monkeypatch):
    from cabochon.package import notices

    versions = {"onnxruntime": "1.32.0", "numpy": "2.4.6", "tokenizers": "0.23.3"}
    monkeypatch.setattr(notices, "installed", versions.get)
    pinned = [line for line in requirements(facts()).splitlines() if not line.startswith("#")]
    assert pinned == ["onnxruntime==1.32.0", "numpy==2.4.6", "tokenizers==0.23.3"]
    text = requirements(facts(target="cuda"))
    assert "# CUDAExecutionProvider comes with onnxruntime-gpu, which was not installed there.\n" in text
    assert "onnxruntime==" not in text and "onnxruntime-gpu==" not in text
    assert "# bf16 on default: no released onnxruntime" in requirements(facts(precision="bf16"))


def test_a_browser_is_told_what_its_adapter_must_grant(monkeypatch: pytest.MonkeyPatch):
    said = "The largest tensor has 65,536 bytes; an adapter need not bind more than 1,000."
    target = replace(TARGETS["webgpu"], binding=1000)
    monkeypatch.setitem(TARGETS, "webgpu", target)
    assert said in card(facts(target="webgpu"), FILES)
    monkeypatch.setitem(TARGETS, "webgpu", replace(target, binding=65_536))
    assert "The largest tensor" not in card(facts(target="webgpu"), FILES)


@pytest.mark.parametrize("target", TARGETS)
def test_the_oldest_onnxruntime_is_named_where_it_matters(target: str):
    borrowed = "empty keys of a layer that borrows its cache since onnxruntime 1.27"
    assert (borrowed in card(facts(target=target), FILES)) == (target in ("cuda", "webgpu"))
