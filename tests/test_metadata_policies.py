"""The policy graphs as a set: their ports, and the loop that they make with a decoder."""

import json
from typing import Any

import onnx
import onnx_ir as ir
import pytest

from cabochon.errors import GraphError
from cabochon.metadata import ports
from cabochon.metadata.policies import POLICIES, policies
from cabochon.metadata.ports import Port, Ports
from packages import Packages
from policy_graphs import MASKS, Loop, decoder, graphs

# Inference metadata, policy components: type and dimensions behind `batch`.
F32, I64, BOOL = "float32", "int64", "bool"
ROWS, SLOT = (I64, "batch"), (I64, "batch", 1)
GOES_ON = {"active": (BOOL, "batch"), "done": (BOOL, "batch")}
LENGTHS = ({"left": ROWS, "right": ROWS, **GOES_ON}, {"total": ROWS})
SIGNATURES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "token_sampler": (
        {"logits": (F32, "batch", "vocabulary"), "temperature": (F32, "batch"), "top_k": ROWS}
        | {"top_p": (F32, "batch"), "min_p": (F32, "batch"), "seed": ROWS, "counter": ROWS, **GOES_ON},
        {"token": ROWS, "next_counter": ROWS},
    ),
    "termination": (
        {"tokens": ROWS, "eos_ids": (I64, "batch", "num_eos"), "eos_lengths": ROWS, "iteration": (I64, 1)}
        | {"max_iterations": ROWS, "active": (BOOL, "batch")},
        {"done": (BOOL, "batch"), "next_active": (BOOL, "batch"), "continue": (BOOL, 1)},
    ),
    "termination_batch_initializer": (
        {
            "input_eos_ids": (I64, "eos_rows", "num_eos"),
            "input_eos_lengths": ROWS,
            "input_max_iterations": ROWS,
        }
        | {"fallback_max_iterations": (I64, 1), "active": (BOOL, "batch")},
        {"row_eos_ids": (I64, "batch", "num_eos"), "eos_lengths": ROWS, "max_iterations": ROWS},
    ),
    "token_state_update": ({"current": SLOT, "update": SLOT, **GOES_ON}, {"next": SLOT}),
    "token_to_slot": ({"token": ROWS}, {"slot": SLOT}),
    "last_token_logits": (
        {"logits": (F32, "batch", "sequence", "vocabulary")},
        {"last_logits": (F32, "batch", "vocabulary")},
    ),
    "cache_length_update": LENGTHS,
    "generated_length_update": LENGTHS,
    "decoder_state_initializer": (
        {
            "prompt_tokens": (I64, "batch", "prompt_sequence"),
            "prompt_lengths": ROWS,
            "max_iterations": (I64, 1),
        },
        {
            "attention_mask": (I64, "batch", "prompt_sequence"),
            "position_ids": (I64, "batch", "prompt_sequence"),
        }
        | {"body_attention_mask": (I64, "batch", "context"), "body_position_ids": SLOT, "token_slot": SLOT}
        | {"generated_lengths": ROWS, "cache_lengths": ROWS}
        | {f"past_key_values.4.{part}": (F32, "batch", 2, "past_sequence", 16) for part in ("key", "value")}
        | {
            f"past_key_values.10.{part}": (F32, "batch", 1, "sliding_past_sequence", 8)
            for part in ("key", "value")
        },
    ),
    "decoder_step_update": (
        {"attention_mask": (I64, "batch", "context"), "logical_length": ROWS, "position_ids": SLOT},
        {"next_attention_mask": (I64, "batch", "next_context"), "next_position_ids": SLOT},
    ),
}


def signature(some: Any) -> dict[str, tuple[Any, ...]]:
    return {port.name: (port.dtype, *port.shape) for port in some.values()}


def test_there_is_a_signature_for_every_policy() -> None:
    assert SIGNATURES.keys() == POLICIES.keys()


@pytest.mark.parametrize("name", SIGNATURES)
@pytest.mark.parametrize("mask", MASKS)
def test_ports(name: str, mask: str) -> None:
    found = ports.read(graphs(mask).models[name])
    assert (signature(found.inputs), signature(found.outputs)) == SIGNATURES[name]
    assert list(signature(found.inputs)) == list(SIGNATURES[name][0])  # in this order


