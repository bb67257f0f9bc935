"""How recipes call a weight: `component/role`, the same for every layer."""

import re

__all__ = ["address"]

_COMPONENTS = {
    "vision_tower": "vision_encoder",
    "vision_embedder": "vision_encoder",
    "embed_vision": "vision_encoder",
    "audio_tower": "audio_encoder",
    "embed_audio": "audio_encoder",
}
_TOWER = re.compile(rf"model\.({'|'.join(_COMPONENTS)})\.")
_LAYER = re.compile(r"(encoder\.)?layers\.\d+\.")


def address(name: str, component: str) -> str:
    """`decoder/mlp.down_proj` for `model.layers.3.mlp.down_proj.weight` of a model that is the `component` "decoder".

    What belongs to a tower names its own component.
    """
    tower = _TOWER.match(name)
    role = name[tower.end() :] if tower else name.removeprefix("model.")
    role = _LAYER.sub("", role).removesuffix(".weight").removesuffix(".linear")
    return f"{_COMPONENTS[tower[1]] if tower else component}/{role}"
