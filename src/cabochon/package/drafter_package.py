"""What the package of a drafter holds: its contract twice, in documents for programs and for people, and its record.

There is no genai_config.json: onnxruntime-genai has no route for a drafter that reads another model's caches.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cabochon.gemma4 import trace_drafter
from cabochon.metadata.drafter import Drafter, drafter_comments, drafter_document
from cabochon.metadata.forms import dump
from cabochon.metadata.yaml import write
from cabochon.package.component_contract import COMPONENT_CONTRACT, drafter_contract
from cabochon.package.drafter_card import drafter_card
from cabochon.package.facts import DrafterFacts
from cabochon.package.inference_metadata import ANNOTATED, CANONICAL
from cabochon.package.preparing import Prepared
from cabochon.package.provenance import record, source
from cabochon.package.side_files import travelling

__all__ = ["DrafterPackage", "drafter_contracts", "traced"]


class DrafterPackage:
    """See `described.Described`."""

    def traced(self, known: Prepared) -> DrafterFacts:
        """See Described."""
        return traced(known)

    def contract(self, facts: DrafterFacts) -> Mapping[str, bytes]:
        """See Described."""
        document = drafter_document(facts.drafter)
        plain = dump(document, "v1")
        return {
            CANONICAL: write(plain),
            ANNOTATED: write(plain, drafter_comments(document, facts.drafter)),
            COMPONENT_CONTRACT: drafter_contract(facts.drafter),
        }

    def travelling(self, facts: DrafterFacts) -> Mapping[str, tuple[Path, str]]:
        """See Described."""
        found = facts.checkpoint.files
        return {name: (found[name], what) for name, what in travelling(found).items()}

    def documents(self, facts: DrafterFacts) -> Mapping[str, str]:
        """See Described."""
        contracts = drafter_contracts(facts.drafter)
        return {
            "provenance.json": record(
                {"assistant": source(facts)}, facts, {"features": ["drafter"]}, contracts
            )
        }

    def card(self, facts: DrafterFacts, files: Mapping[str, str]) -> str:
        """See Described."""
        return drafter_card(facts, files)

    def said(self) -> Mapping[str, str]:
        """See Described."""
        return {
            CANONICAL: "the contract: ports of one step, for programs",
            ANNOTATED: "the same with comments, for people",
            COMPONENT_CONTRACT: "what the graph takes, gives and borrows, and from where",
            "provenance.json": "source, command, versions, tensors used and unused",
        }

    def summed(self) -> Mapping[str, str]:
        """See Described."""
        return {}


def traced(known: Prepared) -> DrafterFacts:
    """The graph of a drafter, and what is known of it before anything is written."""
    order = known.order
    model = trace_drafter(known.config, known.tensors.used, order.target, order.precision)
    return DrafterFacts(
        known.checkpoint, known.config, known.tensors, {"": model}, order.target, order.precision, known.license, {},
        (), 0, order.command,
    )  # fmt: skip


def drafter_contracts(drafter: Drafter) -> dict[str, Any]:
    """The geometry, in the words of the records that this project began with."""
    text, head = drafter.config.text, drafter.head
    found: dict[str, Any] = {
        "num_hidden_layers": len(text.layers),
        "layer_types": [layer.kind for layer in text.layers],
        "owned_kv_layers": 0,
        "borrowed_kv": {
            kind: {"heads": p.shape[1], "head_dim": p.shape[3]} for kind, p in drafter.kinds.items()
        },
        "num_attention_heads": text.heads,
        "hidden_size": text.hidden,
        "backbone_hidden_size": drafter.backbone,
        "sliding_window": drafter.window,
        "keys_seen_by_sliding_layers": None if drafter.window is None else drafter.window + 1,
        "use_ordered_embeddings": head.kind == "ordered",
        "num_centroids": head.centroids,
        "centroid_intermediate_top_k": head.top_k,
        "scored_tokens": head.scored,
        "vocab_size": head.vocabulary,
        "max_position_embeddings": text.max_positions,
    }
    return {key: value for key, value in found.items() if value is not None}
