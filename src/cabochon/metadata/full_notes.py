"""Comments for the annotated copy of a full package's document, and what the forms of the document cannot say."""

from collections.abc import Iterator, Mapping
from typing import Any

from cabochon.metadata.annotate import Comments, comments
from cabochon.metadata.document import Document
from cabochon.metadata.full import Full, Medium, features
from cabochon.metadata.media_programs import SAMPLES
from cabochon.metadata.multimodal import ABSENT, preprocessor

__all__ = ["full_comments", "unsaid"]

Path = tuple[str | int, ...]
_WORKFLOW: Path = ("pipeline", "workflow")
_ONE: dict[Medium, str] = {"image": "picture", "audio": "recording"}


def full_comments(document: Document, full: Full) -> Comments:
    """The comments by the path of the key they stand above: those on the decoder, and those on what feeds it."""
    found = {**comments(document, full.decoder), **dict(_notes(full))}
    more = [f"- {each}" for each in unsaid(full)]
    derived = "Derived from the ports of the graphs, from config.json and from the files of tokenizer and processor; "
    head = [
        derived + "written by no hand." if line.startswith("Derived from") else line for line in found[()]
    ]
    found[()] = (*head, "", "What this format has no keys for:", *more)
    return found


def unsaid(full: Full) -> Iterator[str]:
    """What no version of the format can say of a full package, and where it stands instead."""
    tokens = full.tokens
    if full.vision:
        pooled = full.vision.properties.get("cabochon.pooling_kernel_size", "")
        group = "patch of it that is" if pooled == "1" else f"{pooled} x {pooled} patches of it that are"
        stands = _around(tokens, "image_token_id", "boi_token_id", "eoi_token_id")
        yield (
            f"how many tokens stand for a picture: one for each {group} no padding. "
            f"The prompt holds so many of {stands}."
        )
        yield (
            "several pictures in one request: the interface of the adapter takes one file. "
            f"{full.vision.artifact} takes any number; `{features('image')}` are those of all, in order."
        )
    if full.vision and "video_token_id" in tokens:
        yield (
            f"video: its frames are pictures to {full.vision.artifact}, and stand where "
            f"{tokens['video_token_id']} does."
        )
    if full.audio:
        stands = _around(tokens, "audio_token_id", "boa_token_id", "eoa_token_id")
        yield (
            "how many tokens stand for a recording: as many as the encoder gives rows. "
            f"The prompt holds so many of {stands}."
        )
        yield from _sound(full.section("audio"))
    if "input_ids" in full.decoder.ports.inputs:
        yield (
            "that the tokens of a picture see each other on sliding layers: a picture must not be split over two calls."
        )
    if scale := full.embedding.properties.get("cabochon.embed_scale"):
        yield f"the scale of the embedding: rows of its table were multiplied by {scale}; rows of features were not."


def _around(tokens: Mapping[str, int], inner: str, *outer: str) -> str:
    begin, end = (tokens.get(name) for name in outer)
    between = f", between {begin} and {end}" if begin is not None and end is not None else ""
    return f"{tokens[inner]}{between}"


_UNUSUAL = {"preemphasis": 0.0, "input_scale_factor": 1.0, "per_bin_mean": None, "per_bin_stddev": None}


def _sound(said: Mapping[str, Any]) -> Iterator[str]:
    if length := said.get(SAMPLES):
        yield (
            f"what a recording is filled up to: whole frames of {length} samples, with zeros; `size_multiple` is this "
            "format's word for images. There is no spectrogram."
        )
        return
    half = said.get("frame_length", 0) // 2
    yield (
        f"how a recording is framed: {half} zeros come before it, the window is periodic, magnitudes are not squared, "
        f"and the logarithm is natural, of the sum with mel_floor, {said.get('mel_floor')}. mel_floor, min_frequency "
        "and max_frequency are keys of processor_config.json."
    )
    if others := [
        f"{key} {said[key]}" for key, usual in _UNUSUAL.items() if said.get(key, usual) not in (None, usual)
    ]:
        yield f"what else is done to a recording: {', '.join(others)}."


def _notes(full: Full) -> Iterator[tuple[Path, tuple[str, ...]]]:
    yield (
        _WORKFLOW,
        ("One pass: media become features, tokens and features embeddings, and those logits.",),
    )
    for medium, encoder in full.encoders.items():
        yield (
            ("preprocessing", medium),
            (f"From processor_config.json: what {preprocessor(medium)} does with a file.",),
        )
        yield (
            (*_WORKFLOW, "inputs", f"request.{medium}"),
            (f"A {_ONE[medium]} as a file. Without one {ABSENT} gives no rows of features.",),
        )
        yield (
            (*_WORKFLOW, "components", encoder.name, "ports", "outputs", features(medium)),
            ("Rows of all that came in, one behind the other, without padding.",),
        )
    yield (*_WORKFLOW, "components", full.embedding.name), tuple(_embedding(full))


def _embedding(full: Full) -> Iterator[str]:
    for medium in full.encoders:
        names = ("image", "video") if medium == "image" else ("audio",)
        ids = [str(full.tokens[key]) for key in (f"{name}_token_id" for name in names) if key in full.tokens]
        yield (
            f"The n-th row of {features(medium)} takes the place of the n-th {' or '.join(ids)} "
            "of the batch, row by row."
        )
    if "per_layer_inputs" in full.embedding.ports.outputs:
        pad = full.embedding.properties.get("cabochon.pad_token_id")
        yield f"per_layer_inputs: of every layer one part, side by side; those places are looked up there as {pad}."
