"""What records and the card must say of experts and of encoders. Independent of the modules that wrote them."""

from collections.abc import Mapping
from typing import Any

from cabochon.gemma4.config import TextConfig
from cabochon.gemma4.embedder_config import AudioEmbedder, VisionEmbedder
from cabochon.validation.assembled import Assembled, assembled
from cabochon.validation.opened import Opened
from cabochon.validation.statements import NOTHING, inside

__all__ = ["encoder_rows", "encoders", "experts"]

_DISABLED = "disabled in this checkpoint (enable_moe_block=false); dense MLP"


def experts(package: Opened, config: TextConfig) -> str:
    """The experts in words."""
    if found := config.experts:
        return (
            f"{found.count} experts of width {found.width}, {found.chosen} for each token, beside a dense MLP"
        )
    raw = package.json("config.json")
    text = inside(raw, "text_config") or raw
    return _DISABLED if inside(text, "enable_moe_block") is False else NOTHING


def encoders(package: Opened) -> dict[str, Mapping[str, Any]]:
    """What is true of "vision" and "audio": nothing of what is neither there nor in config.json.

    A medium of which one of both speaks alone, or what is not understood, is left out: other rules find that.
    """
    found = assembled(package)
    if found is None:
        return {"vision": {}, "audio": {}}
    real = {"vision": _vision(found), "audio": _audio(found)}
    absent = {
        name
        for name in real
        if f"{name}_encoder" not in found.graphs and not found.described(f"{name}_encoder")
    }
    return {name: values for name, values in real.items() if values or name in absent}


def _vision(found: Assembled) -> dict[str, Any]:
    """None is what graph and config.json say differently: HON027 finds that."""
    config, graph, decoder = (found.seeing, *map(found.graphs.get, ("vision_encoder", "decoder")))
    if config is None or graph is None or decoder is None:
        return {}

    def stated(key: str) -> int | None:
        number = getattr(config, key)
        return number if graph.properties.get(f"cabochon.{key}") in (None, str(number)) else None

    both = {
        "hidden_size": config.hidden,
        "patch_size": stated("patch_size") if config.patch_size == found.patch else None,
        "bidirectional_in_sliding_layers": "input_ids" in decoder.ports.inputs,
    }
    if isinstance(config, VisionEmbedder):
        return {"encoder_free": True, "position_embedding_size": stated("position_embedding_size"), **both}
    return {
        "encoder_free": NOTHING,
        "num_hidden_layers": config.layers,
        "pooling_kernel_size": stated("pooling_kernel_size"),
        "standardize": config.standardize,
        "use_clipped_linears": config.clipped,
        **both,
    }


def _audio(found: Assembled) -> dict[str, Any]:
    config = found.hearing
    if config is None or "audio_encoder" not in found.graphs:
        return {}
    if isinstance(config, AudioEmbedder):
        return {
            "encoder_free": True,
            "samples_per_token": config.features if config.features == found.frame else None,
        }
    return {
        "encoder_free": NOTHING,
        "num_hidden_layers": config.layers,
        "hidden_size": config.hidden,
        "use_clipped_linears": config.clipped,
    }


def encoder_rows(package: Opened) -> dict[str, list[str]]:
    """What the rows of the card's table must contain that speak of media; "nothing" of those that must not be there."""
    rows: dict[str, list[str]] = {}
    for medium, real in encoders(package).items():
        names = f"{medium.capitalize()} encoder", f"{medium.capitalize()}, without an encoder"
        said = [f"{k}={v}" for k, v in real.items() if k != "encoder_free" and v is not None]
        own = names[real.get("encoder_free") is True]
        rows |= {name: said if real and name == own else [NOTHING] for name in names}
    return rows
