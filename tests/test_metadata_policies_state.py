"""Tokens, lengths, masks and caches as they begin and move on, against plain numpy."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy_graphs import MASKS, graphs

ACTIVE, DONE = np.array([1, 1, 0, 0], bool), np.array([0, 1, 0, 1], bool)  # only the first row goes on


def i64(x: Any) -> np.ndarray:
    return np.asarray(x, np.int64)


def begun(tokens: Any, lengths: Any, mask: str = "anywhere", dtype: str = "float32") -> dict[str, np.ndarray]:
    return graphs(mask, dtype)(
        "decoder_state_initializer",
        prompt_tokens=i64(tokens),
        prompt_lengths=i64(lengths),
        max_iterations=i64([5]),
    )


def test_tokens() -> None:
    current, update = i64([[1], [2], [3], [4]]), i64([[5], [6], [7], [8]])
    found = graphs()("token_state_update", current=current, update=update, active=ACTIVE, done=DONE)
    assert found["next"].tolist() == [[5], [2], [3], [4]]
    assert graphs()("token_to_slot", token=i64([5, 6]))["slot"].tolist() == [[5], [6]]


@pytest.mark.parametrize("name", ["cache_length_update", "generated_length_update"])
def test_lengths(name: str) -> None:
    found = graphs()(name, left=i64([1, 2, 3, 4]), right=i64([10] * 4), active=ACTIVE, done=DONE)
    assert found["total"].tolist() == [11, 2, 3, 4]


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("kept", [1, 3])
def test_last_logits_are_f32(dtype: Any, kept: int) -> None:
    logits = np.random.default_rng(0).standard_normal((2, kept, 7)).astype(dtype)
    (found,) = graphs(dtype=np.dtype(dtype).name)("last_token_logits", logits=logits).values()
    assert found.dtype == np.float32
    assert (found == logits[:, -1]).all()


@pytest.mark.parametrize("mask", MASKS)
def test_a_ragged_prompt(mask: str) -> None:
    found = begun([[7, 8, 9], [5, 0, 0], [3, 4, 0], [2, 0, 0]], [-1, 1, 2, 0], mask)
    assert found["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0], [1, 1, 0], [1, 0, 0]]
    assert found["position_ids"].tolist() == [[0, 1, 2], [0, 0, 0], [0, 1, 1], [0, 0, 0]]
    assert found["body_position_ids"].tolist() == [[3], [1], [2], [1]]
    assert found["token_slot"].tolist() == [[9], [5], [4], [2]]
    assert found["generated_lengths"].tolist() == [0] * 4
    assert found["cache_lengths"].tolist() == [3, 1, 2, 1]
    first = {
        "anywhere": [[1, 1, 1, 1], [1, 0, 0, 1], [1, 1, 0, 1], [1, 0, 0, 1]],
        "left-justified": [[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 0, 0]],
    }
    assert found["body_attention_mask"].tolist() == first[mask]


def test_no_row_is_longer_than_the_prompt() -> None:
    assert begun([[7, 8]], [9])["cache_lengths"].tolist() == [2]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_caches_begin_empty(dtype: str) -> None:
    found = begun([[7, 8, 9]] * 2, [-1, 2], dtype=dtype)
    caches = {name: value for name, value in found.items() if name.startswith("past")}
    assert {name: value.shape for name, value in caches.items()} == {
        "past_key_values.4.key": (2, 2, 0, 16),
        "past_key_values.4.value": (2, 2, 0, 16),
        "past_key_values.10.key": (2, 1, 0, 8),
        "past_key_values.10.value": (2, 1, 0, 8),
    }
    assert {value.dtype.name for value in caches.values()} == {dtype}


def test_bf16_graphs_hold_bf16() -> None:
    """onnxruntime hands no bf16 arrays to Python, so that only the other ports can be looked at."""
    models = graphs(dtype="bfloat16").models
    caches = [
        v for v in models["decoder_state_initializer"].graph.outputs if (v.name or "").startswith("past")
    ]
    assert {v.dtype.name for v in caches} == {"BFLOAT16"}
    assert models["last_token_logits"].graph.inputs[0].dtype.name == "BFLOAT16"
    assert models["last_token_logits"].graph.outputs[0].dtype.name == "FLOAT"


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.integers(1, 6), st.sampled_from(MASKS))
def test_steps_follow_the_prompt(noise: int, rows: int, width: int, kind: str) -> None:
    """Each step the mask is one column wider, and each row has one more real token in it, where the kernel wants it."""
    random = np.random.default_rng(noise)
    lengths = random.integers(1, width + 1, rows)
    begin = begun(random.integers(0, 9, (rows, width)), lengths, kind)
    mask, positions, real = begin["attention_mask"], begin["body_position_ids"], begin["cache_lengths"]
    for step in range(1, 5):
        found = graphs(kind)(
            "decoder_step_update", attention_mask=mask, logical_length=real, position_ids=positions
        )
        mask = found["next_attention_mask"]
        expected = np.arange(width + step) < lengths[:, None] + step
        if kind == "anywhere":
            expected = np.hstack([np.arange(width) < lengths[:, None], np.ones((rows, step), bool)])
        assert (mask == expected).all() and mask.dtype == np.int64
        if step == 1:
            assert (mask == begin["body_attention_mask"]).all()
        assert positions[:, 0].tolist() == (mask.sum(1) - 1).tolist()
        positions, real = found["next_position_ids"], real + 1
