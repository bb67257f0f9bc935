"""What a matrix will hold, and which of its files are the same, from the checkpoint's headers alone."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Literal

from cabochon.dialects import TARGETS
from cabochon.errors import CabochonError, SourceError
from cabochon.matrix.contents import Content, contents, stored
from cabochon.matrix.shards import shard_of
from cabochon.matrix.variants import EPCONTEXT, Variant, chosen
from cabochon.package.kinds import DRAFTER, KINDS
from cabochon.planning.offers import Offer, offers
from cabochon.planning.opened import Opened, open_config, open_source
from cabochon.planning.verdicts import Verdict, verdicts
from cabochon.recipes import PRECISIONS

__all__ = ["Matrix", "Unit", "plan_matrix"]

_TARGET = "target"  # where the target of a pair lies
_LOOK_UP = "token_embedding"  # what looks tokens up for its drafter: converted, with a table of its own


@dataclass(frozen=True)
class Unit:
    """A variant as it is built from this checkpoint: its files of weights, and the bytes of everything else, about.

    `refused`: why it is not built, "" where it is.
    """

    variant: Variant
    files: tuple[Content, ...] = ()
    documents: int = 0
    refused: str = ""

    @property
    def folder(self) -> str:
        """Where it stands, below OUT."""
        return self.variant.folder

    @property
    def nbytes(self) -> int:
        """Of the whole package."""
        return sum(file.nbytes for file in self.files) + self.documents


@dataclass(frozen=True)
class Matrix:
    """What is to be built; `source_bytes` are those of the tensors that packages use."""

    source: str
    model: Literal["text", "full"]
    units: tuple[Unit, ...]
    source_bytes: int
    remarks: tuple[str, ...]


def plan_matrix(
    source: str | Path,
    *,
    model: Literal["text", "full"] | None = None,
    assistant: str | Path | None = None,
    only: Sequence[str] = (),
    every: bool = False,
    shard: tuple[int, int] | None = None,
    revision: str | None = None,
    assistant_revision: str | None = None,
) -> Matrix:
    """Plan the variants of a checkpoint: a folder, a hub id (only the small files are fetched), or a config.json.

    `only` and `every` as `variants.chosen` takes them. `shard` is (i, n): the i-th of n parts, counted from 1, that
    depend on nothing but these arguments.
    Raises SourceError where there is nothing to plan, PackageError for a pattern or a shard that means nothing.
    """
    asked = chosen(only, every=every)
    offer, remarks = _offer(source, model, revision)
    drafter = None if assistant is None else _drafter(assistant, assistant_revision)
    parts = [part for part in (offer, drafter) if part]
    units = _units(asked, parts)
    return Matrix(
        source=str(source),
        model="full" if offer.kind.name == "full" else "text",
        units=units if shard is None else shard_of(units, *shard),
        source_bytes=sum(stored(tensor, prod(tensor.shape)) for p in parts for tensor in p.tensors.values()),
        remarks=remarks,
    )


def _offer(source: str | Path, model: str | None, revision: str | None) -> tuple[Offer, tuple[str, ...]]:
    """What is built of the checkpoint: all of it unless text is asked for, or it is nothing but text."""
    found = {offer.kind.name: offer for offer in offers(_opened(source, revision))}
    if DRAFTER.name in found:
        raise SourceError(
            "is an assistant; expected a model",
            at=str(source),
            remedy="give the model, and this with --assistant",
        )
    if model is not None and model not in KINDS:
        raise SourceError(f"model is {model!r}; expected 'text' or 'full'")
    if model is not None and model not in found:
        raise SourceError(f"there is no {model} package of this checkpoint", at=str(source))
    offer = found[model or list(found)[-1]]
    return offer, tuple(offer.remarks)


def _drafter(assistant: str | Path, revision: str | None) -> Offer:
    opened = _opened(assistant, revision)
    DRAFTER.read(opened.raw)  # or it says that it is none
    return offers(opened)[0]


def _opened(source: str | Path, revision: str | None) -> Opened:
    return open_config(source) if Path(source).is_file() else open_source(source, revision)


def _units(asked: Iterable[Variant], parts: list[Offer]) -> tuple[Unit, ...]:
    asked = tuple(asked)
    names = dict.fromkeys(variant.precision for variant in asked)
    drafter = parts[1] if len(parts) > 1 else None
    every = verdicts(parts[0], drafter, [PRECISIONS[name] for name in names])
    said = {(verdict.target, verdict.precision): verdict for verdict in every}
    found = dict[str, Unit]()
    for variant in asked:
        verdict = said[variant.target, variant.precision]
        found[variant.folder] = (
            _converted(variant, found, verdict) if variant.needs else _unit(variant, parts, verdict)
        )
    return tuple(found.values())


def _unit(variant: Variant, parts: list[Offer], verdict: Verdict) -> Unit:
    if verdict.status == "refused":
        return Unit(variant, refused=verdict.reason)
    documents = next(part.disk for part in verdict.components if part.name == "documents")
    try:
        files = [_files(variant, part) for part in parts]
    except CabochonError as error:
        return Unit(variant, refused=str(error))
    if len(parts) > 1:
        files[0] = tuple(file.within(_TARGET) for file in files[0])
    return Unit(variant, tuple(file for some in files for file in some), documents)


def _files(variant: Variant, offer: Offer) -> tuple[Content, ...]:
    target = TARGETS[variant.target]
    precision = PRECISIONS[variant.precision].on(target.storage)
    return contents(offer.kind.weights(offer.config, offer.tensors, target, precision), target)


def _converted(variant: Variant, found: Mapping[str, Unit], verdict: Verdict) -> Unit:
    """As large as the verdict says, where each graph has all its weights in one file. Nothing of it is the same but
    what EPContext refers to, which is the IR."""
    made_of = found[variant.needs or ""]
    if made_of.refused:
        return Unit(variant, refused=f"{made_of.folder}, which it is made of, is refused: {made_of.refused}")
    if variant.target == EPCONTEXT:
        return replace(made_of, variant=variant)
    tables = (
        Content(part.name, part.disk, part.name, 0) for part in verdict.components if part.name == _LOOK_UP
    )
    files = tuple(
        replace(file, key=f"{variant.folder}/{file.path}", nbytes=file.nbytes * file.names, read=0, names=1)
        for file in (*made_of.files, *tables)
    )
    return Unit(variant, files, verdict.disk - sum(file.nbytes for file in files))
