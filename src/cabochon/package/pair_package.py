"""What a pair holds beside both models: the workflow of both, the look-up of tokens, and what each dialect can say."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from cabochon import files, sums
from cabochon.metadata.folder import open_decoder, open_full
from cabochon.metadata.forms import dump
from cabochon.metadata.full import Full
from cabochon.metadata.pair import EMBEDDING, Pair, pair_comments, pair_document, read_embedding, width
from cabochon.metadata.ports import last
from cabochon.metadata.yaml import write
from cabochon.package.built_target import decoder_folder
from cabochon.package.component_contract import COMPONENT_CONTRACT, pair_contract
from cabochon.package.drafter_package import drafter_contracts, traced
from cabochon.package.facts import Digest, DrafterFacts
from cabochon.package.inference_metadata import ANNOTATED, CANONICAL
from cabochon.package.layout import GRAPH
from cabochon.package.metadata_status import METADATA_STATUS
from cabochon.package.pair_card import pair_card
from cabochon.package.pair_status import pair_status
from cabochon.package.preparing import Prepared
from cabochon.package.provenance import record, source
from cabochon.package.side_files import travelling
from cabochon.package.token_embedding import token_embedding
from cabochon.strict_json import parse_object

__all__ = ["ASSISTANT_GENERATION", "PairPackage"]

ASSISTANT_GENERATION = "assistant_generation_config.json"


class PairPackage:
    """See `described.Described`. The target's package stands in `folder` of `stage` already."""

    def __init__(self, stage: Path, folder: str) -> None:
        self._stage, self._folder = stage, folder

    def traced(self, known: Prepared) -> DrafterFacts:
        """See Described."""
        return traced(known)

    def contract(self, facts: DrafterFacts) -> Mapping[str, bytes]:
        """See Described."""
        pair = self._pair(facts)
        document = pair_document(pair)
        plain = dump(document, "v1")
        return {
            EMBEDDING: self._embedding[0],
            CANONICAL: write(plain),
            ANNOTATED: write(plain, pair_comments(document, pair)),
            COMPONENT_CONTRACT: pair_contract(pair),
        }

    def travelling(self, facts: DrafterFacts) -> Mapping[str, tuple[Path, str]]:
        """The config is the assistant's; tokenizer, chat template and defaults of generation are the target's."""
        own, target = facts.checkpoint.files, self._stage / self._folder
        theirs = {path.name: path for path in target.iterdir()}
        found = {name: (own.get(name, path), what) for name, path, what in _named(own, ("config.json",))}
        others = travelling(theirs).keys() - {"config.json"}
        found |= {
            name: (path, f"{what}; the target's") for name, path, what in _named(theirs, sorted(others))
        }
        if "generation_config.json" in own:
            found[ASSISTANT_GENERATION] = (
                own["generation_config.json"],
                "how many tokens the assistant proposes",
            )
        return found

    def documents(self, facts: DrafterFacts) -> Mapping[str, str]:
        """See Described."""
        pair = self._pair(facts)
        digests = {**facts.digests, **self._digests}
        own = {
            "features": ["drafter", "target: " + ", ".join(self._target_features)],
            "max_proposal_width": pair.width,
            "embed_scale": pair.embedding.scale,
            "target_package": self._folder,
        }
        sources = {"target": self._target.get("target"), "assistant": source(facts)}
        written = record(sources, replace(facts, digests=digests), own, drafter_contracts(facts.drafter))
        return {"provenance.json": written, METADATA_STATUS: pair_status(pair)}

    def card(self, facts: DrafterFacts, files: Mapping[str, str]) -> str:
        """See Described."""
        return pair_card(facts, self._pair(facts), self._target.get("target") or {}, files)

    def said(self) -> Mapping[str, str]:
        """See Described."""
        return {
            f"{self._folder}/": "the target: a package of its own",
            EMBEDDING: "ids to scaled rows of the target's own table",
            CANONICAL: "the contract: the speculative workflow of both, for programs",
            ANNOTATED: "the same with comments, for people",
            COMPONENT_CONTRACT: "what each graph takes, gives and borrows, and from where",
            METADATA_STATUS: "what each version of the contract can say, and what it cannot",
            "provenance.json": "sources, command, versions, tensors used and unused",
        }

    def summed(self) -> Mapping[str, str]:
        """The files of the target were hashed as they were written."""
        target = self._stage / self._folder
        return {f"{self._folder}/{name}": digest for name, digest in sums.read(target).items()}

    def _pair(self, facts: DrafterFacts) -> Pair:
        proposed = width(facts.object("generation_config.json"))
        return Pair(self._decoder, facts.drafter, self._embedding[1], proposed, self._full)

    @cached_property
    def _full(self) -> Full | None:
        target = self._stage / self._folder
        return None if decoder_folder(target) == "" else open_full(target).within(self._folder)

    @cached_property
    def _decoder(self) -> Any:
        if self._full:
            return self._full.decoder
        decoder = open_decoder(self._stage / self._folder)
        return replace(decoder, name=self._folder, artifact=f"{self._folder}/{decoder.artifact}")

    @cached_property
    def _embedding(self) -> tuple[bytes, Any]:
        """The graph that looks tokens up, as bytes and as what they say."""
        import onnx
        import onnx_ir as ir

        decoder = self._decoder
        fed = decoder_folder(self._stage / self._folder) != ""
        folder = f"{self._folder}/embedding" if fed else self._folder
        proto = onnx.load(self._stage / folder / GRAPH, load_external_data=False)
        hidden = last(decoder.ports.outputs[decoder.hidden])
        cut = token_embedding(proto, folder, hidden)
        return cut.SerializeToString(deterministic=True), read_embedding(ir.from_proto(cut))

    @cached_property
    def _digests(self) -> dict[str, Digest]:
        """Of the graphs and weights beside the drafter's own."""
        record = self._target.get("files") or {}
        inner = {
            f"{self._folder}/{name}": Digest(said["bytes"], said["sha256"]) for name, said in record.items()
        }
        path = self._stage / EMBEDDING
        return {EMBEDDING: Digest(path.stat().st_size, files.sha256(path)), **inner}

    @property
    def _target_features(self) -> list[str]:
        """What the target takes, by its own record."""
        return (self._target.get("build") or {}).get("features") or ["text-only"]

    @cached_property
    def _target(self) -> dict[str, Any]:
        """The target's own record."""
        return parse_object((self._stage / self._folder / "provenance.json").read_bytes())


def _named(files: Mapping[str, Path], names: Any) -> list[tuple[str, Path, str]]:
    what = travelling(files)
    return [(name, files[name], what[name]) for name in what if name in names]
