"""The rules on how media are prepared: by the processors of the package, by documents, for another runtime."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cabochon.gemma4.embedder_config import AudioEmbedder
from cabochon.metadata.document import DTYPES, AudioProgram, ImageProgram, Preprocessing, TensorContract
from cabochon.metadata.media_programs import SAMPLES
from cabochon.metadata.ports import Port
from cabochon.validation.assembled import Assembled, assembled, not_understood
from cabochon.validation.findings import Severity
from cabochon.validation.graph import Graph
from cabochon.validation.opened import Opened
from cabochon.validation.rules import Found, rule
from cabochon.validation.statements import NEEDS, NOTHING, differing, documents, entries

__all__: list[str] = []

CONFIG, PROCESSOR = "config.json", "processor_config.json"
IMAGE, AUDIO = "image_processor.json", "audio_feature_extraction.json"
_SPECTROGRAMS = ("log_mel", "log_mel_spectrogram")
_LOG_MEL, _FRAMES = "Gemma4LogMel", "Gemma4Audio"  # operations of onnxruntime-extensions


@rule("HON027", Severity.ERROR, NEEDS)
def processor_differs(package: Opened) -> Iterator[Found]:
    """A processor prepares media otherwise than the encoders take them.

    Causes: processor_config.json of another checkpoint; an encoder that was built from another config; a spectrogram
    for a model that takes samples, or the reverse; a budget with which a long picture has more patches on a side than
    there are positions.
    Remedy: take both from one checkpoint.
    """
    found = assembled(package)
    if found is None:
        return
    if error := not_understood(package):
        yield Found(error.at, error.message, "what this version knows how to prepare")
    if error := found.misdescribed:
        yield Found(error.at, error.message, "what this version knows how to build")
    if found.patch:
        yield from _seen(found, found.patch)
    if found.frame:
        yield from _heard(found, found.frame)


def _seen(found: Assembled, patch: int) -> Iterator[Found]:
    config = found.seeing
    real = {"patch_size": patch, "pooling_kernel_size": config.pooling_kernel_size if config else None}
    for name in ("image_processor", "video_processor"):
        said = entries(found.processor, name)
        yield from differing(f"{PROCESSOR}: {name}", said, real)
        if config and (tokens := said.get("max_soft_tokens")):
            yield from _beyond(f"{PROCESSOR}: {name}.max_soft_tokens", tokens, config)
    if config and config.patch_size != patch:
        at, what = f"{CONFIG}: vision_config.patch_size", f"{config.patch_size} pixels on a side of a patch"
        yield Found(at, what, f"{patch}, as {found.graphs['vision_encoder'].path} takes them")
    yield from _properties(found)


def _beyond(at: str, tokens: int, config: Any) -> Iterator[Found]:
    """A picture that is so long that all its tokens stand in one row."""
    pooling, positions = config.pooling_kernel_size, config.position_embedding_size
    if tokens * pooling > positions:
        found = f"{tokens}, with which a picture may be {tokens * pooling} patches long"
        yield Found(at, found, f"at most {positions // pooling}: there are {positions} positions")


def _heard(found: Assembled, frame: int) -> Iterator[Found]:
    config, at = found.hearing, found.graphs["audio_encoder"].path
    if config and config.features != frame:
        what = f"frames of {config.features} numbers"
        yield Found(f"{CONFIG}: audio_config", what, f"{frame}, as {at} takes them")
    real: dict[str, Any] = {"feature_size": frame}
    if config:
        real |= {SAMPLES: frame} if isinstance(config, AudioEmbedder) else {SAMPLES: NOTHING}
    said = entries(found.processor, "feature_extractor")
    yield from differing(f"{PROCESSOR}: feature_extractor", said, real)
    if isinstance(config, AudioEmbedder) and said and SAMPLES not in said:
        yield Found(f"{PROCESSOR}: feature_extractor", "a spectrogram", f"frames of {frame} samples")


def _properties(found: Assembled) -> Iterator[Found]:
    graph = found.graphs["vision_encoder"]
    for key in ("patch_size", "pooling_kernel_size", "position_embedding_size"):
        said, real = graph.properties.get(f"cabochon.{key}"), getattr(found.seeing, key, None)
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
            yield from _made(f"{name}: preprocessing", document.preprocessing, found)
    yield from _operations(IMAGE, package.json(IMAGE), {"Gemma4ImageTransform": _image_attributes(image)})
    yield from _operations(AUDIO, package.json(AUDIO), _audio_attributes(audio))


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
    common = {"resample": {"sample_rate": said.get("sampling_rate")}, "downmix": {"channels": 1}}
    none = {"op": NOTHING}
    if length := said.get(SAMPLES):
        whole = {"size_multiple": length, "pad_value": 0.0, "mode": "right"}
        frame = {"win_length": length, "hop_length": length}
        return common | {"pad": whole, "frame": frame, "log_mel": none}
    same = {"num_mel_bins": "feature_size", "n_fft": "fft_length", "hop_length": "hop_length",
            "win_length": "frame_length", "sample_rate": "sampling_rate"}  # fmt: skip
    mel = {key: said.get(name) for key, name in same.items()} | {"mel_scale": "htk", "window": "hann"}
    return common | {"log_mel": mel, "frame": none}


def _made(at: str, said: Preprocessing, found: Assembled) -> Iterator[Found]:
    """What a program makes is what the encoder of its medium takes, and made by one of its operations."""
    sound = ("frame",) if SAMPLES in entries(found.processor, "feature_extractor") else _SPECTROGRAMS
    if said.image and (graph := found.graphs.get("vision_encoder")):
        yield from _taken(f"{at}.image", said.image, graph, ("patchify",))
    if said.audio and (graph := found.graphs.get("audio_encoder")):
        yield from _taken(f"{at}.audio", said.audio, graph, sound)


def _taken(
    at: str, program: ImageProgram | AudioProgram, graph: Graph, needed: Sequence[str]
) -> Iterator[Found]:
    if not any(one.op in needed for one in program.transforms):
        yield Found(f"{at}.transforms", f"no {needed[0]}", "one, as the encoder takes what it makes")
    unnamed = any(one.outputs is None for one in program.transforms)
    made = {value for one in program.transforms for value in one.outputs or ()}
    for i, output in enumerate(program.outputs):
        where, port = f"{at}.outputs[{i}]", graph.ports.inputs.get(output.name.rpartition(".")[2])
        if output.source not in made and not unnamed:
            yield Found(f"{where}.source", repr(output.source), "what one of the transforms makes")
        if port is None:
            yield Found(f"{where}.name", repr(output.name), f"an input of {graph.path}")
        elif output.contract and not _fits(output.contract, port):
            what = f"{output.contract.dtype} {list(output.contract.shape or ())}"
            expected = f"{port.dtype} {list(port.shape)}, as the encoder has it"
            yield Found(f"{where}.contract", what, expected)


def _fits(said: TensorContract, taken: Port) -> bool:
    """The same type, rank and numbers; names of dimensions may be others."""
    shape = taken.shape if said.shape is None else said.shape
    sizes = zip(shape, taken.shape, strict=False)
    numbers = ((a, b) for a, b in sizes if isinstance(a, int) and isinstance(b, int))
    same = len(shape) == len(taken.shape) and all(a == b for a, b in numbers)
    return same and DTYPES[said.dtype] == taken.dtype


def _image_attributes(said: Said) -> dict[str, Any]:
    return {key: said.get(key) for key in ("patch_size", "max_soft_tokens", "pooling_kernel_size")}


def _audio_attributes(said: Said) -> dict[str, Said]:
    """Those of each operation; the other one must not be there, and so has none of them."""
    if SAMPLES in said:
        frames = {key: said.get(key) for key in (SAMPLES, "sampling_rate")}
        return {_FRAMES: {"type": "raw_frames", **frames}, _LOG_MEL: {"feature_size": NOTHING}}
    rate = said.get("sampling_rate")
    same = ("feature_size", "sampling_rate", "min_frequency", "max_frequency", "mel_floor", "preemphasis")
    lengths = {
        f"{name}_length_ms": 1000.0 * said[f"{name}_length"] / rate
        for name in ("frame", "hop")
        if rate and f"{name}_length" in said
    }
    return {_LOG_MEL: {key: said.get(key) for key in same} | lengths, _FRAMES: {SAMPLES: NOTHING}}


def _operations(name: str, data: Any, real: Mapping[str, Said]) -> Iterator[Found]:
    """The attributes of every operation of these kinds in a processor file of onnxruntime-genai, and that the one is
    there which prepares the medium."""
    kinds: set[str] = set()
    for at, operation in _walk(data, ""):
        kind = operation.get("type")
        if isinstance(kind, str) and kind in real:
            kinds.add(kind)
            yield from differing(f"{name}: {at}.attrs", operation.get("attrs"), real[kind])
    needed = {kind for kind, values in real.items() if NOTHING not in values.values()}
    if data is not None and (missing := needed - kinds):
        yield Found(name, f"no {' '.join(missing)}", f"one, as {PROCESSOR} has it")


def _walk(data: Any, at: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if isinstance(data, Mapping):
        yield at, data
    for key, inner in (
        data.items() if isinstance(data, Mapping) else enumerate(data) if isinstance(data, list) else ()
    ):
        yield from _walk(inner, f"{at}[{key}]" if isinstance(key, int) else f"{at}.{key}" if at else str(key))
