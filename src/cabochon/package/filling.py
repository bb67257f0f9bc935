"""A package into a folder: its weights by one thread, its graph by another, then the documents, then the verdict.

What traces graphs (onnx_ir, and the rules that judge them) takes half a second of CPU to import. It is imported and
used by a thread of its own, while this one writes the weights already: nothing imported at the top of this module may
need it.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cabochon import __version__
from cabochon.package.interpreter import quick_turns, settle, uncollected
from cabochon.package.layout import Layouts, inside
from cabochon.package.preparing import Prepared, copied
from cabochon.package.writer import Digest, Progress, Written, write_files
from cabochon.recipes import Weight

if TYPE_CHECKING:
    from cabochon.package.described import Described
    from cabochon.package.facts import Facts
    from cabochon.validation.checking import Begun

__all__ = ["Given", "fill", "linked_bytes", "remarks", "trace", "written"]


Given = Mapping[str, tuple[Path, Digest]]  # files of weights by path in a package: where each stands already


def fill(
    known: Prepared,
    layouts: Layouts,
    folder: Path,
    progress: Progress,
    package: "Described[Any] | None" = None,
    given: Given | None = None,
) -> "Facts[Any]":
    """Write the package of `known` into `folder`; `package` says what it holds, where that is not as for its kind.
    Files of weights that are `given` are not computed.

    Raises PackageError where a rule finds an error in what was written.
    """
    with quick_turns(), ThreadPoolExecutor(1) as aside:
        graphs = aside.submit(_graphs, known, layouts, folder, package)
        before = Written(given={folder / path: it for path, it in (given or {}).items()})
        digests = _weights(known, layouts, folder, progress, graphs, before)
        return _finished(*graphs.result(), digests, layouts, folder, package or known.kind.described)


def _weights(
    known: Prepared,
    layouts: Layouts,
    folder: Path,
    progress: Progress,
    graphs: "Future[Any]",
    written: Written,
) -> dict[str, Digest]:
    """Write the weights of every graph; the digests of their files by path."""
    digests = dict[str, Digest]()
    for name, layout in layouts.parts.items():
        recipes = _unless_failed(graphs, known.recipes[name])
        found = write_files(recipes, layout, folder / name, progress, written)
        digests |= {inside(name, file): digest for file, digest in found.items()}
    return digests


def trace(known: Prepared) -> "Facts[Any]":
    """The traced graphs and what is known of them before anything is written."""
    facts = known.kind.described.traced(known)
    for model in facts.models.values():
        model.producer_name, model.producer_version = "cabochon", __version__
    return facts


def remarks(facts: "Facts[Any]", layout: Layouts, license: str | None) -> Iterator[str]:
    """What to know of a package that was built."""
    yield from facts.checkpoint.remarks
    yield from facts.remarks
    if caveat := facts.caveat:
        yield f"{facts.precision.name} on {facts.target.name}: {caveat}"
    yield from copied(layout)
    if license and license != facts.license.id:
        yield f"--license {license} is not used: {facts.license.evidence}"
    if facts.license.id == "unknown":
        yield f"the licence is unknown: {facts.license.evidence}"


def written(folder: Path, links: Collection[str]) -> int:
    """The bytes of the files in `folder` but those called as in `links`, by their paths in it. A file with two names
    counts once."""
    found = ((path.relative_to(folder).as_posix(), path) for path in folder.rglob("*") if path.is_file())
    held = [path.stat() for name, path in found if name not in links]
    return sum({(stat.st_dev, stat.st_ino): stat.st_size for stat in held}.values())


def linked_bytes(folder: Path, links: Iterable[str]) -> int:
    """The bytes of the linked files, by their paths in `folder`."""
    return sum((folder / name).stat().st_size for name in links)


def _graphs(
    known: Prepared, layouts: Layouts, folder: Path, package: "Described[Any] | None"
) -> "tuple[Facts[Any], Begun]":
    """Trace, place and judge the graphs: what goes on beside the writing of the weights."""
    with uncollected():
        from cabochon.package.assembly import place_graphs
        from cabochon.validation.checking import begin

        settle()
        facts = place_graphs(trace(known), layouts, folder, package or known.kind.described)
        return facts, begin(folder)


def _finished(
    facts: "Facts[Any]",
    begun: "Begun",
    digests: dict[str, Digest],
    layouts: Layouts,
    folder: Path,
    package: "Described[Any]",
) -> "Facts[Any]":
    """Complete the package in `folder`, where the graph and the files of weights, with these `digests`, stand."""
    from cabochon.package.assembly import complete

    facts = replace(facts, digests={**facts.digests, **digests}, linked=tuple(layouts.links))
    complete(facts, folder, package, begun)
    return facts


def _unless_failed(other: "Future[Any]", recipes: Iterable[Weight]) -> Iterator[Weight]:
    """The recipes, for as long as the `other` thread has not failed: there is no use in writing on."""
    for recipe in recipes:
        if other.done():
            other.result()
        yield recipe
