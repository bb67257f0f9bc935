"""onnxruntime-genai in a process of its own: loads a package, then plays trials on it."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from cabochon.clients.programs.telling import asked, told

og: Any = import_module("onnxruntime_genai")  # not typed, and absent where types are checked


def main() -> None:
    """Load, then every trial; nothing is tried with a package that does not load."""
    og.disable_telemetry_events()
    request = asked()
    model = told("load", lambda: _load(request["package"], request["overlay"]))
    for trial in request["trials"] if model is not None else ():
        told(trial["name"], lambda trial=trial: _play(model, trial))


def _load(package: str, overlay: str) -> Any:
    """On the CPU, whatever provider the package asks for; `overlay` is JSON laid over its config."""
    config = og.Config(package)
    config.clear_providers()
    if overlay:
        config.overlay(overlay)
    return og.Model(config)


def _play(model: Any, trial: Mapping[str, Any]) -> list[list[int]]:
    """The tokens of each row that the last "draw" gave, greedily."""
    parameters = og.GeneratorParams(model)
    parameters.set_search_options(do_sample=False, batch_size=trial["rows"], max_length=trial["room"])
    generator, drawn = og.Generator(model, parameters), list[list[int]]()
    for verb, value in trial["steps"]:
        if verb == "show":
            generator.set_inputs(_prepared(model, value))
        elif verb == "append":
            generator.append_tokens(np.array(value, np.int32))
        elif verb == "rewind":
            generator.rewind_to(value)
        else:
            drawn = _draw(generator, value)
    return drawn


def _prepared(model: Any, value: Mapping[str, Any]) -> Any:
    """A prompt and its files, as its own processor prepares them."""
    how: dict[str, Any] = {}
    if value["image"]:
        how["images"] = og.Images.open(*value["image"])
    if value["audio"]:
        how["audios"] = og.Audios.open(*value["audio"])
    return model.create_multimodal_processor()(value["text"], **how)


def _draw(generator: Any, count: int) -> list[list[int]]:
    steps: list[Sequence[int]] = []
    while len(steps) < count and not generator.is_done():
        generator.generate_next_token()
        steps.append([int(token) for token in generator.get_next_tokens()])
    return [list(row) for row in zip(*steps, strict=True)]


if __name__ == "__main__":
    main()
