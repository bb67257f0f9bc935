"""The speculative contract in its two shapes: v1 leaves to the runtime what v1.6 and later spell out."""

from cabochon.metadata.document import (
    AcceptedByRuntime,
    Document,
    SharedWeight,
    Speculative,
    ValueRef,
    Verification,
)

__all__ = ["speculative_to_v1", "speculative_to_v18"]

_IDENTITY, _VERSION = "onnx-genai.speculative", "1"
_ACCEPTED = AcceptedByRuntime(binding="accepted_prefix")


def speculative_to_v1(part: Speculative, document: Document) -> Speculative:
    """Without what v1 takes for granted; what it cannot say stays, and is found by the gates."""
    update: dict[str, object] = {}
    if (part.identity, part.version) == (_IDENTITY, _VERSION):
        update |= {"identity": None, "version": None}
    if part.verification is not None and part.verification == _verification(part, document):
        update["verification"] = None
    if not part.target_port_bindings:
        update["target_port_bindings"] = None
    update["shared_weights"] = tuple(
        weight.initializer if isinstance(weight, SharedWeight) and weight.component == part.target else weight
        for weight in part.shared_weights
    )
    return part.model_copy(update=_said(part, update))


def speculative_to_v18(part: Speculative, document: Document) -> Speculative:
    """With its identity, and verification of the target's logits by the runtime unless something else is said."""
    update: dict[str, object] = {
        "identity": part.identity or _IDENTITY,
        "version": part.version or _VERSION,
        "verification": part.verification or _verification(part, document),
        "shared_weights": tuple(
            SharedWeight(component=part.target, initializer=weight) if isinstance(weight, str) else weight
            for weight in part.shared_weights
        ),
    }
    return part.model_copy(update=_said(part, update))


def _said(part: Speculative, update: dict[str, object]) -> dict[str, object]:
    """The update without an empty list that was not there before."""
    return {k: v for k, v in update.items() if k != "shared_weights" or k in part.model_fields_set}


def _verification(part: Speculative, document: Document) -> Verification | None:
    """What v1 means: the runtime compares with the one output of the target that has the role of logits."""
    workflow = document.pipeline.workflow if document.pipeline else None
    target = workflow.components.get(part.target) if workflow else None
    ports = target.ports if target else None
    named = [p for p, role in ports.roles.items() if role == "logits"] if ports else []
    outputs = [port for port in named if not ports or not ports.outputs or port in ports.outputs]
    if len(outputs) != 1:
        return None
    return Verification(
        target_output=ValueRef(component=part.target, output=outputs[0]), accepted_path=_ACCEPTED
    )
