"""The capabilities that a workflow takes, which v1 lists in its manifest (specification, 2.1)."""

from cabochon.metadata.document import (
    Bounded,
    Branch,
    Cell,
    Component,
    ComponentContract,
    Effect,
    Emit,
    Input,
    Loop,
    Part,
    RuntimeRole,
    Serving,
    Session,
    Workflow,
)
from cabochon.metadata.walking import parts

__all__ = ["capabilities"]

_CONTRACTS = {
    "onnx-genai.adaptive-proposal-budget": "adaptive_proposal_budget",
    "onnx-genai.grammar-guidance": "grammar_guidance_adapter",
    "onnx-genai.telemetry": "telemetry_adapter",
    "onnx-genai.parameter-overlay": "parameter_adapters",
}


def capabilities(workflow: Workflow) -> tuple[str, ...]:
    """Exactly what a runtime must be able to do, in the order in which the specification names it."""
    written = [part for _, part in parts(workflow)]
    emits = [part for part in written if isinstance(part, Emit)]
    loops = [part for part in written if isinstance(part, Loop)]
    cells = [part for part in written if isinstance(part, Cell)]
    inputs = [part for part in written if isinstance(part, Input)]
    contracts = {part.id for part in written if isinstance(part, ComponentContract)}
    roles = {part.role for part in written if isinstance(part, RuntimeRole)}
    needed = {
        "workflow_ssa": True,
        "linear_effects": _effects(written),
        "nested_control_flow": any(isinstance(part, Loop | Branch) for part in written),
        "loop_induction_values": any(loop.iteration for loop in loops),
        "typed_emit": bool(emits),
        "streaming_emit": any(emit.mode == "event" for emit in emits),
        "emit_valid_length": any(emit.valid_length for emit in emits),
        "serving_service_contract": any(isinstance(part, Serving) for part in written),
        "bounded_state_recurrence": any(isinstance(cell.recurrence, Bounded) for cell in cells),
        "session_state_lease": any(isinstance(part, Session) for part in written),
        "advisory_state": any(cell.class_ == "advisory" for cell in cells),
        "input_presence": any(input.present_as for input in inputs),
        **{capability: contract in contracts for contract, capability in _CONTRACTS.items()},
        "heterogeneous_adapter_batching": "adapter_segments" in roles,
    }
    return tuple(capability for capability, is_needed in needed.items() if is_needed)


def _effects(written: list[Part]) -> bool:
    """Declared ones, and the token that every emit and carry hands on within a loop or a branch."""
    if any(isinstance(part, Effect) or (isinstance(part, Component) and part.effects) for part in written):
        return True
    nests = [part for part in written if isinstance(part, Loop | Branch)]
    carried = any(isinstance(nest, Loop) and nest.carried for nest in nests)
    return carried or any(isinstance(inner, Emit) for nest in nests for _, inner in parts(nest))
