"""A document of one version said in another: what only one of them can say is derived, remarked on, or refused."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cabochon.metadata import versions
from cabochon.metadata.addresses import Path, Problem, dotted, raised
from cabochon.metadata.capabilities import capabilities
from cabochon.metadata.document import (
    Document,
    Emit,
    Events,
    Manifest,
    Materialized,
    PackedLevel,
    Part,
    Profile,
    RuntimeConfigurable,
    TensorContract,
    TokenEmbedding,
    Tokenizer,
    TokenPacked,
    Workflow,
)
from cabochon.metadata.proposals import speculative_to_v1, speculative_to_v18
from cabochon.metadata.special_tokens import ids_of, roles_of
from cabochon.metadata.walking import changed, parts

__all__ = ["Converted", "convert"]

_ANY = "Any"  # a dimension of which v1.8 says nothing


@dataclass(frozen=True)
class Converted:
    """The document in the other version, and what that version cannot say."""

    document: Document
    remarks: tuple[str, ...]


@dataclass(frozen=True)
class _Conversion:
    """What the changes of parts need to know, and what they have to say."""

    document: Document
    at: str
    contents: Mapping[int, str]  # of special tokens: v1 wants them, v1.8 has only ids
    ends: Sequence[int]
    remarks: list[str] = field(default_factory=list[str])

    def remark(self, path: Path, text: str) -> None:
        self.remarks.append(f"{dotted(path)}: {text}")

    def retire(self, path: Path, part: Any, key: str) -> Any:
        """The part without `key`, and a remark where it said something."""
        if (value := getattr(part, key)) is None:
            return part
        self.remark((*path, key), f"{value!r} is left out: v1.8 has no place for it")
        return part.model_copy(update={key: None})


Change = Callable[[_Conversion, Path, Any], Any]


def convert(
    document: Document,
    dialect: str,
    *,
    contents: Mapping[int, str] | None = None,
    ends: Sequence[int] = (),
    at: str = "",
) -> Converted:
    """The document as "v1" or "v1.8" says it; the same again where it is of that version already.

    `contents` are the texts of special tokens by id, which v1 must say; `ends` the ids that end generation, which v1.8
    must say, as other files of the package state them: without them those count that v1 calls eos, eos_*, eot or
    end_of_turn. `at` names the document. Raises MetadataError that names what the version cannot say.
    """
    changes = _CHANGES[dialect]
    conversion = _Conversion(document, at, contents or {}, ends)

    def change(path: Path, part: Part) -> Any:
        return changes[type(part)](conversion, path, part) if type(part) in changes else part

    result = changed(document, change)
    if problems := versions.check(result):
        remedy = (
            f"keep the document as {document.schema_version or 'v1'}, or leave out what {dialect} cannot say"
        )
        raise raised(problems, at, remedy)
    return Converted(result, tuple(conversion.remarks))


def _contract_v1(conversion: _Conversion, path: Path, part: TensorContract) -> TensorContract:
    if part.shape is None or part.rank is not None:
        return part
    unknown = bool(part.shape) and all(dimension == _ANY for dimension in part.shape)
    return part.model_copy(update={"rank": len(part.shape), "shape": None if unknown else part.shape})


def _contract_v18(conversion: _Conversion, path: Path, part: TensorContract) -> TensorContract:
    shape = part.shape if part.shape is not None or part.rank is None else (_ANY,) * part.rank
    if part.rank is not None and len(shape or ()) != part.rank:
        raise raised(
            [Problem((*path, "rank"), f"{part.rank}", f"{len(shape or ())}, as the shape has")],
            conversion.at,
            "",
        )
    return part.model_copy(update={"shape": shape, "rank": None})


def _packed_v1(conversion: _Conversion, path: Path, part: TokenPacked) -> TokenPacked:
    if part.levels is None or len(part.levels) > 1 or any(level.extent for level in part.levels):
        return part
    only = next(iter(part.levels))
    return part.model_copy(update={"levels": None, "offsets": only.offsets, "owner": only.owner})


def _packed_v18(conversion: _Conversion, path: Path, part: TokenPacked) -> TokenPacked:
    if part.offsets is None or part.owner is None:
        return part
    levels = (PackedLevel(offsets=part.offsets, owner=part.owner),)
    return part.model_copy(update={"levels": levels, "offsets": None, "owner": None})


def _workflow_v1(conversion: _Conversion, path: Path, part: Workflow) -> Workflow:
    events = _events(part)
    outputs = {
        name: output.model_copy(update={"family": None})
        if isinstance(output.family, Events if name in events else Materialized)
        else output
        for name, output in part.outputs.items()
    }
    listed = part.manifest.capabilities
    manifest = {"capabilities": capabilities(part) if listed is None else listed}
    mode = None if part.publication_mode == "commit_only" else part.publication_mode
    return part.model_copy(
        update={
            "manifest": part.manifest.model_copy(update=manifest),
            "publication_mode": mode,
            "outputs": outputs,
        }
    )


def _workflow_v18(conversion: _Conversion, path: Path, part: Workflow) -> Workflow:
    events, derived = _events(part), capabilities(part)
    for capability in part.manifest.capabilities or ():
        if capability not in derived:
            conversion.remark(
                (*path, "manifest", "capabilities"), f"{capability} is left out: v1.8 asks for none"
            )
    outputs = {
        name: output.model_copy(
            update={"family": output.family or (Events() if name in events else Materialized())}
        )
        for name, output in part.outputs.items()
    }
    return part.model_copy(
        update={
            "manifest": _without_capabilities(part.manifest),
            "publication_mode": part.publication_mode or "commit_only",
            "outputs": outputs,
        }
    )


def _without_capabilities(manifest: Manifest) -> Manifest:
    return manifest.model_copy(update={"capabilities": None})


def _events(workflow: Workflow) -> set[str]:
    """The outputs that leave as events."""
    return {part.output for _, part in parts(workflow) if isinstance(part, Emit) and part.mode == "event"}


def _tokenizer_v1(conversion: _Conversion, path: Path, part: Tokenizer) -> Tokenizer:
    where = ": ".join(filter(None, (conversion.at, dotted((*path, "special_tokens")))))
    tokens = roles_of(part.special_tokens, conversion.contents, where)
    return part.model_copy(update={"special_tokens": tokens})


def _tokenizer_v18(conversion: _Conversion, path: Path, part: Tokenizer) -> Tokenizer:
    tokens, lost = ids_of(part.special_tokens, conversion.ends)
    for what in lost:
        conversion.remark((*path, "special_tokens"), what)
    return part.model_copy(update={"special_tokens": tokens})


def _embedding_v1(conversion: _Conversion, path: Path, part: TokenEmbedding) -> TokenEmbedding:
    if part.scale in (None, 1.0):
        return part.model_copy(update={"scale": None})
    conversion.remark((*path, "scale"), f"{part.scale} is left out: v1 has no place for it")
    return part.model_copy(update={"scale": None})


def _embedding_v18(conversion: _Conversion, path: Path, part: TokenEmbedding) -> TokenEmbedding:
    if part.scale is None:
        conversion.remark((*path, "scale"), "v1 does not say it, and v1.8 then takes the rows as they are")
    return part


def _document_v1(conversion: _Conversion, path: Path, part: Document) -> Document:
    update: dict[str, Any] = {"schema_version": "v1"}
    if part.speculative:
        update["speculative"] = speculative_to_v1(part.speculative, conversion.document)
    return part.model_copy(update=update)


def _document_v18(conversion: _Conversion, path: Path, part: Document) -> Document:
    update: dict[str, Any] = {"schema_version": "v1.8"}
    if part.speculative:
        update["speculative"] = speculative_to_v18(part.speculative, conversion.document)
    return conversion.retire(path, part, "required_capabilities").model_copy(update=update)


def _retiring(key: str) -> Change:
    return lambda conversion, path, part: conversion.retire(path, part, key)


_CHANGES: Mapping[str, Mapping[type[Part], Change]] = {
    "v1": {
        TensorContract: _contract_v1,
        TokenPacked: _packed_v1,
        Workflow: _workflow_v1,
        Tokenizer: _tokenizer_v1,
        TokenEmbedding: _embedding_v1,
        Document: _document_v1,
    },
    "v1.8": {
        TensorContract: _contract_v18,
        TokenPacked: _packed_v18,
        Workflow: _workflow_v18,
        Tokenizer: _tokenizer_v18,
        RuntimeConfigurable: _retiring("continuous_batching"),
        Profile: _retiring("batch_invariance"),
        TokenEmbedding: _embedding_v18,
        Document: _document_v18,
    },
}
