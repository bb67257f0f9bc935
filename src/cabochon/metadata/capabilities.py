"""The capabilities that a workflow takes, which v1 lists in its manifest (specification, 2.1)."""

from collections.abc import Mapping
from typing import Any

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
    written: dict[type[Part], list[Any]] = {}
    for _, part in parts(workflow):
        written.setdefault(type(part), []).append(part)
    emits, loops, cells = (written.get(kind, []) for kind in (Emit, Loop, Cell))
    contracts = {part.id for part in written.get(ComponentContract, ())}
    roles = {part.role for part in written.get(RuntimeRole, ())}
    needed = {
        "workflow_ssa": True,
        "linear_effects": _effects(written),
        "nested_control_flow": bool(loops) or Branch in written,
        "loop_induction_values": any(loop.iteration for loop in loops),
        "typed_emit": bool(emits),
        "streaming_emit": any(emit.mode == "event" for emit in emits),
        "emit_valid_length": any(emit.valid_length for emit in emits),
        "serving_service_contract": Serving in written,
        "bounded_state_recurrence": any(isinstance(cell.recurrence, Bounded) for cell in cells),
        "session_state_lease": Session in written,
        "advisory_state": any(cell.class_ == "advisory" for cell in cells),
        "input_presence": any(given.present_as for given in written.get(Input, ())),
        **{capability: contract in contracts for contract, capability in _CONTRACTS.items()},
        "heterogeneous_adapter_batching": "adapter_segments" in roles,
    }
    return tuple(capability for capability, is_needed in needed.items() if is_needed)


def _effects(written: Mapping[type[Part], list[Any]]) -> bool:
    """Declared ones, and the token that every emit and carry hands on within a loop or a branch."""
    if Effect in written or any(component.effects for component in written.get(Component, ())):
        return True
    loops = written.get(Loop, [])
    nests = [*loops, *written.get(Branch, ())]
    carried = any(loop.carried for loop in loops)
    return carried or any(isinstance(inner, Emit) for nest in nests for _, inner in parts(nest))