@pytest.mark.parametrize("name", SIGNATURES)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_graphs_are_ai_onnx_alone_and_small(name: str, dtype: str) -> None:
    proto = ir.to_proto(graphs(dtype=dtype).models[name])
    onnx.checker.check_model(proto, full_check=True)
    assert [(o.domain, o.version) for o in proto.opset_import] == [("", 23)]
    assert len(proto.SerializeToString()) < 20_000


def test_graphs_are_the_same_every_time() -> None:
    a, b = (
        [ir.to_proto(m).SerializeToString() for m in policies(decoder(), "anywhere").values()]
        for _ in range(2)
    )
    assert a == b


@pytest.mark.parametrize(
    "inputs, outputs, mask, message",
    [
        (["input_ids"], ["logits"], "anywhere", "no port attention_mask"),
        (["attention_mask"], [], "anywhere", "no port input_ids, logits"),
        (
            ["input_ids", "attention_mask"],
            ["logits"],
            "causal",
            "cabochon.mask: 'causal'; expected anywhere or",
        ),
    ],
)
def test_what_cannot_be_looped(inputs: list[str], outputs: list[str], mask: str, message: str) -> None:
    some = [{name: Port(name, I64, ("batch",)) for name in names} for names in (inputs, outputs)]
    with pytest.raises(GraphError, match=message):
        policies(Ports(*some), mask)


@pytest.mark.parametrize(
    "shape", [("batch", 1, "past", "size"), ("batch", 1, "past"), ("batch", "heads", 0, 8)]
)
def test_what_is_no_cache(shape: tuple[int | str, ...]) -> None:
    some = decoder()
    odd = Port("past_key_values.0.key", F32, shape)
    with pytest.raises(GraphError, match=r"past_key_values.0.key: \[batch, .*\]; expected \[batch, heads"):
        policies(Ports({**some.inputs, odd.name: odd}, some.outputs), "anywhere")


PROMPTS = ["The sea", "Once upon a time there was a lighthouse", "Light"]


@pytest.mark.parametrize("target, precision", [("default", "f32"), ("default", "f16"), ("cuda", "f32")])
def test_the_loop_says_what_the_runtime_says(packages: Packages, target: str, precision: str) -> None:
    """Rows of unequal length together: real tokens first in every row, padding behind."""
    package = packages("miniature", target, precision)
    model, loop = packages.model("miniature", target, precision), Loop(package)
    eos = json.loads((package / "generation_config.json").read_bytes())["eos_token_id"]
    eos = eos if isinstance(eos, list) else [eos]
    prompts = [model.prompt_ids(p) for p in PROMPTS]
    limits = [24, 12, 18]
    expected = [
        model.generate(p, max_new_tokens=n, greedy=True).ids for p, n in zip(prompts, limits, strict=True)
    ]
    assert len({len(p) for p in prompts}) == 3
    assert loop(prompts, limits, eos) == expected
    for row in range(3):
        assert loop(prompts[row : row + 1], limits[row : row + 1], eos) == expected[row : row + 1]


def test_a_row_that_ends_early_leaves_the_others_alone(packages: Packages) -> None:
    model, loop = packages.model("miniature"), Loop(packages("miniature"))
    prompts = [model.prompt_ids(p) for p in PROMPTS[:2]]
    free = loop(prompts, [20, 20], [])
    assert [len(row) for row in free] == [20, 20]
    end = next(t for t in free[0][:12] if t not in free[1])
    assert loop(prompts, [20, 20], [end]) == [free[0][: free[0].index(end) + 1], free[1]]


def test_sampled_rows_do_not_depend_on_the_batch(packages: Packages) -> None:
    model, loop = packages.model("miniature"), Loop(packages("miniature"))
    prompts = [model.prompt_ids(p) for p in PROMPTS]
    how: dict[str, Any] = dict(temperature=1.3, top_k=20, top_p=0.9)
    together = loop(prompts, [8] * 3, [], **how)
    assert together == loop(prompts, [8] * 3, [], **how)
    assert together != loop(prompts, [8] * 3, [])
    for row, prompt in enumerate(prompts):
        assert loop([prompt], [8], [], seed=row, **how) == [together[row]]
