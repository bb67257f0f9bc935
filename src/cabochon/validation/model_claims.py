"""The rules on the document's statements about the model: limits, attention, types of weights."""

from collections.abc import Iterator
from typing import Any

from cabochon.validation.facts import Decoded
from cabochon.validation.findings import Severity
from cabochon.validation.opened import Opened
from cabochon.validation.rules import Found, rule
from cabochon.validation.statements import NOTHING, VARIES, differing, documents, facts, one

__all__: list[str] = []


@rule("HON010", Severity.ERROR, ("document", "graphs"))
def limits_differ(package: Opened) -> Iterator[Found]:
    """The document's model has other limits than the graph and config.json.

    Causes: a placeholder; numbers of another model; the tokenizer's number of tokens taken for the model's.
    Remedy: vocab_size is the last dimension of the logits, max_sequence_length is max_position_embeddings.
    """
    for found in facts(package):
        real = {
            "vocab_size": found.vocabulary,
            "max_sequence_length": package.config.max_positions if package.config else None,
        }
        for name, document in documents(package):
            for key, expected in real.items():
                said = getattr(document.model, key, None)
                if said is not None and expected is not None and said != expected:
                    yield Found(f"{name}: model.{key}", str(said), str(expected))


@rule("HON011", Severity.ERROR, ("document", "graphs"))
def attention_contradicted(package: Opened) -> Iterator[Found]:
    """The document's model.attention contradicts the graph.

    Causes: it has one head size and one window for all layers; this family has two.
    Remedy: leave model.attention out: head sizes are those of the ports.
    """
    for found in facts(package):
        for name, document in documents(package):
            said = document.model.attention if document.model else None
            if said is not None:
                plain = said.model_dump(exclude_none=True)
                yield from differing(f"{name}: model.attention", plain, attention(found))


def attention(found: Decoded) -> dict[str, Any]:
    """What model.attention must say where it speaks; a fact that differs between layers cannot be said."""
    config = found.config
    return {
        "head_dim": one(found.by_kind(3)) or VARIES,
        "num_kv_heads": one(found.by_kind(1)) or VARIES,
        "num_attention_heads": config.heads if config else None,
        "sliding_window": (config.window or NOTHING) if config else None,
        "sink_tokens": 0,
    }


@rule("HON012", Severity.ERROR, ("document", "graphs"))
def quantization_contradicted(package: Opened) -> Iterator[Found]:
    """The document's quantization is not what the weights are.

    Causes: it was copied from a quantized package; it states an intent.
    Remedy: state the type that the weights have, or nothing.
    """
    for found in facts(package):
        real = max(found.weights, key=lambda dtype: found.weights[dtype], default=None)
        for name, document in documents(package):
            said = document.quantization.default if document.quantization else None
            if said and real and NAMES.get(said, said) != real:
                yield Found(f"{name}: quantization.default", said, f"{real}, the type of most weights")
            for i, override in enumerate(
                document.quantization.overrides or () if document.quantization else ()
            ):
                if (
                    real
                    and len(found.weights) == 1
                    and NAMES.get(override.precision, override.precision) != real
                ):
                    at = f"{name}: quantization.overrides[{i}].precision"
                    yield Found(at, override.precision, f"{real}, the type of all weights")


NAMES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
