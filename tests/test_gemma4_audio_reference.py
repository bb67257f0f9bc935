"""The audio encoder's graph against transformers: windows, masks and values that the recorded clip does not have."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from audio_encoders import PROJECTION, TOWER, Encoder, random_encoder, sound, together
from graphs import difference

pytestmark = pytest.mark.parity

EXACT = 1e-4
CASES: dict[str, dict[str, Any]] = {
    "published": {},
    "looks ahead": dict(attention_context_right=3),
    "looks one frame ahead, which is none": dict(attention_context_right=1),
    "long blocks, short windows": dict(attention_chunk_size=9, attention_context_left=3, attention_context_right=2),
    "long windows, short blocks": dict(attention_chunk_size=2, attention_context_left=9, attention_context_right=6),
    "one frame": dict(attention_chunk_size=1, attention_context_left=2),
    "other values": dict(
        attention_logit_cap=2.5, gradient_clipping=0.7, residual_weight=0.75, rms_norm_eps=0.02, conv_kernel_size=3
    ),
    "no bounds": dict(use_clipped_linears=False, subsampling_conv_channels=[22, 3]),
}  # fmt: skip


def reference(folder: Path) -> Any:
    """The tower and what projects its rows, with the weights of `folder`; none is missing, none is left."""
    import torch
    from transformers import Gemma4Config
    from transformers.models.gemma4.modeling_gemma4 import Gemma4AudioModel, Gemma4MultimodalEmbedder

    from cabochon.checkpoint import open_checkpoint

    torch.set_num_threads(1)
    config = Gemma4Config.from_pretrained(folder)
    weights = {
        name: torch.from_numpy(tensor.array().copy())
        for name, tensor in open_checkpoint(folder).tensors.items()
    }
    tower = Gemma4AudioModel(config.audio_config).float().eval()
    tower.load_state_dict({n.removeprefix(TOWER): v for n, v in weights.items() if n.startswith(TOWER)})
    projection = Gemma4MultimodalEmbedder(config.audio_config, config.text_config).float().eval()
    projection.load_state_dict({"embedding_projection.weight": weights[PROJECTION]})
    return tower, projection


def rows(model: Any, features: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every row of the tower, and the projected rows of real frames."""
    import torch

    tower, projection = model
    with torch.no_grad():
        found = tower(torch.from_numpy(features), torch.from_numpy(mask))
        projected = projection(found.last_hidden_state)[found.attention_mask]
    return found.last_hidden_state.numpy(), projected.numpy()


def masked(how: str) -> tuple[np.ndarray, np.ndarray]:
    clips = [sound(n, mels=16, seed=n) for n in (99, 1, 42, 17)]
    features, mask = together(clips, more=6, fill=2.0)
    if how == "holes":
        mask[0, :30], mask[0, 50:70], mask[2, 1::2] = False, False, False
    return features, mask


@pytest.mark.parametrize("how", ["padding", "holes"])
@pytest.mark.parametrize("name", CASES)
def test_rows_are_those_of_transformers(tmp_path: Path, name: str, how: str) -> None:
    folder = random_encoder(tmp_path, loud=2.0, **CASES[name])
    model, (features, mask) = reference(folder), masked(how)
    if "subsampling_conv_channels" in CASES[name]:
        features = np.concatenate([features, features[..., :4]], axis=-1)
    hidden, expected = rows(model, features, mask)
    for target in ("default", "webgpu"):
        encoder = Encoder(folder, target)
        assert difference(encoder.hidden(features, mask)[0], hidden) < EXACT
        assert difference(encoder.run(features, mask), expected) < EXACT


def test_f16_is_as_close_as_that_of_transformers(tmp_path: Path) -> None:
    import torch

    folder = random_encoder(tmp_path)
    model, (features, mask) = reference(folder), masked("padding")
    exact = rows(model, features, mask)[1]
    halves = tuple(part.to(torch.float16) for part in model)
    theirs = rows(halves, features, mask)[1]
    ours = Encoder(folder, "default", "f16").run(features, mask)
    print(difference(ours, exact), difference(theirs, exact))
    assert difference(ours, exact) < 2 * difference(theirs, exact)
