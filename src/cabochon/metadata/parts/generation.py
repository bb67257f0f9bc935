"""Defaults of generation, and the tasks a package can do."""

from typing import Literal

from cabochon.metadata.parts.part import Axis, Count, Open, Part, Text, Token, Tuple, empty

__all__ = [
    "Constraint",
    "Decoding",
    "DecodingVocabulary",
    "Generation",
    "GenerationDefaults",
    "Override",
    "Pooling",
    "Profile",
]


class GenerationDefaults(Open):
    """What holds where a request says nothing."""

    do_sample: bool | None = None
    temperature: float | None = None
    top_k: Count | None = None
    top_p: float | None = None
    repetition_penalty: float | None = None
    num_beams: Count | None = None
    num_return_sequences: Count | None = None
    min_length: Count | None = None
    max_length: Count | None = None
    length_penalty: float | None = None
    no_repeat_ngram_size: Count | None = None
    diversity_penalty: float | None = None
    early_stopping: bool | None = None


class Constraint(Part):
    """Between which numbers a caller may choose."""

    minimum: float | None = None
    maximum: float | None = None


class Override(Part):
    """The workflow input through which a caller may override a default."""

    input: Text
    constraint: Constraint | None = None


class Generation(Part):
    """Defaults, and the only fields a caller may override."""

    defaults: GenerationDefaults | None = None
    overrides: dict[str, Override] = empty()


class Pooling(Part):
    """How the positions of an embedding become one."""

    kind: Literal["mean", "max", "cls", "last_token"]
    axis: Axis
    normalize: bool = False


class DecodingVocabulary(Part):
    """What the classes of a transcription stand for."""

    source: Text
    size: Count | None = None
    tokens: Tuple[str] | None = None
    ignored_tokens: Tuple[str] | None = None
    word_delimiter: str | None = None


class Decoding(Part):
    """How a transcription is read off."""

    kind: Text
    class_axis: Axis
    time_axis: Axis
    blank_id: Token | None = None
    collapse_repeats: bool = False
    lengths: Text | None = None
    vocabulary: DecodingVocabulary | None = None


class Profile(Part):
    """A task. A reader may skip one that is `ignorable`."""

    kind: Text
    version: Text
    requirement: Literal["required", "ignorable"] = "required"
    outputs: dict[str, str] = empty()
    pooling: Pooling | None = None
    decoding: Decoding | None = None
    batch_invariance: Text | None = None
    generation_affecting: bool = False
