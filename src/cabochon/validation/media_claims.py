"""The rules on what a full package says of media: placeholders, the parts of genai_config.json, shared weights."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from cabochon.metadata.vocabulary import special_names
from cabochon.validation.assembled import COMPONENTS, assembled
from cabochon.validation.blocks import SCALES, stem
from cabochon.validation.findings import Severity
from cabochon.validation.graph import Graph
from cabochon.validation.opened import Opened
from cabochon.validation.rules import Found, rule
from cabochon.validation.statements import (
    GENAI,
    NEEDS,
    NOTHING,
    differing,
    entries,
    inside,
)
from cabochon.validation.tokenizer_file import tokens

__all__: list[str] = []

CONFIG = "config.json"
_PLACEHOLDERS = ("image", "video", "audio")
_AROUND = ("boi", "eoi", "boa", "eoa")
_OLD = {"eoa_token_id": "eoa_token_index"}


@rule("HON026", Severity.ERROR, NEEDS)
def placeholder_differs(package: Opened) -> Iterator[Found]:
    """A token that stands for a picture or for sound is not the same everywhere.

    Causes: the tokenizer or the config of another checkpoint; an id copied from another model; an embedding that was
    built from another config. Features then take the place of words, or of nothing.
    Remedy: take config.json, the tokenizer's files and the graphs from one checkpoint.
    """
    found = assembled(package)
    if found is None:
        return
    texts = dict(special_names(package.json("tokenizer_config.json") or {}))
    ids = {text: number for number, text in tokens(package).added.items()}
    for name in (*_PLACEHOLDERS, *_AROUND):
        key = f"{name}_token_id"
        number = found.config.get(key, found.config.get(_OLD.get(key, key)))
        if not isinstance(number, int):
            continue
        real = ids.get(texts.get(f"{name}_token", ""))
        if real is not None and real != number:
            yield Found(
                f"{CONFIG}: {key}", str(number), f"{real}, as the tokenizer has {texts[f'{name}_token']!r}"
            )
        said = inside(package.json(GENAI), "model", key)
        if said is not None and said != number:
            yield Found(f"{GENAI}: model.{key}", str(said), f"{number}, as {CONFIG} says")
        if name in _PLACEHOLDERS and (graph := found.graphs.get("embedding")):
            yield from _in_graph(graph, key, number)


def _in_graph(graph: Graph, key: str, number: int) -> Iterator[Found]:
    """The property, and a constant that ids are compared with."""
    said = graph.properties.get(f"cabochon.{key}")
    if said is not None and said != str(number):
        yield Found(f"{graph.path}: cabochon.{key}", said, f"{number}, as {CONFIG} says")
    medium = "audio_features" if key == "audio_token_id" else "image_features"
    if medium in graph.ports.inputs and number not in _compared(graph):
        yield Found(f"{graph.path}: {key}", f"ids are not compared with {number}", f"a place for {medium}")


def _compared(graph: Graph) -> set[int]:
    """The constants that values are compared with."""
    values = (graph.inline(name) for node in graph.nodes if node.op_type == "Equal" for name in node.input)
    return {int(n) for value in values if value is not None for n in np.asarray(value).reshape(-1)[:64]}


@rule("HON029", Severity.ERROR, ("graphs",))
def genai_parts_differ(package: Opened) -> Iterator[Found]:
    """genai_config.json claims of embedding or encoders what their graphs contradict.

    Causes: names were copied from another model; a field was invented, such as spatial_merge_size; a part was left out.
    Remedy: build the package again: every entry of genai_config.json is derived.
    """
    found, said = assembled(package), package.json(GENAI)
    if found is None or said is None:
        return
    model = entries(said, "model")
    yield from differing(f"{GENAI}: model", model, {"type": _kind(found.config)})
    for part, component in _PARTS.items():
        graph, stated = found.graphs.get(component), entries(model, part)
        if graph is None:
            yield from differing(f"{GENAI}: model.{part}", stated, {"filename": NOTHING})
        elif not stated.get("filename"):
            yield Found(f"{GENAI}: model.{part}.filename", "nothing", COMPONENTS[component])
        else:
            real = {"filename": graph.path, "spatial_merge_size": NOTHING}
            yield from differing(f"{GENAI}: model.{part}", stated, real)
            yield from _ports(f"{GENAI}: model.{part}", stated, graph)


def _kind(config: Mapping[str, Any]) -> str:
    """onnxruntime-genai counts the tokens of a model without encoders in another way."""
    return "gemma4_unified" if config.get("model_type") == "gemma4_unified" else "gemma4"


_PARTS = {"embedding": "embedding", "vision": "vision_encoder", "speech": "audio_encoder"}


def _ports(at: str, stated: Mapping[str, Any], graph: Graph) -> Iterator[Found]:
    """Every name is a port, and every port that must be fed has a name."""
    sides = {"inputs": graph.ports.inputs, "outputs": graph.ports.outputs}
    for side, real in sides.items():
        names = entries(stated, side)
        for key, name in names.items():
            if not isinstance(name, str) or name not in real:
                yield Found(f"{at}.{side}.{key}", repr(name), f"one of the {side} of {graph.path}")
        for port in real.values():
            if names and port.name not in names.values() and not port.optional:
                yield Found(
                    f"{at}.{side}", f"nothing of {port.name!r}", f"every one of the {side} of {graph.path}"
                )


@rule("HON030", Severity.ERROR, (*NEEDS, "weights"))
def shared_weight_differs(package: Opened) -> Iterator[Found]:
    """Two components hold different weights under one name.

    Causes: components of two builds, or of two checkpoints, in one package. The rows that are looked up are then not
    those of the head.
    Remedy: build the package again.
    """
    found = assembled(package)
    holders = dict[str, list[Graph]]()
    for graph in found.graphs.values() if found else ():
        for name, weight in graph.initializers.items():
            if weight.external:
                holders.setdefault(name, []).append(graph)
    for name, (first, *others) in holders.items():
        for other in others:
            if what := _difference(first, other, name):
                yield Found(f"{other.path}: {name}", what, f"the weight of {first.path}")


def _difference(first: Graph, other: Graph, name: str) -> str:
    one, two = first.initializers[name], other.initializers[name]
    scales = f"{stem(name)}{SCALES}"
    sights = scales in first.initializers and name != scales and one.nbytes == two.nbytes
    if (one.dtype, one.shape) != (two.dtype, two.shape) and not sights:  # codes may be seen in several shapes
        return f"{two.dtype} {list(two.shape)}, where the other is {one.dtype} {list(one.shape)}"
    if _file(first, name) == _file(other, name):
        return ""
    same = np.array_equal(first.raw(name), other.raw(name))
    return "" if same else "other bytes"


def _file(graph: Graph, name: str) -> tuple[int, int, str]:
    """The file on the disk, whatever it is called, and the place in it."""
    external = graph.initializers[name].external
    assert external is not None
    stat = (graph.root / graph.folder() / (external.location or "")).stat()
    return stat.st_dev, stat.st_ino, external.offset or "0"
