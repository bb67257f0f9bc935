"""The rules on what a full package says of media: placeholders, processors, the parts of genai_config.json."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from cabochon.metadata.document import Preprocessing
from cabochon.metadata.vocabulary import special_names
from cabochon.validation.assembled import COMPONENTS, Assembled, assembled, not_understood
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
    documents,
    entries,
    inside,
)
from cabochon.validation.tokenizer_file import tokens

__all__: list[str] = []

CONFIG, PROCESSOR = "config.json", "processor_config.json"
IMAGE, AUDIO = "image_processor.json", "audio_feature_extraction.json"
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


@rule("HON027", Severity.ERROR, NEEDS)
def processor_differs(package: Opened) -> Iterator[Found]:
    """A processor prepares media otherwise than the encoders take them.

    Causes: processor_config.json of another checkpoint; an encoder that was built from another config.
    Remedy: take both from one checkpoint.
    """
    found = assembled(package)
    if found is None:
        return
    if error := not_understood(package):
        yield Found(error.at, error.message, "what this version knows how to prepare")
    pooling = found.described("vision_encoder").get("pooling_kernel_size")
    if found.patch:
        for name in ("image_processor", "video_processor"):
            real = {"patch_size": found.patch, "pooling_kernel_size": pooling}
            yield from differing(f"{PROCESSOR}: {name}", inside(found.processor, name), real)
        yield from differing(
            f"{CONFIG}: vision_config", found.config.get("vision_config"), {"patch_size": found.patch}
        )
        yield from _properties(found)
    if found.mels:
        real = {"feature_size": found.mels}
        yield from differing(
            f"{PROCESSOR}: feature_extractor", inside(found.processor, "feature_extractor"), real
        )


def _properties(found: Assembled) -> Iterator[Found]:
    graph = found.graphs["vision_encoder"]
    for key in ("patch_size", "pooling_kernel_size", "position_embedding_size"):
        said, real = graph.properties.get(f"cabochon.{key}"), found.described("vision_encoder").get(key)
        if said is not None and real is not None and said != str(real):
            yield Found(f"{graph.path}: cabochon.{key}", said, f"{real}, as {CONFIG} says")


@rule("HON028", Severity.ERROR, ("graphs",))
def preparation_differs(package: Opened) -> Iterator[Found]:
    """Media are prepared otherwise for another runtime than processor_config.json says.

    Causes: a file was edited, or kept from another build; a number was taken for another one, such as the budget of
    tokens for that of patches.
    Remedy: build the package again: programs and processor files are derived from processor_config.json.
    """
    found = assembled(package)
    if found is None or not found.processor:
        return
    image, audio = (entries(found.processor, name) for name in ("image_processor", "feature_extractor"))
    for name, document in documents(package):
        if document.preprocessing:
            yield from _programs(f"{name}: preprocessing", document.preprocessing, image, audio)
    yield from _operations(IMAGE, package.json(IMAGE), "Gemma4ImageTransform", _image_attributes(image))
    yield from _operations(AUDIO, package.json(AUDIO), "Gemma4LogMel", _audio_attributes(audio))


Said = Mapping[str, Any]


def _programs(at: str, said: Preprocessing, image: Said, audio: Said) -> Iterator[Found]:
    """Each operation that is there, as far as it speaks."""
    real = {("image", op): values for op, values in _image_operations(image).items()}
    real |= {("audio", op): values for op, values in _audio_operations(audio).items()}
    for medium, program in (("image", said.image), ("audio", said.audio)):
        for i, transform in enumerate(program.transforms if program else ()):
            stated = transform.model_dump(exclude_none=True)
            yield from differing(
                f"{at}.{medium}.transforms[{i}]", stated, real.get((medium, transform.op), {})
            )


def _image_operations(said: Said) -> dict[str, dict[str, Any]]:
    patch, pooling, tokens = (
        said.get(key) for key in ("patch_size", "pooling_kernel_size", "max_soft_tokens")
    )
    budget = tokens * pooling**2 if isinstance(tokens, int) and isinstance(pooling, int) else None
    shape = {"patch_size": patch, "pooling_kernel_size": pooling, "max_patches": budget}
    return {
        "resize": shape if said.get("do_resize") else {"mode": NOTHING},
        "rescale": {"scale": said.get("rescale_factor") if said.get("do_rescale") else NOTHING},
        "normalize": {} if said.get("do_normalize") else {"mean": NOTHING},
        "patchify": {"patch_size": patch, "merge_size": pooling, "coordinate_order": "xy"},
        "pad": {"target_length": budget, "pad_value": 0.0},
    }


def _audio_operations(said: Said) -> dict[str, dict[str, Any]]:
    same = {"num_mel_bins": "feature_size", "n_fft": "fft_length", "hop_length": "hop_length",
            "win_length": "frame_length", "sample_rate": "sampling_rate"}  # fmt: skip
    return {
        "resample": {"sample_rate": said.get("sampling_rate")},
        "downmix": {"channels": 1},
        "log_mel": {key: said.get(name) for key, name in same.items()}
        | {"mel_scale": "htk", "window": "hann"},
    }


def _image_attributes(said: Said) -> dict[str, Any]:
    return {key: said.get(key) for key in ("patch_size", "max_soft_tokens", "pooling_kernel_size")}


def _audio_attributes(said: Said) -> dict[str, Any]:
    rate = said.get("sampling_rate")
    same = ("feature_size", "sampling_rate", "min_frequency", "max_frequency", "mel_floor", "preemphasis")
    lengths = {
        f"{name}_length_ms": 1000.0 * said[f"{name}_length"] / rate
        for name in ("frame", "hop")
        if rate and f"{name}_length" in said
    }
    return {key: said.get(key) for key in same} | lengths


def _operations(name: str, data: Any, kind: str, real: Said) -> Iterator[Found]:
    """The attributes of every operation of a kind in a processor file of onnxruntime-genai."""
    for at, operation in _walk(data, ""):
        if operation.get("type") == kind:
            yield from differing(f"{name}: {at}.attrs", operation.get("attrs"), real)


def _walk(data: Any, at: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if isinstance(data, Mapping):
        yield at, data
    for key, inner in (
        data.items() if isinstance(data, Mapping) else enumerate(data) if isinstance(data, list) else ()
    ):
        yield from _walk(inner, f"{at}[{key}]" if isinstance(key, int) else f"{at}.{key}" if at else str(key))


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
    yield from differing(f"{GENAI}: model", model, {"type": "gemma4"})
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


_PARTS = {"embedding": "embedding", "vision": "vision_encoder", "speech": "audio_encoder"}


def _ports(at: str, stated: Mapping[str, Any], graph: Graph) -> Iterator[Found]:
    """Every name is a port, and every port that must be fed has a name."""
    sides = {"inputs": graph.ports.inputs, "outputs": graph.ports.outputs}
    for side, real in sides.items():
        names = entries(stated, side)
        for key, name in names.items():
            if name not in real:
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
