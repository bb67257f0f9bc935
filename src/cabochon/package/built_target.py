"""A package that was built already, as the target of a pair: its files copied or linked, and every one hashed."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cabochon import files, sums
from cabochon.errors import PackageError
from cabochon.gemma4 import TextConfig, read_text_config
from cabochon.package.layout import GRAPH, inside
from cabochon.package.order import Order
from cabochon.recipes.recipe_file import written
from cabochon.strict_json import parse_object

__all__ = ["DECODER", "BuiltTarget", "decoder_folder", "is_built", "read_built"]

DECODER = "decoder"  # the folder, and the cabochon.model, of the decoder of a full package


@dataclass(frozen=True)
class BuiltTarget:
    """A text package or a full one on disk. `digests`: SHA-256 by file, as its SHA256SUMS says."""

    path: Path
    config: TextConfig
    digests: dict[str, str]

    @property
    def nbytes(self) -> int:
        """The bytes of its files."""
        return sum((self.path / name).stat().st_size for name in self.digests)

    def place(
        self, folder: Path, linking: bool, advance: Callable[[int], object]
    ) -> tuple[set[str], str | None]:
        """Put every file into `folder`. Returns those that are linked, and why others are not, where they should be.

        Raises PackageError for a file that is not what was summed.
        """
        linked, refused = set[str](), None
        for name, digest in {**self.digests, sums.SUMS: None}.items():
            source, placed = (self.path / name).resolve(), folder / name
            placed.parent.mkdir(parents=True, exist_ok=True)
            reason = files.hard_link(source, placed) if linking else ""
            if reason is None:
                linked.add(name)
            else:
                refused = refused or reason or None
                files.copy(source, placed)
            if digest is not None and files.sha256(placed, advance) != digest:
                raise PackageError(
                    f"{name} is not what {sums.SUMS} says; expected the target as it was built",
                    at=str(self.path),
                    remedy="build the target again",
                )
        return linked, refused


def is_built(source: str | Path) -> bool:
    """Whether this is a package and no checkpoint."""
    return decoder_folder(Path(source)) is not None


def decoder_folder(package: Path) -> str | None:
    """The folder of the graph that decodes, "" for the package's own; None where there is no graph."""
    return next((name for name in ("", DECODER) if (package / name / GRAPH).is_file()), None)


def read_built(path: Path, asked: Order, revision: str | None) -> BuiltTarget:
    """The package at `path`, if it is the one that was asked for.

    Raises PackageError for what is no text or full package of cabochon, or was built for another target, in another
    precision, of another revision or with another default of logits_to_keep.
    """
    from cabochon.validation.graph import read_graph

    graph = read_graph(path, inside(decoder_folder(path) or "", GRAPH))
    said = graph.properties
    kind = said.get("cabochon.model", DECODER)
    if kind != DECODER or "cabochon.target" not in said:
        what = f"a {kind}" if kind != DECODER else "no package of cabochon"
        raise PackageError(
            f"is {what}; expected a text package or a full one, or a checkpoint",
            at=str(path),
            remedy="of a pair, give the package in its folder target/",
        )
    if "logits_to_keep" not in graph.ports.inputs:
        raise PackageError(
            "gives the logits of the last position alone; a target verifies several tokens at once",
            at=str(path),
            remedy="build the target again without --logits-to-keep",
        )
    record = _object(path, "provenance.json")
    build, source = record.get("build") or {}, record.get("target") or {}
    _same(path, "target", said["cabochon.target"], asked.target.name, "--target")
    _same(path, "precision", said.get("cabochon.precision"), asked.precision.name, "--precision")
    rules = written(asked.precision.rules)
    if (build.get("recipe") or [])[: len(rules)] != rules:
        raise PackageError(
            f"the target was built by another recipe called {asked.precision.name}",
            at=str(path),
            remedy="give the recipe that it was built by, or build the target again",
        )
    if revision is not None:
        _same(path, "revision", source.get("revision"), revision, "--revision")
    if asked.logits_to_keep:
        _same(path, "logits_to_keep", build.get("logits_to_keep"), asked.logits_to_keep, "--logits-to-keep")
    digests = sums.read(path)
    for name in digests:
        if not (path / name).is_file():
            raise PackageError(
                f"has no {name}, which {sums.SUMS} lists", at=str(path), remedy="build it again"
            )
    return BuiltTarget(path, read_text_config(_object(path, "config.json")), digests)


def _same(path: Path, what: str, found: Any, asked: Any, option: str) -> None:
    if found != asked:
        known = found is not None
        raise PackageError(
            f"the target was built {f'with {what} {found}' if known else f'without a known {what}'}; "
            f"{asked} is asked for",
            at=str(path),
            remedy=f"{f'give {option} {found}' if known else f'leave {option} out'}, or build the target again",
        )


def _object(path: Path, name: str) -> dict[str, Any]:
    try:
        return parse_object((path / name).read_bytes())
    except (OSError, ValueError) as error:
        raise PackageError(
            f"cannot be read: {error}", at=str(path / name), remedy="build the target again"
        ) from None
