"""References, second part: what a workflow offers and asks for: inputs, outputs, components, effects, capabilities."""

from collections import Counter
from collections.abc import Iterator

from cabochon.metadata.capabilities import capabilities
from cabochon.metadata.document import Component, Input, Workflow
from cabochon.validation.findings import Severity
from cabochon.validation.flow import portion
from cabochon.validation.opened import Opened
from cabochon.validation.references import workflows
from cabochon.validation.rules import Found, rule

_NEEDS = ("document",)
_ONCE = ("token_ids", "inputs_embeds", "attention_mask", "position_ids", "logits")
_OPTIONAL_MEDIA = ("media", "constraint", "session_id")


@rule("REF013", Severity.ERROR, _NEEDS)
def wrong_role(package: Opened) -> Iterator[Found]:
    """A role is given to no port, or to two.

    Causes: A port was renamed, but not in the roles; two outputs that are both called logits, of which a runtime then
    takes either.
    Remedy: Give each role to one port of the component.
    """
    for at, _, workflow in workflows(package):
        for name, component in workflow.components.items():
            where = f"{at}.components.{name}.ports.roles"
            said, known = component.ports, {**component.ports.inputs, **component.ports.outputs}
            for port in said.roles.keys() - known.keys() if known else ():
                yield Found(
                    f"{where}.{port}", "a role of a port that is not declared", f"one of {portion(known)}"
                )
            for role, count in Counter(said.roles.values()).items():
                if count > 1 and role in _ONCE:
                    both = [port for port, its in said.roles.items() if its == role]
                    yield Found(where, f"{role} given to {', '.join(both)}", "one port with that role")


@rule("REF019", Severity.ERROR, _NEEDS)
def unsuppliable_input(package: Opened) -> Iterator[Found]:
    """An input of the workflow cannot be supplied as it says.

    Causes: An input that comes with the request, but has no role that a runtime would fill; an optional input without a
    default; a name for its presence where it is always there, or that is taken.
    Remedy: Give it a runtime role or another source, a default, or make it required.
    """
    for at, _, workflow in workflows(package):
        for name, given in workflow.inputs.items():
            for found, expected in _supply(given):
                yield Found(f"{at}.inputs.{name}", found, expected)


def _supply(given: Input) -> Iterator[tuple[str, str]]:
    if given.source.kind == "request" and given.role.kind != "runtime":
        yield "a value of the request without a role", "a runtime role"
    if given.source.kind == "literal" and given.default is None:
        yield "a literal without a value", "a default"
    if not given.required and given.default is None and not given.present_as:
        yield "an optional value without a default", "a default, or present_as"
    if given.present_as and (given.required or given.default is not None):
        yield "present_as of a value that is always there", "an optional value without a default"
    if given.present_as and given.source.kind not in ("request", "application"):
        yield f"present_as of a value of source {given.source.kind}", "source request or application"
    role = given.role.role if given.role.kind == "runtime" else ""
    if given.present_as and given.source.kind == "request" and role not in _OPTIONAL_MEDIA:
        yield f"present_as of {role}", f"a value that may be absent: {', '.join(_OPTIONAL_MEDIA)}"


@rule("REF020", Severity.ERROR, _NEEDS)
def wrong_output(package: Opened) -> Iterator[Found]:
    """An output is described as what it is not.

    Causes: A range of values for something that is no image, or none for an image; a media format for something that is
    no sound.
    Remedy: Say value_range of images and media of sound, and only there.
    """
    for at, _, workflow in workflows(package):
        for name, output in workflow.outputs.items():
            if (output.role == "image") != (output.value_range is not None):
                found = f"value_range {output.value_range} of role {output.role}"
                yield Found(f"{at}.outputs.{name}", found, "a value_range for an image, and for nothing else")
            if output.media and output.role != "audio":
                yield Found(f"{at}.outputs.{name}.media", f"role {output.role}", "role audio")


