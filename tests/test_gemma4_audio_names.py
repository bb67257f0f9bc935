import json
import math
from pathlib import Path

import pytest

import checkpoints
from audio_encoders import configured
from cabochon.checkpoint import open_checkpoint
from cabochon.gemma4.audio_config import read_audio_config
from cabochon.gemma4.audio_names import audio_shapes

GEOMETRIES = Path(__file__).parent / "data" / "geometries"
TINY = checkpoints.TINY / "target"


def test_every_tensor_of_the_tiny_encoder() -> None:
    config, width = configured(TINY)
    held = {n: t.shape for n, t in open_checkpoint(TINY).tensors.items() if "audio" in n}
    assert audio_shapes(config, width) == held
    assert len(held) == 5 + 2 * 62 + 3


def test_without_bounds_linear_maps_have_a_weight_and_nothing_else() -> None:
    raw = checkpoints.tiny_config("target")
    raw["audio_config"]["use_clipped_linears"] = False
    config = read_audio_config(raw)
    assert config is not None
    shapes = audio_shapes(config, 64)
    assert () not in shapes.values()
    assert len(shapes) == 5 + 2 * 22 + 3


@pytest.mark.parametrize(("geometry", "width"), [("e2b", 1536), ("e4b", 2560)])
def test_published_encoders(geometry: str, width: int) -> None:
    """As many tensors and numbers as transformers' own tower has, counted on its meta device, and the projection."""
    config = read_audio_config(json.loads((GEOMETRIES / f"{geometry}.json").read_text()))
    assert config is not None
    shapes = audio_shapes(config, width)
    assert shapes["model.audio_tower.subsample_conv_projection.input_proj_linear.weight"] == (1024, 1024)
    assert shapes.pop("model.embed_audio.embedding_projection.weight") == (width, 1536)
    assert (len(shapes), sum(math.prod(shape) for shape in shapes.values())) == (751, 304_825_088)
