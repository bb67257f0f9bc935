"""The workflow as a whole."""

from typing import Annotated, Literal

from pydantic import Field

from cabochon.metadata.parts.components import Component
from cabochon.metadata.parts.ends import Input, Output
from cabochon.metadata.parts.part import Count, Names, Part, Tuple, empty
from cabochon.metadata.parts.state import Cell, Serving
from cabochon.metadata.parts.steps import Step

__all__ = [
    "Clonable",
    "Effect",
    "Manifest",
    "Pipeline",
    "Rewindable",
    "SpeculationSafety",
    "Unsafe",
    "Workflow",
]


class Manifest(Part):
    """What a runtime must have; `capabilities` are listed in v1 and must not be in v1.8."""

    adapter_abis: dict[str, str] = empty()
    capabilities: Names | None = None


class Unsafe(Part):
    """Cannot be undone."""

    kind: Literal["none"] = "none"


class Clonable(Part):
    """A copy can be tried."""

    kind: Literal["clonable"] = "clonable"


class Rewindable(Part):
    """Can be undone, `max_depth` steps far."""

    kind: Literal["rewindable"] = "rewindable"
    max_depth: Count


SpeculationSafety = Annotated[Unsafe | Clonable | Rewindable, Field(discriminator="kind")]


class Effect(Part):
    """What a component does to the world, and whether that can be repeated or undone."""

    retry: Literal["pure", "idempotent", "transactional", "non_retryable"]
    speculation_safety: SpeculationSafety = Unsafe()


class Workflow(Part):
    """Inputs, components, state and steps; `publication_mode` from v1.7 on."""

    manifest: Manifest
    publication_mode: Literal["commit_only", "provisional_revisions"] | None = None
    inputs: dict[str, Input] = empty()
    outputs: dict[str, Output] = empty()
    components: dict[str, Component]
    state: dict[str, Cell] = empty()
    effects: dict[str, Effect] = empty()
    steps: Tuple[Step]
    serving: Serving | None = None


class Pipeline(Part):
    """Holds the workflow."""

    workflow: Workflow
