"""What a text package holds: the decoder's contract in three documents with its loop, and configs of other runtimes."""

from collections.abc import Mapping
from pathlib import Path

from cabochon.gemma4 import trace_text
from cabochon.package.card import card
from cabochon.package.facts import TextFacts
from cabochon.package.genai_config import GENAI_CONFIG, genai_text
from cabochon.package.inference_metadata import ANNOTATED, CANONICAL, LOOP, POLICIES, inference_metadata
from cabochon.package.preparing import Prepared
from cabochon.package.provenance import provenance
from cabochon.package.side_files import travelling

__all__ = ["TextPackage"]


class TextPackage:
    """See `described.Described`."""

    def traced(self, known: Prepared) -> TextFacts:
        """See Described."""
        order = known.order
        model = trace_text(
            known.config,
            known.tensors.used,
            order.target,
            order.precision,
            logits_to_keep=order.logits_to_keep,
        )
        return TextFacts(
            known.checkpoint, known.config, known.tensors, {"": model}, order.target, order.precision, known.license,
            {}, (), order.logits_to_keep, order.command,
        )  # fmt: skip

    def contract(self, facts: TextFacts) -> Mapping[str, bytes]:
        """See Described."""
        return inference_metadata(facts.decoder)

    def travelling(self, facts: TextFacts) -> Mapping[str, tuple[Path, str]]:
        """See Described."""
        found = facts.checkpoint.files
        return {name: (found[name], what) for name, what in travelling(found).items()}

    def documents(self, facts: TextFacts) -> Mapping[str, str]:
        """See Described."""
        return {GENAI_CONFIG: genai_text(facts), "provenance.json": provenance(facts)}

    def card(self, facts: TextFacts, files: Mapping[str, str]) -> str:
        """See Described."""
        return card(facts, files)

    def said(self) -> Mapping[str, str]:
        """See Described."""
        return {
            CANONICAL: "the contract: ports, state and caches, for programs",
            ANNOTATED: "the same with comments, for people",
            LOOP: "the loop around the decoder, from prompt to tokens",
            f"{POLICIES}/": "the graphs of that loop: sampler, termination, states",
            GENAI_CONFIG: "what onnxruntime-genai asks for",
            "provenance.json": "source, command, versions, tensors used and unused",
        }

    def summed(self) -> Mapping[str, str]:
        """See Described."""
        return {}
