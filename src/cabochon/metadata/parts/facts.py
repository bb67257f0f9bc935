"""Facts of the model as a whole, of its precision, and of what it runs on."""

from typing import Annotated, Any, Literal

from pydantic import Field

from cabochon.metadata.parts.part import Count, Filled, Names, Open, Part, Positive, Text, Tuple, empty

__all__ = [
    "Attention",
    "ChunkedPrefill",
    "ExpertParallel",
    "HardwareRequirements",
    "KeySequenceLengths",
    "MixtureOfExperts",
    "Model",
    "PipelineStage",
    "Quantization",
    "QuantizationOverride",
    "Router",
    "RuntimeConfigurable",
    "Sharding",
    "TensorParallel",
]

Amount = Annotated[float, Field(ge=0)]


class KeySequenceLengths(Open):
    """How a scalar number of keys is understood."""

    scalar_broadcast: Literal["unit_batch"] | None = None


class Attention(Open):
    """Attention, where one number holds for every layer. Gemma 4 has two head sizes: leave `head_dim` out."""

    type: Text
    num_kv_heads: Positive | None = None
    num_attention_heads: Positive | None = None
    head_dim: Positive | None = None
    sliding_window: Positive | None = None
    sink_tokens: Count | None = None
    key_sequence_lengths: KeySequenceLengths | None = None
    fallback_behavior: Text | None = None


class ChunkedPrefill(Open):
    """How many tokens a prefill may take at once."""

    chunk_size: Positive | None = None


class RuntimeConfigurable(Part):
    """What a runtime may switch."""

    prefix_cache: bool | None = None
    continuous_batching: bool | None = None
    chunked_prefill: ChunkedPrefill | None = None


class Router(Open):
    """How experts are chosen."""

    score_function: Text
    selection_method: Text
    normalize_weights: bool
    scaling_factor: Amount
    group_count: Positive | None = None
    groups_per_token: Positive | None = None
    group_score: Text | None = None


class MixtureOfExperts(Open):
    """Experts."""

    representation: Text
    routed_expert_count: Positive
    shared_expert_count: Count
    experts_per_token: Positive
    expert_intermediate_size: Positive
    shared_expert_intermediate_size: Count
    activation: Text
    router: Router


class TensorParallel(Part):
    """Along which axis a group of tensors may be split."""

    shard_axis: Count
    max_shards: Positive
    replicated: Names = ()


class PipelineStage(Part):
    """What one device of several runs."""

    components: Filled[str]
    outputs: Tuple[str] = ()
    state_groups: Names = ()


class ExpertParallel(Part):
    """How experts may be distributed."""

    expert_count: Positive
    contiguous_groups_only: bool = False
    replicated: Names = ()


class Sharding(Part):
    """How the model may be split."""

    tensor_parallel: dict[str, TensorParallel] = empty()
    pipeline_parallel: Tuple[PipelineStage] = ()
    expert_parallel: ExpertParallel | None = None


class Model(Open):
    """The model as a whole. `io` is the shape before the workflow: known, and refused beside one."""

    attention: Attention | None = None
    max_sequence_length: Positive | None = None
    vocab_size: Positive | None = None
    runtime_configurable: RuntimeConfigurable | None = None
    mixture_of_experts: MixtureOfExperts | None = None
    sharding: Sharding | None = None
    io: dict[str, Any] | None = None


class QuantizationOverride(Open):
    """A precision of its own, for some layers or a component."""

    layers: Tuple[Count] | None = None
    component: Text | None = None
    precision: Text


class Quantization(Open):
    """In which precision the weights are meant to be."""

    default: Text | None = None
    overrides: Tuple[QuantizationOverride] | None = None


class HardwareRequirements(Open):
    """What it takes to run."""

    min_memory_gb: Amount | None = None
    required_dtypes: Tuple[Text] | None = None
    beneficial_dtypes: Tuple[Text] | None = None
    kv_cache_memory_per_1k_tokens_mb: Amount | None = None
    supports_tensor_parallel: bool | None = None
    min_tp_degree: Positive | None = None
