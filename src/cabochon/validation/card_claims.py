"""The rules on README.md: what the card says of the graph."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from cabochon.dialects import TARGETS
from cabochon.evidence import activations
from cabochon.validation.blocks import blocked
from cabochon.validation.encoder_claims import encoder_rows, experts
from cabochon.validation.facts import Decoded
from cabochon.validation.findings import Severity
from cabochon.validation.opened import DRAFTER, Opened
from cabochon.validation.rules import Found, rule
from cabochon.validation.statements import CARD, NEEDS, facts, one, own_graphs, whole

__all__: list[str] = []


@rule("HON007", Severity.ERROR, ("graphs", "config"))
def card_geometry(package: Opened) -> Iterator[Found]:
    """README.md states another geometry than graph and config have.

    Causes: the card was written by hand or kept from another build.
    Remedy: build the package again, or correct the card.
    """
    rows = table(package.text(CARD) or "")
    for found in facts(package):
        for contract, expected in (spoken(package, found) | encoder_rows(package)).items():
            if contract in rows and (
                missing := [part for part in expected if not _says(rows[contract], part)]
            ):
                at = f"{CARD}: {contract}"
                yield Found(at, rows[contract], ", ".join(missing))


def table(text: str) -> Mapping[str, str]:
    """The rows of the card's contract table."""
    part = text.partition("| Contract | Value |")[2].partition("\n\n")[0]
    cells = [line.strip().strip("|").split(" | ", 1) for line in part.splitlines() if line.startswith("|")]
    return {row[0].strip().strip("*"): row[1].strip() for row in cells if len(row) == 2}


def _says(text: str, part: str) -> bool:
    """Whether the words are there, as words: 3 is not in 35."""
    return (
        re.search(rf"(?<![\w.]){re.escape(part)}(?![\w]|\.\d)", text.replace("**", "").replace("`", ""))
        is not None
    )


def spoken(package: Opened, found: Decoded) -> dict[str, list[str]]:
    """What each row of the card's table must contain that speaks of the decoder."""
    config = found.config
    assert config is not None
    widths = Counter(layer.intermediate for layer in config.layers)
    sizes, heads = found.by_kind(3), found.by_kind(1)
    most = sorted(found.attentions.items(), key=lambda item: (-item[1], item[0]))
    attentions = ", ".join(f"{name} × {count}" for name, count in most)
    borrowers = found.borrowers
    return {
        "Layers": [attentions if found.layers is None else f"{found.layers} ({attentions})"],
        "Hybrid attention": [f"sliding_window({config.window})" if config.window else "full_attention"],
        "Heterogeneous head size": _by_kind(sizes),
        "Head size": [str(one(sizes))],
        "Heads": [
            f"num_attention_heads={config.heads}",
            *([f"key/value heads {one(heads)}"] if one(heads) is not None else _by_kind(heads)),
        ],
        "Key/value caches": [
            f"{len(found.owners)} layers own",
            *([f"num_kv_shared_layers={borrowers}"] if borrowers else []),
        ],
        "Per-layer input": [f"hidden_size_per_layer_input={config.per_layer_input}"],
        "MLP": [f"{width} in {count} layers" for width, count in widths.items()],
        "MoE": [experts(package, config)],
        "Logits": [
            f"soft-capped at {config.softcap}" if config.softcap else "not capped",
            "tied" if config.tied else "own",
        ],
        "Embedding scale": [] if found.embed_scale is None else [repr(found.embed_scale)],
        "Fused operators": sorted(found.fused) or ["none"],
    }


def _by_kind(numbers: Mapping[str, Any]) -> list[str]:
    return [f"{kind.replace('_', '/')} {number}" for kind, number in numbers.items()]


@rule("HON008", Severity.ERROR, NEEDS)
def card_build(package: Opened) -> Iterator[Found]:
    """README.md names another type or provider than the graph is of.

    Causes: the card was kept while the package was built again.
    Remedy: build the package again, or correct the card.
    """
    match = re.search(r"^- \*\*dtype / EP\*\*: `([^`]*)` / `([^`]*)`", package.text(CARD) or "", re.MULTILINE)
    for found in whole(package) if match else ():
        assert match is not None
        target = TARGETS.get(found.graph.properties.get("cabochon.target", ""))
        if found.dtype not in (None, match[1]):
            yield Found(f"{CARD}: dtype", match[1], str(found.dtype))
        if target and target.provider != match[2]:
            yield Found(f"{CARD}: EP", match[2], target.provider)


@rule("HON009", Severity.ERROR, NEEDS)
def caveat_withheld(package: Opened) -> Iterator[Found]:
    """README.md does not say what to know before running this precision on this target.

    Causes: the limits were taken out of the card.
    Remedy: build the package again: the card says what the table of targets says.
    """
    text = package.text(CARD)
    for found in whole(package) if text is not None else ():
        properties = found.graph.properties
        target = TARGETS.get(properties.get("cabochon.target", ""))
        kind, drafter = activations(properties) or "", properties.get("cabochon.model") == DRAFTER
        methods = {"nf4" for graph in own_graphs(package).values() for each in blocked(graph) if each.flat}
        said = target.caveat(kind, drafter=drafter, methods=methods) if target else None
        if said and said not in (text or ""):
            yield Found(f"{CARD}: Limits", "nothing of it", said)
