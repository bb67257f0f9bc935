"""What converted graphs and their package say of themselves: properties, precision, provenance, requirements."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from cabochon.evidence import activations
from cabochon.gemma4 import DrafterConfig, FullConfig
from cabochon.recipes import PRECISIONS
from cabochon.recipes.cast import TYPES
from cabochon.validation.converted import EPCONTEXT, IR, LOOKUP, Converted, converted, parts
from cabochon.validation.findings import Severity
from cabochon.validation.net import Constant, Net, spelled
from cabochon.validation.opened import DRAFTER, Opened
from cabochon.validation.planned import planned, recipe_fault
from cabochon.validation.rules import Found, rule
from cabochon.validation.statements import NOTHING, PROVENANCE, differing, entries, inside, whole_name
from cabochon.validation.targeted import REQUIREMENTS

__all__: list[str] = []

_OPTIONAL = {"cabochon.stateful"}
_PARTS = re.compile(
    r"(_codes|_scales|_zero_points(_points)?)(\.by_\d+)?$"
)  # what is stored beside a weight, or of it


@rule("OVN011", Severity.ERROR)
def properties_missing(package: Opened) -> Iterator[Found]:
    """A converted graph lacks a property, or has one that nobody knows.

    Causes: The section `cabochon` of the file's rt_info was lost when another tool saved it, or was edited. Without it
    a runtime has to guess what masks may be and how far caches may be cut.
    Remedy: Convert the package again.
    """
    for part in parts(package):
        at, known = f"{part.net.path}: rt_info.cabochon", _wanted(part)
        if known is None:
            continue  # the config cannot be read, as another rule says
        for key in sorted(known.keys() - part.properties.keys()):
            yield Found(at, f"no {_short(key)}", f"{known[key] or 'one'}")
        for key in sorted(part.properties.keys() - known.keys() - _OPTIONAL):
            yield Found(
                f"{at}.{_short(key)}", part.properties[key][:100], "no property that is not documented"
            )


@rule("OVN012", Severity.ERROR)
def properties_contradict(package: Opened) -> Iterator[Found]:
    """A property of a converted graph is not what its ports and config.json show.

    Causes: Properties were edited; a graph was converted from a package of another model or precision.
    Remedy: Convert the package again.
    """
    for part in parts(package):
        at = f"{part.net.path}: rt_info.cabochon"
        for key, expected in (_wanted(part) or {}).items():
            said = part.properties.get(key)
            if said is not None and expected and said != expected:
                yield Found(f"{at}.{_short(key)}", said, expected)
        if part.properties.get("cabochon.stateful", "true") != "true":
            yield Found(f"{at}.stateful", part.properties["cabochon.stateful"], "true, or no such property")
        precision = part.properties.get("cabochon.precision")
        recipe = inside(package.json(PROVENANCE), "build", "recipe")
        if precision is not None and precision not in PRECISIONS and recipe is None:
            yield Found(
                f"{at}.precision", precision, f"one of {', '.join(PRECISIONS)}, or a recipe in {PROVENANCE}"
            )
        yield from _activations(part, at)


def _short(key: str) -> str:
    return key.removeprefix("cabochon.")


def _activations(part: Converted, at: str) -> Iterator[Found]:
    """Ports of one floating type, and that the one that is said."""
    kind = TYPES.get(activations(part.properties) or "")
    if kind is None:
        yield Found(f"{at}.activations", str(activations(part.properties)), f"one of {', '.join(TYPES)}")
        return
    given = {"pixel_values", "input_features"}  # as the processors make them
    ports = {**part.net.ports.inputs, **part.net.ports.outputs}.values()
    others = Counter(
        p.dtype for p in ports if "float" in p.dtype and p.name not in given and p.dtype != kind.name
    )
    for dtype, count in others.items():
        yield Found(f"{at}.activations", f"{kind.name}", f"{dtype}, of which {count} ports are")


def _wanted(part: Converted) -> dict[str, str] | None:
    """The properties that a graph must have; "" where any value is right. None where the config cannot be read."""
    config, text, kind = part.config, part.text, part.kind
    if config is None or text is None:
        return None
    own = {"cabochon.target": IR, "cabochon.precision": "", "cabochon.axes": ""}
    if "cabochon.activations" in part.properties or _in_blocks(part.properties):
        own["cabochon.activations"] = ""
    if kind in ("decoder", DRAFTER):
        own |= {"cabochon.mask": "anywhere", "cabochon.max_positions": str(text.max_positions)}
        own |= {"cabochon.sliding_window": str(text.window)} if text.window is not None else {}
    if isinstance(config, FullConfig) or kind in (DRAFTER, LOOKUP):
        own["cabochon.model"] = kind
    if kind == "embedding" or (kind == "decoder" and not part.name):
        own["cabochon.embed_scale"] = _scale(text.hidden, part)
    if kind == LOOKUP and isinstance(config, DrafterConfig):
        own["cabochon.embed_scale"] = _scale(config.backbone, part)
    if kind == DRAFTER and isinstance(config, DrafterConfig):
        own["cabochon.backbone_hidden_size"] = str(config.backbone)
    if isinstance(config, FullConfig):
        own |= _of_media(config, kind)
    return own


def _in_blocks(properties: Mapping[str, str]) -> bool:
    known = PRECISIONS.get(properties.get("cabochon.precision", ""))
    return known is not None and known.quantized


def _scale(hidden: int, part: Converted) -> str:
    """The root of the width, rounded to the type of activations."""
    kind = TYPES.get(activations(part.properties) or "")
    return repr(float(np.asarray(hidden**0.5).astype(kind))) if kind is not None else ""


def _of_media(config: FullConfig, kind: str) -> dict[str, str]:
    if kind == "embedding":
        ids = {"pad": config.text.pad_token_id, **config.tokens}
        return {f"cabochon.{name}_token_id": str(number) for name, number in ids.items()}
    if kind == "vision_encoder" and config.vision is not None:
        keys = ("patch_size", "pooling_kernel_size", "position_embedding_size")
        return {f"cabochon.{key}": str(getattr(config.vision, key)) for key in keys}
    return {}


@rule("OVN013", Severity.ERROR)
def stored_otherwise(package: Opened) -> Iterator[Found]:
    """A constant of a converted graph is stored otherwise than the package's precision says.

    Causes: A conversion that expanded weights in blocks to floats, or compressed floats to f16, which is what OpenVINO
    does unless it is told not to; a graph of another precision.
    Remedy: Convert the package again, with compress_to_fp16=False where another tool saves the model.
    """
    if fault := recipe_fault(package):
        yield Found(fault.at, fault.message, "a recipe", fault.remedy)
        return
    for part in parts(package):
        plan = planned(package, part.net)
        floats = TYPES.get(activations(part.properties) or "")
        if plan is None or floats is None:
            continue
        blocks = plan.precision.quantized
        for one, rows in _weights(part.net):
            scheme = plan.precision.scheme(whole_name(_PARTS.sub("", one.layer)))
            found = _fault(one, scheme, floats.name, blocks and rows)
            if found:
                yield Found(f"{part.net.path}: {one.layer}", f"{spelled(one.dtype)} {list(one.shape)}", found)


def _weights(net: Net) -> Iterator[tuple[Constant, bool]]:
    """The constants that are weights of the checkpoint or parts of them, and whether it is a table."""
    for one in net.constants:
        name = _PARTS.sub("", one.layer)
        if name.endswith(".weight") and max(one.shape, default=0) > 1:
            yield one, "embed_tokens" in name


def _fault(one: Constant, scheme: Any, floats: str, table: bool) -> str:
    """What a constant should be; "" where it is right. Tables and their scales may be f16 beside blocks."""
    dtype, part = spelled(one.dtype), _PARTS.search(one.layer)
    allowed = {floats, "float16"} if table else {floats}
    if part and part[1] == "_scales":
        return "" if dtype in allowed else f"{floats}, as scales are"
    if scheme is None or len(one.shape) != 2 or (scheme.block == 0):
        # ids, such as a drafter's groups of tokens, are no weights; a packed table has one dimension
        return "" if "int" in dtype or dtype in allowed else floats
    if "int" not in dtype:
        return f"{scheme}, as {PROVENANCE} and the precision say"
    if not table and not part and not dtype.endswith(f"int{scheme.bits}"):
        return f"{scheme}, as {PROVENANCE} and the precision say"
    return ""


@rule("OVN014", Severity.ERROR)
def provenance_differs(package: Opened) -> Iterator[Found]:
    """provenance.json states another conversion than the converted graphs show.

    Causes: The record is that of another package; the graphs were converted again without it.
    Remedy: Convert the package again.
    """
    record, first = package.json(PROVENANCE), converted(package)
    if first is None or record is None:
        return
    for key in ("build", "target", "files"):
        if not inside(record, key) and not (key == "target" and inside(record, "assistant")):
            yield Found(
                f"{PROVENANCE}: {key}", "nothing", "what the conversion was made of, and what it made"
            )
    said = inside(record, "build")
    kind = TYPES.get(activations(first.properties) or "")
    yield from differing(
        f"{PROVENANCE}: build",
        said,
        {
            "target": EPCONTEXT if first.wrapper else IR,
            "precision": first.properties.get("cabochon.precision"),
            "activations": activations(first.properties),
            "dtype": kind.name if kind is not None else None,
            "stateful": first.stateful,
        },
    )
    for part in parts(package):
        own = inside(said, "components", part.name) if part.name and not inside(said, "operators") else said
        at = f"{PROVENANCE}: build" + (f".components.{part.name}" if own is not said else "")
        if part.name == LOOKUP and own is said:
            continue
        yield from differing(at, own, {"operators": dict(Counter(layer.type for layer in part.net.layers))})
        yield from _constants(f"{at}.constants", entries(own, "constants"), part.net)
    yield from differing(
        f"{PROVENANCE}: architecture_contracts", inside(record, "architecture_contracts"), _geometry(first)
    )


def _constants(at: str, said: Mapping[str, Any], net: Net) -> Iterator[Found]:
    """The number and the bytes of constants by type, those that several share once."""
    if not said:
        return
    count = Counter(one.dtype for one in net.constants)
    sizes = {(one.dtype, one.offset): one.nbytes for one in net.constants}
    nbytes = Counter[str]()
    for (dtype, _), size in sizes.items():
        nbytes[dtype] += size
    for dtype in sorted(said.keys() | count.keys()):
        real = {"count": count[dtype], "bytes": nbytes[dtype]}
        if said.get(dtype) != real:
            yield Found(f"{at}.{dtype}", f"{said.get(dtype)}", f"{real}, as {net.path} has it")


def _geometry(first: Converted) -> dict[str, Any]:
    """What architecture_contracts must say where it speaks."""
    text = first.text
    if text is None or isinstance(first.config, DrafterConfig):
        return {}
    return {
        "num_hidden_layers": len(text.layers),
        "num_kv_shared_layers": len(text.layers) - len(text.owners),
        "owned_kv_layers": len(text.owners),
        "num_attention_heads": text.heads,
        "per_layer_input_hidden": text.per_layer_input or NOTHING,
        "final_logit_softcapping": text.softcap or NOTHING,
        "tie_word_embeddings": text.tied,
        "max_position_embeddings": text.max_positions,
    }


@rule("OVN015", Severity.ERROR)
def requirements_differ(package: Opened) -> Iterator[Found]:
    """runtime-requirements.txt does not state the OpenVINO that the graphs were converted with.

    Causes: The file was edited, or kept from another conversion. Another release may read the same file otherwise.
    Remedy: Convert the package again, or state the release that the IR files name.
    """
    text = package.text(REQUIREMENTS)
    stated = re.search(r"^openvino==(\S+)\s*$", text or "", re.MULTILINE)
    for part in parts(package):
        if stated is None:
            yield Found(REQUIREMENTS, "no line openvino==", f"openvino=={part.net.version}")
            return
        if part.net.version != stated[1]:
            found = f"OpenVINO {part.net.version or 'of no version'}"
            yield Found(f"{part.net.path}: rt_info", found, f"{stated[1]}, as {REQUIREMENTS} says")
