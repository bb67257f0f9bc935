"""What belongs to which version of the format. Types are a matter of the model; this is what a version adds or retires.

Version 0 is "v1": the form of the canonical examples, which must say `rank` and `capabilities`. Versions 1 to 8,
"v1.1" to "v1.8", are those of the released runtime, which refuses both. No document is of both kinds.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from cabochon.errors import MetadataError
from cabochon.metadata.addresses import Problem, dotted, in_words
from cabochon.metadata.document import (
    ALWAYS,
    CandidateTree,
    Component,
    Document,
    Emit,
    FlatBlock,
    Group,
    Loop,
    Manifest,
    Model,
    MultiTokenPrediction,
    Output,
    Package,
    Part,
    Preprocessing,
    Profile,
    Revisions,
    RuntimeConfigurable,
    RuntimeRole,
    Session,
    SharedWeight,
    SpecialTokenIds,
    Speculative,
    TensorContract,
    TokenEmbedding,
    Tokenizer,
    TokenPacked,
    Workflow,
)
from cabochon.metadata.walking import key_of, parts

__all__ = ["DIALECTS", "GATES", "Gate", "check", "dialect", "name", "number"]

DIALECTS = ("v1", "v1.8")  # those that are written
_NAME = re.compile(r"v?1(?:\.([0-8]))?")
_V1, _ALWAYS, _NEVER = range(0, 1), range(0, 9), range(0, 0)


def _since(minor: int) -> range:
    return range(minor, 9)


@dataclass(frozen=True)
class Gate:
    """A field, or one kind of value in it (`only`: a type or a text), the versions that know it and that need it."""

    part: type[Part]
    field: str
    known: Collection[int]
    needed: Collection[int] = _NEVER
    only: type | str | None = None

    def concerns(self, value: Any) -> bool:
        """Whether a value of the field, or an item of it, is what the gate is about."""
        if self.only is None:
            return value is not None
        items = value if isinstance(value, tuple) else (value,)
        return any(i == self.only if isinstance(self.only, str) else isinstance(i, self.only) for i in items)


GATES = (
    Gate(Document, "required_capabilities", _V1),
    Gate(Model, "io", _NEVER),  # the shape before the workflow: refused beside one in v1, retired since
    Gate(RuntimeConfigurable, "continuous_batching", _V1),
    Gate(Manifest, "capabilities", _V1, needed=_V1),
    Gate(Profile, "batch_invariance", _V1),
    Gate(TensorContract, "rank", _V1, needed=_V1),
    Gate(TensorContract, "shape", _ALWAYS, needed=_since(1)),
    Gate(TensorContract, "padding", _since(1)),
    Gate(TokenPacked, "axis", _ALWAYS, needed=_ALWAYS),
    Gate(TokenPacked, "offsets", _V1, needed=_V1),
    Gate(TokenPacked, "owner", _V1, needed=_V1),
    Gate(TokenPacked, "levels", _since(1), needed=_since(1)),
    Gate(Component, "batch_capacity", _since(1)),
    Gate(Preprocessing, "video", _since(1)),
    Gate(Session, "continuation", _since(1)),
    Gate(Tokenizer, "algorithm", _ALWAYS, needed=_V1),
    Gate(Tokenizer, "vocab_size", _ALWAYS, needed=_V1),
    Gate(Tokenizer, "special_tokens", _V1, only=dict),
    Gate(Tokenizer, "special_tokens", _since(2), only=SpecialTokenIds),
    Gate(RuntimeRole, "version", _ALWAYS, needed=_ALWAYS),
    Gate(Revisions, "version", _ALWAYS, needed=_ALWAYS),
    Gate(RuntimeRole, "role", _since(2), only="eos_token_ids"),
    Gate(RuntimeRole, "role", _since(2), only="eos_token_lengths"),
    Gate(Package, "tool_protocol", _since(3)),
    Gate(Output, "family", _since(5), needed=_since(5)),
    Gate(Emit, "stream", _since(5)),
    Gate(Document, "speculative", (*_V1, *_since(6))),
    Gate(Speculative, "identity", _since(6), needed=_since(6)),
    Gate(Speculative, "version", _since(6), needed=_since(6)),
    Gate(Speculative, "verification", _since(6), needed=_since(6)),
    Gate(Speculative, "target_port_bindings", _since(6)),
    Gate(Speculative, "shared_weights", _V1, only=str),
    Gate(Speculative, "shared_weights", _since(6), only=SharedWeight),
    Gate(Speculative, "proposal_execution", _since(6), only=MultiTokenPrediction),
    Gate(Speculative, "proposal_execution", _since(6), only=CandidateTree),
    Gate(Speculative, "proposal_execution", _since(6), only=FlatBlock),
    Gate(TokenEmbedding, "scale", _since(6)),
    Gate(Workflow, "publication_mode", _since(7), needed=_since(7)),
    Gate(Group, "kind", _since(8), only="compressed_attention"),
    Gate(Group, "properties", _since(8)),
)
_GATES = {part: [gate for gate in GATES if gate.part is part] for part in {gate.part for gate in GATES}}


def number(version: Any) -> int:
    """The minor version that `schema_version` says; 0 where it says nothing. MetadataError for others."""
    match = _NAME.fullmatch(version) if isinstance(version, str) else None
    if version is None or match:
        return int((match and match[1]) or 0)
    expected = "v1 to v1.8, as a text"
    remedy = "convert the document with a tool that knows this version"
    if isinstance(version, int | float) and not isinstance(version, bool):
        expected, remedy = "a text", f"put quotes around it: '{version}'"
    raise MetadataError(in_words(version), expected, at="schema_version", remedy=remedy)


def name(version: int) -> str:
    """0 -> "v1", 8 -> "v1.8"."""
    return f"v1.{version}" if version else "v1"


def dialect(document: Document) -> str:
    """The version of a document, spelled as `name` does. Raises MetadataError as `number` does."""
    return name(number(document.schema_version))


def check(document: Document, version: str | None = None) -> list[Problem]:
    """What a document says that its version (or the one given) does not know, and what it lacks."""
    try:
        minor = number(version or document.schema_version)
    except MetadataError as error:
        return [Problem(("schema_version",), error.found, error.expected)]
    found = [
        p
        for path, part in parts(document)
        for gate in _GATES.get(type(part), ())
        for p in _held(gate, path, part, minor)
    ]
    return [*found, *_without_end(document, minor)]


def _held(gate: Gate, path: tuple[str | int, ...], part: Part, minor: int) -> Iterator[Problem]:
    value = getattr(part, gate.field) if gate.field in part.model_fields_set or gate.field in ALWAYS else None
    where = (*path, key_of(gate.part, gate.field))
    if gate.concerns(value):
        if minor not in gate.known:
            yield Problem(where, _what(gate, value), f"{name(minor)} has no such thing; {_known(gate)}")
    elif minor in gate.needed and value is None:
        yield Problem(where, "nothing", f"it to be there in {name(minor)}")


def _what(gate: Gate, value: Any) -> str:
    if isinstance(gate.only, str):
        return in_words(gate.only)
    kind = getattr(value, "kind", None)
    return f"kind {kind}" if gate.only and kind else in_words(value)


def _known(gate: Gate) -> str:
    if not gate.known:
        return "it belongs to what came before the workflow"
    spans = [name(minor) for minor in gate.known if minor == 0 or minor - 1 not in gate.known]
    later = " and later" if max(gate.known) == 8 else ""
    return f"{' and '.join(spans)}{later} {'have' if later or len(spans) > 1 else 'has'} it"


def _without_end(document: Document, minor: int) -> Iterator[Problem]:
    """From v1.2 on a loop that ends with the end of generation needs the tokens that say so."""
    tokenizer = document.package.tokenizer if document.package else None
    tokens = tokenizer.special_tokens if tokenizer else None
    ends = tokens.eos_token_id if isinstance(tokens, SpecialTokenIds) else None
    for path, part in parts(document) if minor >= 2 and ends is None else ():
        if isinstance(part, Loop) and part.termination == "generation_eos":
            where = ("package", "tokenizer", "special_tokens", "eos_token_id")
            yield Problem(where, "nothing", f"the tokens that end the loop at {dotted(path)}")
