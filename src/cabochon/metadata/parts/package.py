"""Facts of the package that a request is read with: the tokenizer, and what can be constrained."""

from typing import Annotated, Any

from pydantic import Discriminator, Tag

from cabochon.metadata.parts.part import Filled, Part, Positive, Text, Token, Tuple

__all__ = [
    "ConstraintLanguage",
    "Package",
    "SpecialToken",
    "SpecialTokenIds",
    "SpecialTokens",
    "Tokenizer",
    "TokenizerArtifact",
    "ToolProtocol",
]


class SpecialToken(Part):
    """A special token as v1 says it."""

    id: Token
    content: Text


class SpecialTokenIds(Part):
    """Special tokens as they are said from v1.2 on: numbers alone."""

    pad_token_id: Token | None = None
    bos_token_id: Token | None = None
    eos_token_id: Filled[Token] | None = None
    sep_token_id: Token | None = None
    decoder_start_token_id: Token | None = None
    image_token_id: Token | None = None
    video_token_id: Token | None = None
    audio_token_id: Token | None = None
    vision_start_token_id: Token | None = None


def _shape(value: Any) -> str:
    if isinstance(value, SpecialTokenIds):
        return "numeric"
    numeric = (
        isinstance(value, dict)
        and bool(value)
        and not any(isinstance(v, dict | SpecialToken) for v in value.values())
    )
    return "numeric" if numeric else "roles"


SpecialTokens = Annotated[
    Annotated[dict[str, SpecialToken], Tag("roles")] | Annotated[SpecialTokenIds, Tag("numeric")],
    Discriminator(_shape),
]


class TokenizerArtifact(Part):
    """A file of the tokenizer."""

    location: Text


class Tokenizer(Part):
    """What kind of tokenizer; `algorithm` and `vocab_size` must be said in v1."""

    algorithm: Text | None = None
    vocab_size: Positive | None = None
    byte_level: bool = False
    artifacts: Filled[TokenizerArtifact] | None = None
    special_tokens: SpecialTokens | None = None


class ConstraintLanguage(Part):
    """A language in which a component takes constraints."""

    dialect: Text
    version: Text
    component: Text


class ToolProtocol(Part):
    """How tools are called, v1.3 and later."""

    identity: Text
    version: Text


class Package(Part):
    """The facts."""

    tokenizer: Tokenizer | None = None
    constraint_languages: Tuple[ConstraintLanguage] = ()
    tool_protocol: ToolProtocol | None = None
