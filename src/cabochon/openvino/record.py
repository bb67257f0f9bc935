"""provenance.json and component_contract.yaml of a converted package."""

import json
import platform
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cabochon import __version__, sums
from cabochon.errors import PackageError
from cabochon.files import sha256
from cabochon.metadata.ports import Port
from cabochon.metadata.yaml import read, write
from cabochon.openvino.made import Made, constants
from cabochon.openvino.source import STANDARD
from cabochon.package.component_contract import COMPONENT_CONTRACT
from cabochon.package.facts import installed
from cabochon.package.layout import GRAPH, inside
from cabochon.validation.net import Net

__all__ = ["contract", "provenance"]

# What a build says of the model and its weights, which a conversion leaves as they are.
_KEPT = (
    "precision", "dtype", "features", "outputs_note", "embed_scale", "max_proposal_width", "target_package", "recipe",
    "calibration",
)  # fmt: skip
_STORED = ("parameters", "bits_per_weight", "weights")  # but not what the files of the source take besides


def provenance(made: Made) -> str:
    """The text of provenance.json: that of the source, with this conversion as its build, and under `converted_from`
    what the source says of its own."""
    record = made.source.record
    said = {
        **record,
        "build": _build(made),
        "files": {
            name: {"bytes": digest.nbytes, "sha256": digest.sha256} for name, digest in made.digests.items()
        },
        "converted_from": {
            "target": made.source.target,
            "sha256sums": sha256(made.source.root / sums.SUMS),
            "build": record.get("build"),
            "files": record.get("files"),
            **({"converted_from": record["converted_from"]} if "converted_from" in record else {}),
        },
    }
    return json.dumps(said, indent=2, ensure_ascii=False) + "\n"


def _build(made: Made) -> dict[str, Any]:
    before: dict[str, Any] = made.source.record.get("build") or {}
    kept = {key: before[key] for key in _KEPT if key in before}
    stored: dict[str, Any] = before.get("stored") or {}
    tools = ("openvino", "numpy", "onnx")
    return {
        "tool": "cabochon",
        "version": __version__,
        "command": list(made.command) if made.command is not None else None,
        "versions": {"python": platform.python_version()} | {name: installed(name) for name in tools},
        "target": made.target,
        "execution_provider": "openvino",
        **kept,
        "activations": made.activations,
        "linked_files": [],
        "stateful": made.stateful,
        "stored": {key: stored[key] for key in _STORED if key in stored},
        **_graphs(made),
    }


def _graphs(made: Made) -> dict[str, Any]:
    """What each graph is made of; where there are several, by its folder."""
    said = {
        name: {
            "operators": dict(Counter(layer.type for layer in net.layers).most_common()),
            "constants": constants(net),
        }
        for name, net in made.nets.items()
    }
    return said[""] if set(said) == {""} else {"components": said}


def contract(made: Made) -> bytes:
    """component_contract.yaml: what each graph takes and gives, as its file says; what a drafter borrows, as before."""
    path = made.source.root / COMPONENT_CONTRACT
    known = _known(path) if path.is_file() else {}
    components = {name: _component(made, folder, known.get(name, {})) for name, folder in _names(made)}
    others = {name: _elsewhere(said, made) for name, said in known.items() if name not in components}
    return write({"components": {**components, **others}})


def _known(path: Path) -> Mapping[str, Any]:
    said: Any = read(path.read_bytes(), path.name)
    components = said.get("components") if isinstance(said, Mapping) else None
    if not isinstance(components, Mapping):
        raise PackageError("has no components", at=str(path), remedy="build the package again")
    return components


def _names(made: Made) -> Iterator[tuple[str, str]]:
    """What each component is called, and its folder."""
    drafts = made.source.kind in ("drafter", "pair")
    return ((folder or ("assistant" if drafts else "decoder"), folder) for folder in made.nets)


def _component(made: Made, folder: str, known: Mapping[str, Any]) -> dict[str, Any]:
    net = made.nets[folder]
    said = net.properties
    rest = {key: value for key, value in known.items() if key not in ("tables", "beside_tables", "table_in")}
    described = {
        "artifact": inside(folder, GRAPH if made.wrapped else net.path.rpartition("/")[2]),
        "model": said.get("cabochon.model", "decoder"),
        "target": made.target,
        "precision": made.precision,
        "activations": made.activations,
        "stateful": "cabochon.stateful" in said,
        **{
            side: {name: _port(port, known.get(side, {})) for name, port in ports.items()}
            for side, ports in (("inputs", net.ports.inputs), ("outputs", net.ports.outputs))
        },
    }
    return {**described, **{key: value for key, value in rest.items() if key not in described}}


def _port(port: Port, known: Mapping[str, Any]) -> dict[str, Any]:
    means = known.get(port.name, {}).get("means")
    return {"dtype": port.dtype, "shape": list(port.shape)} | ({"means": means} if means else {})


def _elsewhere(known: Mapping[str, Any], made: Made) -> dict[str, Any]:
    """A component of the target of a pair, whose file is another now."""
    file = str(known["artifact"])
    name = GRAPH if made.wrapped else next(iter(made.nets.values())).path.rpartition("/")[2]
    return {**known, "artifact": file.replace(GRAPH, name)} if made.source.target == STANDARD else dict(known)


def weights(net: Net) -> int:
    """The bytes of its constants."""
    return sum(said["bytes"] for said in constants(net).values())
