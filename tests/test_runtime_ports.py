"""Ports by role, and the metadata of docs/architecture.md."""

from typing import Any, NamedTuple

import numpy as np
import pytest

from cabochon.errors import PackageError
from cabochon.runtime.ports import read_contract, read_ports

GOOD = {
    "cabochon.target": "default",
    "cabochon.precision": "f32",
    "cabochon.mask": "anywhere",
    "cabochon.max_positions": "4096",
    "cabochon.sliding_window": "8",
    "someone.else": "is not ours to judge",
}


class Port(NamedTuple):
    name: str
    type: str
    shape: list[Any]


INPUTS = [
    Port("input_ids", "tensor(int64)", ["batch", "sequence"]),
    Port("attention_mask", "tensor(int64)", ["batch", "total_sequence"]),
    Port("past_key_values.0.key", "tensor(float16)", ["batch", 1, "sliding_past_sequence", 16]),
    Port("past_key_values.4.key", "tensor(float16)", ["batch", 2, "past_sequence", 32]),
]
OUTPUTS = [
    Port("logits", "tensor(float16)", ["batch", "kept", 512]),
    Port("hidden_states.9", "tensor(float16)", ["batch", "kept", 64]),
    Port("present.0.key", "tensor(float16)", ["batch", 1, "sliding_present_sequence", 16]),
    Port("present.4.key", "tensor(float16)", ["batch", 2, "present_sequence", 32]),
]
KEEP = [Port("logits_to_keep", "tensor(int64)", [])]


def test_contract_holds_numbers_and_the_kind_of_mask():
    contract = read_contract(GOOD)
    assert (contract.window, contract.max_positions, contract.left_justified) == (8, 4096, False)
    assert read_contract({**GOOD, "cabochon.mask": "left-justified"}).left_justified
    assert read_contract({k: v for k, v in GOOD.items() if "window" not in k}).window is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cabochon.mask": None}, "cabochon.mask is missing"),
        ({"cabochon.target": None}, "cabochon.target is missing"),
        ({"cabochon.mask": "right"}, "cabochon.mask is 'right'; expected one of anywhere, left-justified"),
        ({"cabochon.layout": "2"}, "cabochon.layout is unknown ('2')"),
        (
            {"cabochon.max_positions": "many"},
            "cabochon.max_positions is 'many'; expected a positive whole number",
        ),
        ({"cabochon.sliding_window": "0"}, "cabochon.sliding_window is '0'"),
    ],
)
def test_contract_is_refused(change: dict[str, str | None], message: str):
    metadata = {k: v for k, v in {**GOOD, **change}.items() if v is not None}
    with pytest.raises(PackageError) as caught:
        read_contract(metadata)
    assert message in str(caught.value)
    assert "model.onnx: metadata" in str(caught.value)


def test_ports_by_role():
    ports = read_ports(INPUTS, KEEP, OUTPUTS, read_contract(GOOD))
    assert ports.dtype == np.float16
    assert (ports.vocabulary, ports.hidden, ports.keeps) == (512, "hidden_states.9", True)
    assert [(c.heads, c.size, c.sliding) for c in ports.caches] == [(1, 16, True), (2, 32, False)]
    assert ports.column_bytes(sliding=False) == 2 * 32 * 2
    assert ports.column_bytes(sliding=True) == 16 * 2


def test_ports_without_the_optional_ones():
    ports = read_ports(INPUTS, [], [o for o in OUTPUTS if "hidden" not in o.name], read_contract(GOOD))
    assert (ports.hidden, ports.keeps) == (None, False)


@pytest.mark.parametrize(
    ("inputs", "outputs", "metadata", "message"),
    [
        (INPUTS[1:], OUTPUTS, GOOD, "no input 'input_ids'"),
        (INPUTS, OUTPUTS[1:], GOOD, "no output 'logits'"),
        (INPUTS, OUTPUTS[:-1], GOOD, "no output 'present.4.key'"),
        (
            [*INPUTS[:-1], INPUTS[-1]._replace(type="tensor(float)")],
            OUTPUTS,
            GOOD,
            "'past_key_values.4.key' is tensor(float) and 'logits' tensor(float16); expected one type",
        ),
        ([*INPUTS, Port("pixels", "tensor(float)", [])], OUTPUTS, GOOD, "unknown input 'pixels'"),
        (
            INPUTS,
            [OUTPUTS[0]._replace(shape=["batch", "kept", "v"]), *OUTPUTS[1:]],
            GOOD,
            "dimension 2 of 'logits' is 'v'",
        ),
        (
            INPUTS,
            [OUTPUTS[0]._replace(type="tensor(double)"), *OUTPUTS[1:]],
            GOOD,
            "'logits' is tensor(double)",
        ),
        (
            INPUTS,
            OUTPUTS,
            {k: v for k, v in GOOD.items() if "window" not in k},
            "the graph has sliding caches",
        ),
    ],
)
def test_ports_are_refused(inputs: Any, outputs: Any, metadata: Any, message: str):
    with pytest.raises(PackageError) as caught:
        read_ports(inputs, KEEP, outputs, read_contract(metadata))
    assert message in str(caught.value)


FED = {**GOOD, "cabochon.model": "decoder"}
EMBEDS = Port("inputs_embeds", "tensor(float16)", ["batch", "sequence", 64])
EXTRAS = Port("per_layer_inputs", "tensor(float16)", ["batch", "sequence", 80])


def test_a_fed_decoder():
    contract = read_contract(FED, "decoder/model.onnx")
    assert contract.fed and not read_contract(GOOD).fed
    ports = read_ports([EMBEDS, EXTRAS, *INPUTS[1:]], KEEP, OUTPUTS, contract)
    assert ports.takes == {"inputs_embeds", "per_layer_inputs"} and not ports.whole_images
    assert ports.widths == {"inputs_embeds": 64, "per_layer_inputs": 80}
    seeing = read_ports([EMBEDS, *INPUTS], KEEP, OUTPUTS, contract)
    assert seeing.takes == {"inputs_embeds", "input_ids"} and seeing.whole_images
    text = read_ports(INPUTS, KEEP, OUTPUTS, read_contract(GOOD))
    assert text.takes == {"input_ids"} and not text.whole_images


@pytest.mark.parametrize(
    ("inputs", "metadata", "message"),
    [
        (INPUTS, FED, "the graph has no input 'inputs_embeds'"),
        ([EMBEDS, *INPUTS], GOOD, "unknown input 'inputs_embeds'; expected a text decoder's"),
        (
            [EMBEDS, Port("pixels", "tensor(float)", []), *INPUTS],
            FED,
            "unknown input 'pixels'; expected a fed",
        ),
        (
            [EMBEDS._replace(type="tensor(float)"), *INPUTS],
            FED,
            "'inputs_embeds' is tensor(float) and 'logits'",
        ),
        ([EMBEDS._replace(shape=["b", "s", "h"]), *INPUTS], FED, "dimension 2 of 'inputs_embeds' is 'h'"),
        (
            INPUTS,
            {**GOOD, "cabochon.model": "drafter"},
            "cabochon.model is 'drafter'; expected 'decoder', or none",
        ),
    ],
)
def test_fed_decoders_are_refused(inputs: Any, metadata: Any, message: str):
    with pytest.raises(PackageError) as caught:
        read_ports(inputs, KEEP, OUTPUTS, read_contract(metadata, "decoder/model.onnx"))
    assert str(caught.value).startswith("decoder/model.onnx") and message in str(caught.value)
