"""What a full package holds: four graphs, their contract, and configs of other runtimes and their processors."""

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cabochon.errors import PackageError, TargetError
from cabochon.gemma4 import trace_full
from cabochon.media.genai import AUDIO_FILE, IMAGE_FILE, audio_feature_extraction_json, image_processor_json
from cabochon.package.facts import FullFacts
from cabochon.package.full_card import full_card
from cabochon.package.full_status import full_status
from cabochon.package.genai_config import GENAI_CONFIG
from cabochon.package.genai_full import genai_full_text
from cabochon.package.inference_metadata import ANNOTATED, CANONICAL, LOOP, POLICIES, full_inference_metadata
from cabochon.package.media_fitting import require_fitting
from cabochon.package.metadata_status import METADATA_STATUS
from cabochon.package.preparing import Prepared
from cabochon.package.provenance import full_provenance
from cabochon.package.side_files import media_files, travelling

__all__ = ["FullPackage"]


class FullPackage:
    """See `described.Described`."""

    def traced(self, known: Prepared) -> FullFacts:
        """See Described."""
        order = known.order
        models = trace_full(
            known.config,
            known.tensors.used,
            order.target,
            order.precision,
            logits_to_keep=order.logits_to_keep,
        )
        facts = FullFacts(
            known.checkpoint, known.config, known.tensors, models, order.target, order.precision, known.license, {}, (),
            order.logits_to_keep, order.command,
        )  # fmt: skip
        require_fitting(facts.processors, known.config)  # now, not when all weights are written
        _require_tokens(facts)
        return facts

    def contract(self, facts: FullFacts) -> Mapping[str, bytes]:
        """See Described."""
        return full_inference_metadata(facts.full)

    def travelling(self, facts: FullFacts) -> Mapping[str, tuple[Path, str]]:
        """See Described."""
        found = facts.checkpoint.files
        names = travelling(found) | media_files(found)
        return {name: (found[name], what) for name, what in names.items()}

    def documents(self, facts: FullFacts) -> Mapping[str, str]:
        """See Described."""
        processors = _processors(facts)
        genai = genai_full_text(facts.full, facts.target.provider, facts.checkpoint.config, processors)
        return {
            **processors,
            GENAI_CONFIG: genai,
            "provenance.json": full_provenance(facts),
            METADATA_STATUS: full_status(facts.full, processors),
        }

    def card(self, facts: FullFacts, files: Mapping[str, str]) -> str:
        """See Described."""
        return full_card(facts, files)

    def said(self) -> Mapping[str, str]:
        """See Described."""
        return {
            CANONICAL: "the contract: components, ports, state and caches, for programs",
            ANNOTATED: "the same with comments, for people",
            LOOP: "the loop around the decoder, from prompt and media to tokens",
            f"{POLICIES}/": "the graphs of that loop: sampler, termination, states",
            METADATA_STATUS: "what each version of the contract can say, and what it cannot",
            GENAI_CONFIG: "what onnxruntime-genai asks for",
            IMAGE_FILE: "how onnxruntime-genai prepares images",
            AUDIO_FILE: "how onnxruntime-genai prepares sound",
            "provenance.json": "source, command, versions, tensors used and unused",
        }

    def summed(self) -> Mapping[str, str]:
        """See Described."""
        return {}


def _require_tokens(facts: FullFacts) -> None:
    """Raise PackageError where config.json and the tokenizer have different ids for a token that stands for media."""
    for name, number in facts.config.tokens.items():
        token = facts.vocabulary and facts.vocabulary.special.get(name)
        if token and token.id != number:
            raise PackageError(
                f"is {number}; the tokenizer has {token.content!r} at {token.id}",
                at=f"config.json: {name}_token_id",
                remedy="take config.json and the tokenizer's files from one checkpoint",
            )


def _processors(facts: FullFacts) -> dict[str, str]:
    """The processor files of onnxruntime-genai, for the encoders that the model has, where it can say what ours do."""
    given, found = facts.processors, dict[str, str]()
    with contextlib.suppress(TargetError):
        if facts.config.vision and given.image:
            found[IMAGE_FILE] = _json(image_processor_json(given.image))
    with contextlib.suppress(TargetError):
        if facts.config.audio and given.audio:
            found[AUDIO_FILE] = _json(audio_feature_extraction_json(given.audio))
    return found


def _json(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2) + "\n"
