"""The rules on how the graphs of a full package fit together."""

from collections.abc import Iterator

from cabochon.metadata.ports import Port
from cabochon.validation.assembled import COMPONENTS, CONFIGS, MEDIA, Assembled, assembled
from cabochon.validation.findings import Severity
from cabochon.validation.opened import Opened
from cabochon.validation.rules import Found, rule

__all__: list[str] = []


@rule("PRT010", Severity.ERROR)
def component_missing(package: Opened) -> Iterator[Found]:
    """A component of a full package is not there.

    Causes: a folder was left out of a copy or a download; an encoder was removed, and config.json or the embedding
    still asks for it.
    Remedy: put the folder back, or build the package again.
    """
    found = assembled(package)
    for name, why in _needed(found) if found else ():
        if COMPONENTS[name] not in package.files:
            yield Found(COMPONENTS[name], "no such graph", why)


def _needed(found: Assembled) -> Iterator[tuple[str, str]]:
    yield "decoder", "the graph that decodes"
    yield "embedding", "the graph that looks tokens up"
    embedding = found.graphs.get("embedding")
    for name, port in MEDIA.items():
        if found.described(name):
            yield name, f"that of the {CONFIGS[name]} of config.json"
        elif embedding and port in embedding.ports.inputs:
            yield name, f"what makes {port}, which {embedding.path} takes"


@rule("PRT011", Severity.ERROR, ("graphs",))
def input_unmade(package: Opened) -> Iterator[Found]:
    """A component takes what no other component of the package makes.

    Causes: one of the graphs was exported again, with other names; the embedding was kept from a model whose layers
    have no inputs of their own.
    Remedy: build the package again: its graphs are made together.
    """
    found = assembled(package)
    for joint in found.joints if found else ():
        if joint.made is None and not joint.taken.optional:
            expected = "an input of the package, a state, or an output of another component"
            yield Found(f"{joint.taker.path}: inputs.{joint.taken.name}", "nothing makes it", expected)


@rule("PRT012", Severity.ERROR, ("graphs",))
def joint_differs(package: Opened) -> Iterator[Found]:
    """A component takes a value otherwise than another one makes it.

    Causes: components of two precisions, of two models, or of two builds in one package.
    Remedy: build the package again: its graphs are made together.
    """
    found = assembled(package)
    for joint in found.joints if found else ():
        if joint.made and joint.maker and _spelled(joint.made) != _spelled(joint.taken):
            at = f"{joint.taker.path}: inputs.{joint.taken.name}"
            yield Found(at, _spelled(joint.taken), f"{_spelled(joint.made)}, as {joint.maker.path} makes it")


def _spelled(port: Port) -> str:
    return f"{port.dtype} [{', '.join(str(d) or '?' for d in port.shape)}]"


@rule("PRT013", Severity.ERROR, ("graphs", "config"))
def width_differs(package: Opened) -> Iterator[Found]:
    """The embedding gives tokens of another width than the model of config.json has.

    Causes: graphs of another model with the same ports; a config that was replaced.
    Remedy: build the package again, or put the config back that belongs to the graphs.
    """
    found, config = assembled(package), package.config
    graph = found.graphs.get("embedding") if found else None
    if graph is None or config is None:
        return
    widths = {"inputs_embeds": config.hidden, "per_layer_inputs": len(config.layers) * config.per_layer_input}
    for name, expected in widths.items():
        port = graph.ports.outputs.get(name)
        if port is None and expected:
            yield Found(f"{graph.path}: outputs", f"nothing of {name!r}", f"one, {expected} wide")
        elif port is not None and port.shape[-1:] != (expected,):
            yield Found(
                f"{graph.path}: outputs.{name}", f"{port.shape[-1:]} wide", f"{expected}, as config.json says"
            )
