"""LoRA adapters that a runtime may lay over the weights."""

from typing import Literal

from cabochon.metadata.parts.part import Count, Dtype, Part, Tuple, empty

__all__ = [
    "AdapterArtifact",
    "AdapterBinding",
    "AdapterCache",
    "AdapterPlanning",
    "AdapterProvenance",
    "AdapterSelection",
    "AdapterTarget",
    "AdapterTargets",
    "AdapterWeight",
    "Adapters",
    "GraphInputs",
    "TargetSlice",
]


class AdapterBinding(Part):
    """Which weights of an adapter go to which target."""

    target: str
    weight_key: str
    rank: Count | None = None
    alpha: float | None = None


class AdapterWeight(Part):
    """A file of weights."""

    location: str
    config_location: str | None = None
    format: Literal["json", "ort_genai", "hf_peft", "safetensors"] | None = None
    loader_capability: str
    scale_encoding: Literal["alpha_over_rank", "baked"]


class AdapterProvenance(Part):
    """Where an adapter comes from."""

    producer: str
    source: str | None = None
    revision: str | None = None


class AdapterArtifact(Part):
    """One adapter."""

    index: Count
    identity: str
    version: str
    rank: Count
    alpha: float
    dtype: Dtype
    weights: Tuple[AdapterWeight] = ()
    bindings: Tuple[AdapterBinding] = ()
    provenance: AdapterProvenance | None = None


class TargetSlice(Part):
    """A stretch of a target's output."""

    role: str
    offset: Count
    width: Count
    rank: Count | None = None
    alpha: float | None = None


class GraphInputs(Part):
    """The inputs of the graph that take the two factors and the scale."""

    a: str
    b: str
    scale: str | None = None


class AdapterTarget(Part):
    """A product of the graph that adapters may change."""

    id: str
    component: str
    node_name: str
    output_name: str
    initializer: str
    input_features: Count
    output_features: Count
    activation_dtype: Dtype
    layer_index: Count | None = None
    rank: Count | None = None
    alpha: float | None = None
    output_slice: TargetSlice | None = None
    graph_inputs: GraphInputs | None = None


class AdapterTargets(Part):
    """All of them."""

    targets: Tuple[AdapterTarget]


class AdapterSelection(Part):
    """The workflow inputs that choose adapters for each row."""

    segments: str
    adapter_counts: str
    scales: str
    active: str | None = None
    max_adapters: Count


class AdapterCache(Part):
    """How many stay loaded."""

    max_entries: Count = 16
    eviction: Literal["lru"] = "lru"


class AdapterPlanning(Part):
    """How rows are put together."""

    bucket_by_adapter_set: bool = True
    invalidate_capture_on_eviction: bool = True
    stable_buffers: bool = True


class Adapters(Part):
    """The service that lays adapters over the weights."""

    application_capability: str
    target_manifest: AdapterTargets
    selection: AdapterSelection
    artifacts: dict[str, AdapterArtifact] = empty()
    cache: AdapterCache = AdapterCache()
    planning: AdapterPlanning = AdapterPlanning()
    discovery_fallback: Literal["disabled", "tooling_only"] = "disabled"
    portable_fallback: bool = False
