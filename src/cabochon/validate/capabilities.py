"""The capabilities that a workflow uses, read off it."""

from collections.abc import Iterator

from cabochon.metadata.document import Branch, Document, Emit, Loop, Sequence, Step, Workflow

__all__ = ["used"]

# The capability that a contract of the runtime's own asks for, by the beginning of its id.
_CONTRACTS = {
    "onnx-genai.grammar-guidance": "grammar_guidance_adapter",
    "onnx-genai.telemetry": "telemetry_adapter",
    "onnx-genai.parameter-overlay": "parameter_adapters",
    "onnx-genai.adaptive-proposal-budget": "adaptive_proposal_budget",
}


def used(document: Document) -> frozenset[str]:
    """The capabilities of the workflow, by the names of specification section 2.1."""
    return frozenset(_used(document.pipeline.workflow)) if document.pipeline else frozenset()


def _used(workflow: Workflow) -> Iterator[str]:
    yield "workflow_ssa"
    if workflow.serving:
        yield "serving_service_contract"
    if any(given.present_as for given in workflow.inputs.values()):
        yield "input_presence"
    for cell in workflow.state.values():
        if cell.recurrence.kind == "bounded":
            yield "bounded_state_recurrence"
        if cell.scope == "session":
            yield "session_state_lease"
        if cell.class_ == "advisory":
            yield "advisory_state"
    for component in workflow.components.values():
        if component.effects:
            yield "linear_effects"
        for beginning, capability in _CONTRACTS.items():
            if component.contract and component.contract.id.startswith(beginning):
                yield capability
    if workflow.effects:
        yield "linear_effects"
    for step, looped in _steps(workflow.steps, False):
        yield from _of_step(step, looped)


def _of_step(step: Step, looped: bool) -> Iterator[str]:
    if isinstance(step, Loop | Branch):
        yield "nested_control_flow"
    if isinstance(step, Loop):
        if step.iteration:
            yield "loop_induction_values"
        if step.carried:
            yield "linear_effects"
    if isinstance(step, Emit):
        yield "typed_emit"
        if looped:
            yield "linear_effects"
        if step.mode == "event":
            yield "streaming_emit"
        if step.valid_length:
            yield "emit_valid_length"


def _steps(steps: tuple[Step, ...], looped: bool) -> Iterator[tuple[Step, bool]]:
    """Every step at any depth, and whether it is inside of a loop."""
    for step in steps:
        yield step, looped
        if isinstance(step, Loop):
            yield from _steps((*step.setup, *step.steps), True)
        elif isinstance(step, Sequence):
            yield from _steps(step.steps, looped)
        elif isinstance(step, Branch):
            yield from _steps((*step.cases.values(), *([step.default] if step.default else [])), looped)
