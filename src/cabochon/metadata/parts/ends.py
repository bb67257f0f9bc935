"""Inputs and outputs of the workflow: where values come from, what they mean, and what becomes of them."""

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, model_validator

from cabochon.metadata.parts.part import READING, Part, Positive, Scalar, Text, Tuple
from cabochon.metadata.parts.tensors import TensorContract

__all__ = [
    "Application",
    "Artifact",
    "Events",
    "Family",
    "Input",
    "LiteralSource",
    "Materialized",
    "Media",
    "Opaque",
    "Output",
    "Request",
    "Revisions",
    "Role",
    "RuntimeRole",
    "RuntimeRoleName",
    "Source",
]

RuntimeRoleName = Literal[
    "prompt_text",
    "prompt_tokens",
    "negative_prompt_text",
    "negative_prompt_tokens",
    "media",
    "max_iterations",
    "max_output_tokens",
    "seed",
    "guidance_scale",
    "width",
    "height",
    "denoising_strength",
    "sampling_temperature",
    "sampling_top_k",
    "sampling_top_p",
    "sampling_min_p",
    "constraint",
    "session_id",
    "row_selection",
    "adapter_segments",
    "adapter_counts",
    "adapter_scales",
    "adapter_active",
    "eos_token_ids",  # the last two from v1.2 on
    "eos_token_lengths",
]


class Opaque(Part):
    """A role that the runtime does not know."""

    kind: Literal["opaque"] = "opaque"


class _Versioned(Part):
    """A document must say the version; who makes a part may leave it at the one there is."""

    @model_validator(mode="before")
    @classmethod
    def _said(cls, data: Any, info: ValidationInfo) -> Any:
        if info.context == READING and isinstance(data, dict) and "version" not in data:
            raise ValueError("the key `version`")
        return data


class RuntimeRole(_Versioned):
    """A role that the runtime fills."""

    kind: Literal["runtime"] = "runtime"
    version: Text = "1.0"
    role: RuntimeRoleName


Role = Annotated[Opaque | RuntimeRole, Field(discriminator="kind")]


class Request(Part):
    """The value comes with each request."""

    kind: Literal["request"] = "request"


class LiteralSource(Part):
    """The value is the default written here."""

    kind: Literal["literal"] = "literal"


class Application(Part):
    """The application supplies it under `name`."""

    kind: Literal["application"] = "application"
    name: Text


class Artifact(Part):
    """The value is a file of the package."""

    kind: Literal["artifact"] = "artifact"
    path: Text


Source = Annotated[Request | LiteralSource | Application | Artifact, Field(discriminator="kind")]


class Input(Part):
    """A value that comes from outside of the workflow."""

    contract: TensorContract
    role: Role
    source: Source
    required: bool = True
    default: Scalar | Tuple[Scalar] | None = None
    present_as: Text | None = None
    externally_suppliable: bool = False


class Media(Part):
    """How sound leaves the workflow."""

    container: Literal["raw", "wav"]
    encoding: Literal["pcm_s16_le", "pcm_f32_le"]
    delivery: Literal["buffered", "streaming"] | None = None
    channels: Annotated[int, Field(ge=0, le=65535)] | None = None
    sample_rate_hz: Positive | None = None
    source_sample_rate_hz: Positive | None = None


class Materialized(Part):
    """The output is there when the workflow is done."""

    kind: Literal["materialized"] = "materialized"


class Events(Part):
    """The output is a stream of events."""

    kind: Literal["events"] = "events"


class Revisions(_Versioned):
    """The output is revised while it comes."""

    kind: Literal["revisions"] = "revisions"
    version: Text = "1"


Family = Annotated[Materialized | Events | Revisions, Field(discriminator="kind")]


class Output(Part):
    """A value that leaves the workflow; `family` from v1.5 on."""

    contract: TensorContract
    role: Literal["tokens", "text", "image", "video", "audio", "tensor", "event"]
    value_range: Literal["zero_to_one", "negative_one_to_one", "zero_to_255"] | None = None
    family: Family | None = None
    stage: Literal["pre_adapter", "post_adapter"]
    media: Media | None = None
