"""A pair: the drafter in a folder, and within it, in target/, the text or full package that it drafts for."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from cabochon import files
from cabochon.checkpoint import Checkpoint
from cabochon.errors import PackageError
from cabochon.gemma4 import FullConfig, TextConfig
from cabochon.package.built_target import BuiltTarget, is_built, read_built
from cabochon.package.filling import Given, fill, linked_bytes, remarks, written
from cabochon.package.fitting import require_fit
from cabochon.package.kinds import DRAFTER, Kind
from cabochon.package.order import Order
from cabochon.package.preparing import Prepared, prepare
from cabochon.package.writer import Digest, Progress

__all__ = ["Parts", "fill_pair"]

_TARGET = "target"


@dataclass(frozen=True)
class Parts:
    """What a pair is made of: a checkpoint, built as one of a `kind`, or a package, and the checkpoint of an assistant;
    their revisions; files of weights that are `given`, see `build`."""

    target: str | Path
    kind: Kind
    assistant: str | Path
    revision: str | None
    assistant_revision: str | None
    given: Given = field(default_factory=dict[str, tuple[Path, Digest]])

    @property
    def given_target(self) -> dict[str, tuple[Path, Digest]]:
        """Those of the target, by path in its package."""
        inner = f"{_TARGET}/"
        return {p.removeprefix(inner): it for p, it in self.given.items() if p.startswith(inner)}


def fill_pair(parts: Parts, out: Path, asked: Order, told: Progress) -> tuple[int, tuple[str, ...], bool]:
    """Build the pair `out`: its bytes without linked ones, what to know of it, and whether anything is linked.

    Raises PackageError for an assistant that does not fit the target.
    """
    own = replace(asked, logits_to_keep=0, precision=replace(asked.precision, statistics=None))
    drafter = prepare(parts.assistant, DRAFTER, own, parts.assistant_revision, out)
    target = _target(parts, asked, out)
    require_fit(_text(target.config), drafter.config)
    with files.staged(out) as stage:
        (stage / _TARGET).mkdir()
        links, said = _fill(drafter, target, parts, stage, told)
        told.done()
        nbytes = written(stage, links)
    family = () if isinstance(target, BuiltTarget) else _other_family(target.checkpoint, drafter.checkpoint)
    return nbytes, (*said, *family), bool(links)


def _target(parts: Parts, asked: Order, out: Path) -> Prepared | BuiltTarget:
    if not is_built(parts.target):
        return prepare(parts.target, parts.kind, asked, parts.revision, out)
    if asked.precision.statistics is not None:
        raise PackageError(
            "statistics are given for a target that is built already",
            remedy="give its checkpoint, or leave them out",
        )
    path = Path(parts.target)
    files.refuse(out, path.resolve())
    return read_built(path, asked, parts.revision)


def _text(config: TextConfig | FullConfig) -> TextConfig:
    return config.text if isinstance(config, FullConfig) else config


def _fill(
    drafter: Prepared, target: Prepared | BuiltTarget, parts: Parts, stage: Path, told: Progress
) -> tuple[set[str], tuple[str, ...]]:
    """Both packages into `stage`, the target first: the paths that are linked, and what to know."""
    from cabochon.package.pair_package import PairPackage

    layout = drafter.layouts(stage)
    if isinstance(target, BuiltTarget):
        asked = drafter.order.linking
        files.require_space(stage.parent, drafter.size(layout) + (0 if asked else target.nbytes))
        told.start(layout.nbytes + target.nbytes)
        inner, refused = target.place(stage / _TARGET, asked, told.advance)
        said = tuple(_placed(inner, refused))
    else:
        within = target.layouts(stage / _TARGET)
        there = sum(digest.nbytes for _, digest in parts.given.values())
        files.require_space(stage.parent, drafter.size(layout) + target.size(within) - there)
        told.start(
            layout.nbytes
            + within.nbytes
            - there
            + linked_bytes(stage, layout.links)
            + linked_bytes(stage / _TARGET, within.links)
        )
        facts = fill(target, within, stage / _TARGET, told, given=parts.given_target)
        inner, said = set(within.links), (*target.absent, *remarks(facts, within, target.order.license))
    facts = fill(drafter, layout, stage, told, PairPackage(stage, _TARGET), parts.given)
    links = {f"{_TARGET}/{name}" for name in inner} | set(layout.links)
    own = remarks(facts, layout, drafter.order.license)
    return links, (*said, *(f"assistant: {line}" for line in own if line not in said))


def _placed(linked: set[str], refused: str | None) -> Iterator[str]:
    if linked:
        yield f"{len(linked)} files of the target are other names of those it was built as; a change in one is in both"
    if refused:
        yield f"the target is copied, not linked: {refused}"


def _other_family(target: Checkpoint, assistant: Checkpoint) -> Iterator[str]:
    """Published assistants are called after the model that they were trained beside."""
    named = (assistant.id or "").removesuffix("-assistant")
    if target.id and assistant.id and named != assistant.id and named != target.id:
        yield f"{assistant.id} is called after {named}: another target may refuse more of what it drafts"
