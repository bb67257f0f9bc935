"""The drafter's graph against transformers itself, fed as its candidate generator feeds it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import checkpoints
from drafters import Drafter, Shared, Truth, random_drafter
from graphs import difference

pytestmark = pytest.mark.parity

UNIFIED = {"model_type": "gemma4_unified_assistant", "use_ordered_embeddings": False}


@pytest.fixture(params=["ordered", "dense", "unified"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "unified":
        values = dict(attention_k_eq_v=True, num_attention_heads=4, num_key_value_heads=2)
        own = dict(model_type="gemma4_unified_text", num_global_key_value_heads=1)
        return random_drafter(tmp_path, UNIFIED, **values, **own)
    return checkpoints.TINY / {"ordered": "assistant", "dense": "assistant-dense"}[request.param]


def reference(folder: Path) -> Any:
    import torch
    import transformers

    torch.set_num_threads(1)
    kind = (
        "Gemma4UnifiedAssistant" if "unified" in (folder / "config.json").read_text() else "Gemma4Assistant"
    )
    loaded = getattr(transformers, kind + "ForCausalLM").from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True
    )
    assert not any(loaded[1].values()), loaded[1]
    return loaded[0].eval()


def step(
    model: Any, inputs: np.ndarray, shared: Shared, mask: np.ndarray | None, position: int
) -> tuple[np.ndarray, np.ndarray]:
    import torch

    with torch.no_grad():
        out = model(
            inputs_embeds=torch.from_numpy(inputs),
            position_ids=torch.tensor([[position]]),
            attention_mask=None if mask is None else torch.from_numpy(mask),
            shared_kv_states={kind: tuple(map(torch.from_numpy, pair)) for kind, pair in shared.items()},
        )
    return out.logits.numpy(), out.last_hidden_state.numpy()


CASES = [(length, sliding, left) for length in (5, 30) for sliding in (None, 15, 9) for left in (0, 3)]


def test_steps_are_those_of_transformers(folder: Path) -> None:
    """Keys up to and beyond the window, a sliding cache that lost its first entries, rows padded on the left."""
    drafter, truth, model = Drafter(folder, "default"), Truth(folder), reference(folder)
    for length, sliding, left in CASES:
        rng = np.random.default_rng(length + left)
        shared = truth.keys(rng, length, min(sliding or length, length))
        x = rng.standard_normal((1, 1, 2 * truth.backbone)).astype(np.float32)
        mask = np.concatenate([np.zeros(left), np.ones(length + 1 - left)])[None].astype(np.int64)
        expected = step(model, x, shared, mask if left else None, length - left)
        found = drafter.run(x, shared, mask)
        assert max(difference(a, b) for a, b in zip(found, expected, strict=True)) < 1e-4, (
            length,
            sliding,
            left,
        )
