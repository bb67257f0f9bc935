"""The rules on what a drafter's package says of it: its config and component_contract.yaml, against the graph."""

from collections.abc import Iterator, Mapping
from typing import Any

from cabochon.errors import MetadataError
from cabochon.gemma4 import DrafterConfig
from cabochon.metadata import yaml
from cabochon.metadata.ports import Port
from cabochon.validation.drafting import EMBEDDING, Drafted, drafted
from cabochon.validation.findings import Severity
from cabochon.validation.graph import Graph
from cabochon.validation.lookup_nodes import factor, token_tables
from cabochon.validation.opened import DECODER, Opened
from cabochon.validation.rules import Found, rule
from cabochon.validation.statements import NEEDS, differing, inside

__all__: list[str] = []

CONTRACT = "component_contract.yaml"


@rule("HON024", Severity.ERROR, NEEDS)
def drafter_config_differs(package: Opened) -> Iterator[Found]:
    """config.json describes another drafter than the graph is, or none.

    Causes: the config of the target, or of another assistant, lies beside the graph; the graph was built from another.
    Remedy: put the assistant's own config.json beside its graph, or build the package again.
    """
    found, config = drafted(package), package.drafter
    if found is None or "config.json" not in package.files:
        return
    if config is None:
        yield Found("config.json", "no drafter's config", f"that of the drafter in {found.graph.path}")
        return
    yield from differing("config.json", _stated(config), _real(found))


def _stated(config: DrafterConfig) -> dict[str, Any]:
    kinds = {kind: [layer.kv_heads, layer.head_dim] for kind, layer in config.text.kinds.items()}
    count = config.centroids.count if config.centroids else 0
    return {
        "backbone_hidden_size": config.backbone,
        "vocab_size": config.text.vocab,
        "sliding_window": config.text.window,
        "num_centroids": count,
        "centroid_intermediate_top_k": config.centroids.top_k if config.centroids else None,
        **{f"heads and head size of {kind}": sizes for kind, sizes in kinds.items()},
    }


def _real(found: Drafted) -> dict[str, Any]:
    return {
        "backbone_hidden_size": found.backbone,
        "vocab_size": found.vocabulary,
        "sliding_window": found.window,
        "num_centroids": found.centroids or 0,
        "centroid_intermediate_top_k": found.top_k,
        **{f"heads and head size of {k}": [p.shape[1], p.shape[3]] for k, p in found.kinds.items()},
    }


@rule("HON025", Severity.ERROR, NEEDS)
def contract_differs(package: Opened) -> Iterator[Found]:
    """component_contract.yaml states another interface than the graphs have.

    Causes: it was edited, or kept from another build.
    Remedy: build the package again: the contract is read off the graphs.
    """
    found = drafted(package)
    if found is None or CONTRACT not in package.files:
        return
    try:
        said = yaml.read(package.bytes(CONTRACT), CONTRACT)
    except MetadataError as error:
        yield Found(error.at, error.found, error.expected)
        return
    components = inside(said, "components")
    for name, entry in components.items() if isinstance(components, Mapping) else ():
        at, graph = f"{CONTRACT}: components.{name}", package.graphs.get(str(inside(entry, "artifact")))
        if graph is None:
            yield Found(f"{at}.artifact", repr(inside(entry, "artifact")), "a graph of the package")
            continue
        yield from _ports(at, entry, graph)
        if graph.path == DECODER:
            yield from _drafter(at, entry, found)
        elif graph.path == EMBEDDING:
            yield from differing(at, entry, {"scale": _scale(graph)})


def _ports(at: str, entry: Any, graph: Graph) -> Iterator[Found]:
    for side, ports in (("inputs", graph.ports.inputs), ("outputs", graph.ports.outputs)):
        stated = inside(entry, side)
        if not isinstance(stated, Mapping):
            continue
        for name in sorted(stated.keys() ^ ports.keys()):
            what = "no such port" if name in ports else "a port"
            yield Found(f"{at}.{side}.{name}", what, "the ports of " + graph.path)
        for name in stated.keys() & ports.keys():
            yield from differing(f"{at}.{side}.{name}", stated[name], _port(ports[name]))


def _port(port: Port) -> dict[str, Any]:
    return {"dtype": port.dtype, "shape": list(port.shape)}


def _drafter(at: str, entry: Any, found: Drafted) -> Iterator[Found]:
    properties = found.graph.properties
    real = {
        "target": properties.get("cabochon.target"),
        "precision": properties.get("cabochon.precision"),
        "owns": list[str](),
    }
    yield from differing(at, entry, real)
    for kind, borrowed in found.borrows.items():
        yield from differing(f"{at}.borrows.{kind}", inside(entry, "borrows", kind), borrowed)
    head = {
        "kind": "ordered" if found.centroids else "dense",
        "vocabulary": found.vocabulary,
        "centroids": found.centroids,
        "top_k": found.top_k,
    }
    yield from differing(f"{at}.head", inside(entry, "head"), head)


def _scale(graph: Graph) -> float | None:
    """What the rows of a look-up are multiplied by."""
    tables = token_tables(graph)
    return factor(graph, tables[0]) if tables else None