@rule("REF021", Severity.ERROR, _NEEDS)
def unusable_component(package: Opened) -> Iterator[Found]:
    """A component cannot be what it says.

    Causes: A name with a dot (dots separate a component from its ports), an adapter whose version the manifest does not
    pin, a contract that speaks of ports which are not there, an override of something that fulfils no contract.
    Remedy: Rename the component, pin the adapter in manifest.adapter_abis, or correct the contract.
    """
    for at, _, workflow in workflows(package):
        for name, component in workflow.components.items():
            for found, expected in (*_component(name, component), *_adapter(component, workflow)):
                yield Found(f"{at}.components.{name}", found, expected)


def _component(name: str, component: Component) -> Iterator[tuple[str, str]]:
    if not name or "." in name:
        yield f"the name {name!r}", "a name without a dot"
    contract, known = component.contract, {**component.ports.inputs, **component.ports.outputs}
    for role, port in contract.bindings.items() if contract and known else ():
        if port not in known:
            yield f"a contract that binds {role} to {port!r}", f"one of its ports: {portion(known)}"
    if component.application_overridable and (contract is None or component.implementation.kind != "onnx"):
        yield (
            "application_overridable without a contract or a graph",
            "both, so that another one can take its place",
        )
    if component.implementation.kind == "binding" and contract is None:
        yield "a binding without a contract", "the contract that the runtime is to fulfil"


def _adapter(component: Component, workflow: Workflow) -> Iterator[tuple[str, str]]:
    made = component.implementation
    if made.kind == "adapter" and workflow.manifest.adapter_abis.get(made.abi) != made.version:
        pinned = workflow.manifest.adapter_abis.get(made.abi)
        yield f"{made.abi} {made.version}, pinned is {pinned}", "the version that manifest.adapter_abis pins"


@rule("REF022", Severity.ERROR, _NEEDS)
def wrong_effect(package: Opened) -> Iterator[Found]:
    """An effect is not declared, or cannot be undone as it says.

    Causes: A component with an effect that the workflow does not list; an effect that can be rewound by 0 steps.
    Remedy: Declare the effect under effects, with what may be retried and undone.
    """
    for at, _, workflow in workflows(package):
        for name, component in workflow.components.items():
            for domain in set(component.effects) - workflow.effects.keys():
                yield Found(
                    f"{at}.components.{name}.effects", repr(domain), f"one of {portion(workflow.effects)}"
                )
        for domain, effect in workflow.effects.items():
            if effect.speculation_safety.kind == "rewindable" and not effect.speculation_safety.max_depth:
                yield Found(
                    f"{at}.effects.{domain}.speculation_safety", "max_depth 0", "1 or more, or kind none"
                )


@rule("REF027", Severity.ERROR, _NEEDS)
def wrong_override(package: Opened) -> Iterator[Found]:
    """A field of generation is overridden through an input that cannot do it.

    Causes: An input that does not exist or does not come with the request, a range that is empty.
    Remedy: Name an input of the workflow with source request and a runtime role, and a range with values in it.
    """
    for at, document, workflow in workflows(package):
        for field, said in document.generation.overrides.items() if document.generation else ():
            where = f"{at.partition(':')[0]}: generation.overrides.{field}"
            given = workflow.inputs.get(said.input)
            if given is None or given.source.kind != "request" or given.role.kind != "runtime":
                yield Found(f"{where}.input", repr(said.input), "an input of the request with a runtime role")
            least = said.constraint.minimum if said.constraint else None
            most = said.constraint.maximum if said.constraint else None
            if least is not None and most is not None and least > most:
                yield Found(f"{where}.constraint", f"{least} to {most}", "a range with values in it")


@rule("REF015", Severity.ERROR, _NEEDS)
def wrong_capabilities(package: Opened) -> Iterator[Found]:
    """The capabilities that a document lists are not those that it uses.

    Causes: A workflow was changed, and its manifest was not; capabilities that were copied from another document. A
    runtime refuses a document for a capability that it lists, needed or not.
    Remedy: List exactly what the workflow uses.
    """
    for at, _, workflow in workflows(package):
        said = workflow.manifest.capabilities
        if said is not None and (used := set(capabilities(workflow))) != set(said):
            missing, spare = sorted(used - set(said)), sorted(set(said) - used)
            found = "; ".join(
                f"{what} {', '.join(names)}"
                for what, names in (("without", missing), ("with", spare))
                if names
            )
            yield Found(f"{at}.manifest.capabilities", found, f"exactly {', '.join(sorted(used))}")
