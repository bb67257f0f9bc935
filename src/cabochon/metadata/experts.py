"""What a document says of experts. Apart from `derive`, which brings onnx_ir: a validator asks for it too."""

from cabochon.gemma4.config import TextConfig
from cabochon.metadata.document import MixtureOfExperts, Router

__all__ = ["UNSAID", "mixture_of_experts"]

UNSAID = (
    "how experts are weighed: `mixture_of_experts` has no key for a scale of each, `per_expert_scale`, which shares "
    "are multiplied by once they add up to one; nor for the router's input, the residual normed and scaled, which is "
    "not what the experts read. The graph does both."
)


def mixture_of_experts(config: TextConfig) -> MixtureOfExperts | None:
    """The experts of every layer, and the dense feed-forward beside them, which all tokens share; None without any.

    `dense_fallback`: they are written in plain operators, not in one fused one.
    """
    if config.experts is None:
        return None
    return MixtureOfExperts(
        representation="dense_fallback",
        routed_expert_count=config.experts.count,
        shared_expert_count=1,
        experts_per_token=config.experts.chosen,
        expert_intermediate_size=config.experts.width,
        shared_expert_intermediate_size=config.layers[0].intermediate,
        activation="gelu_pytorch_tanh",
        router=Router(
            score_function="softmax", selection_method="top_k", normalize_weights=True, scaling_factor=1.0
        ),
    )
