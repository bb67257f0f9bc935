"""What a card and a record say of weights in blocks, before anything is built."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from cabochon.package.card import card
from cabochon.package.facts import TextFacts
from cabochon.package.how_stored import covered, how_stored, recipe, stored, titled
from cabochon.package.provenance import provenance
from cabochon.recipes import PRECISIONS
from cabochon.recipes.recipe_file import read_recipe
from cabochon.recipes.statistics import Statistics
from described import facts

TITLE = "How weights are stored"


@pytest.fixture(scope="module")
def described() -> TextFacts:
    return facts(precision="Q4_K_M")


@pytest.fixture(scope="module")
def section(described: TextFacts) -> str:
    return how_stored(described)[TITLE]


def rows(text: str) -> list[list[str]]:
    """The cells of the last table."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    last = max(i for i, line in enumerate(lines) if line.startswith("| ---"))
    return [line.strip("| ").split(" | ") for line in lines[last + 1 :]]


def number(cell: str) -> int:
    return int(cell.replace(",", ""))


def test_the_name_is_the_recipes_and_the_format_is_not_llama_cpps(section: str, described: TextFacts):
    assert (
        "`Q4_K_M` is the name of the recipe. It is not llama.cpp's format of that name: there are no super-blocks"
        in (section)
    )
    assert f"{covered(described).bits_per_weight:.2f} bits per weight" in section
    assert f"Ports and activations are `{described.precision.activations}`." in section
    assert "| `*` | 4 bits in blocks of 32, symmetric, k-quant |" in section
    assert "| `vision_encoder/*` | 8 bits in blocks of 32, symmetric, round |" in section


def test_what_the_kernels_round_is_read_off_the_graph(section: str):
    assert "ask for `accuracy_level` 4, which rounds activations to 8 bits, block by block." in section
    assert "accuracy_level" not in how_stored(facts(target="cuda", precision="Q4_K_M"))[TITLE]


def test_the_table_sums_to_the_file(section: str, described: TextFacts):
    *lines, padding, together = rows(section)
    assert sum(number(cells[-1]) for cells in lines) + number(padding[-1]) == number(together[-1])
    assert number(together[-1]) == described.digests["model.onnx.data"].nbytes
    assert {cells[0] for cells in lines} == {"`decoder`"} and together[0] == "all"
    (blocks,) = (cells for cells in lines if "`mlp.down_proj`" in cells[2])
    assert blocks[1].startswith("4 bits in blocks of 32, symmetric, k-quant, scales f")
    (floats,) = (cells for cells in lines if cells[1] == described.precision.activations)
    assert re.search(r"and \d+ roles more$", floats[2]) and floats[4] == "32.00"


def test_the_card_has_it_and_the_types_of_feeds_are_those_of_activations(described: TextFacts):
    text = card(described, {})
    kind = described.precision.activations
    assert titled(described) == f"Q4_K_M, activations {kind}"
    assert f"# text: ONNX text decoder (Q4_K_M, activations {kind}, default)" in text
    assert f"past = np.zeros((1, heads, 0, size), np.{described.dtype})" in text
    assert f"\n## {TITLE}\n\n`Q4_K_M` is" in text
    assert TITLE not in card(facts(), {}) and titled(facts()) == "f16"


def test_the_record_holds_the_recipe_as_it_was_resolved(described: TextFacts):
    said = json.loads(provenance(described))["build"]
    assert (said["precision"], said["dtype"]) == ("Q4_K_M", described.dtype)
    read: Any = read_recipe({"name": "again", "rules": said["recipe"]}, "provenance.json")
    assert read.rules == described.precision.rules
    assert all(rule.symmetric is not None for rule in read.rules)
    assert PRECISIONS["Q4_K_M"].rules[0].symmetric is None  # which the target decides
    assert recipe(facts()) == {}


def test_what_a_text_said_of_the_weights_is_named(described: TextFacts):
    said = Statistics({}, "king-james.txt", "ab" * 32, 4096, 9)
    precision = replace(described.precision, statistics=said)
    calibrated = replace(described, precision=precision)
    assert recipe(calibrated)["calibration"] == {
        "text": "king-james.txt",
        "sha256": "ab" * 32,
        "tokens": 4096,
        "windows": 9,
    }
    assert "in 4,096 tokens of `king-james.txt` (SHA-256 `abababababab…`)" in how_stored(calibrated)[TITLE]
    assert "calibration" not in recipe(described)


def test_the_record_counts_what_is_stored(described: TextFacts):
    said = json.loads(provenance(described))["build"]["stored"]
    assert said["bytes"] == described.digests["model.onnx.data"].nbytes
    assert said["bytes"] == sum(line["bytes"] for line in said["weights"]) + said["padding"]
    assert said["bits_per_weight"] == pytest.approx(
        8 * (said["bytes"] - said["padding"]) / said["parameters"], abs=1e-4
    )
    (line,) = (line for line in said["weights"] if line["role"] == "self_attn.q_proj")
    assert {key: line[key] for key in ("component", "precision", "count")} == {
        "component": "decoder",
        "precision": "4 bits in blocks of 32, symmetric, k-quant",
        "count": 10,
    }
    assert all("scales" in line for line in said["weights"] if "blocks" in line["precision"])


def test_what_a_linked_file_holds_besides_is_no_padding():
    linked = facts(precision="f16", linked=("model.onnx.data",))
    assert "padding" not in stored(linked) and stored(linked)["padding_and_unused"] > 0
    quantized = facts(precision="Q4_K_M", linked=("model.onnx.data",))
    assert "|  | padding, and what linked files hold besides |" in how_stored(quantized)[TITLE]


def test_a_head_that_is_stored_apart_is_a_tensor_that_is_used():
    said = json.loads(provenance(facts(precision="Q4_K_M-uniform")))["tensors"]["used"]
    assert said["lm_head.weight"] == said["model.embed_tokens.weight"]
