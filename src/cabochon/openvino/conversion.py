"""A package converted to OpenVINO: staged, every weight compared, described, judged, renamed."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cabochon import evidence, files, sums
from cabochon.errors import PackageError
from cabochon.openvino import devices
from cabochon.openvino.card import card, requirements
from cabochon.openvino.epcontext import epcontext
from cabochon.openvino.ir import require_readable, write_ir
from cabochon.openvino.made import Made
from cabochon.openvino.record import contract, provenance
from cabochon.openvino.source import (
    EPCONTEXT,
    FILES,
    IR,
    PROVENANCE,
    STANDARD,
    Source,
    read_nets,
    read_source,
)
from cabochon.package import Built, Progress
from cabochon.package.assembly import accept
from cabochon.package.component_contract import COMPONENT_CONTRACT
from cabochon.package.layout import GRAPH, inside
from cabochon.package.side_files import media_files, travelling
from cabochon.package.writer import Digest, Silent
from cabochon.runtime.openvino_graph import library
from cabochon.validation import reports, validate
from cabochon.validation.graph import Graph
from cabochon.validation.net import weights_of

__all__ = ["convert", "require_own_caches"]

_SPARE = 64 << 20  # bytes: the .xml files, in which a decoder of 35 layers takes 5 MB, and documents
_STATEFUL = ("", "decoder")  # the folders of graphs that have caches
_LICENSE, _DRAFTS = "SOURCE_LICENSE.md", "assistant_generation_config.json"
_EVIDENCE = "epcontext.json"


@dataclass(frozen=True)
class _How:
    target: str
    stateful: bool
    command: tuple[str, ...] | None


def convert(
    package: str | Path,
    out: str | Path,
    *,
    to: Literal["openvino-ir", "openvino-epcontext"] = "openvino-ir",
    stateful: bool = False,
    command: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> Built:
    """Make `out` the package `package` in OpenVINO's intermediate representation, or with EPContext nodes around it.

    `package` is one of onnx-standard; for openvino-epcontext it may be one of openvino-ir. `stateful`: decoders keep
    their caches, for one row. `command` is recorded as given.

    Nothing stands under `out` before everything does, and every weight was compared with the source's. Raises
    PackageError for what is no such package, what OpenVINO refuses, or `out`; CabochonError without OpenVINO.
    """
    started, package, out = time.monotonic(), Path(package), Path(out)
    how = _How(to, stateful, None if command is None else tuple(command))
    files.refuse(out, package)
    source = read_source(package)
    _check(source, how)
    library()
    told = progress or Silent()
    with files.staged(out) as stage:
        files.require_space(stage.parent, source.nbytes + _SPARE)
        told.start(3 * source.nbytes)
        source.verify(told.advance)
        _fill(source, stage, how, told)
        told.done()
        nbytes = sum(path.stat().st_size for path in stage.rglob("*") if path.is_file())
    remarks = tuple(_remarks(source, how))
    precision = source.properties["cabochon.precision"]
    return Built(out, to, precision, nbytes, time.monotonic() - started, remarks, False)


def _check(source: Source, how: _How) -> None:
    if how.target not in FILES:
        raise PackageError(f"to is {how.target!r}; expected one of {', '.join(FILES)}")
    if source.target == how.target:
        raise PackageError(f"is of {IR} already", at=str(source.root), remedy=f"convert it to {EPCONTEXT}")
    if how.stateful:
        require_own_caches(source.kind, how.target, at=str(source.root))
    if source.target == IR and any("cabochon.stateful" in g.properties for g in source.graphs.values()):
        raise PackageError(
            "keeps its caches; ONNX Runtime feeds its own",
            at=str(source.root),
            remedy=f"convert the package of {STANDARD} without --stateful",
        )


def require_own_caches(kind: str, target: str, *, at: str = "") -> None:
    """Raise PackageError where decoders cannot keep their caches: in packages of this kind, or of this target."""
    if target == EPCONTEXT:
        found = f"{target}, where ONNX Runtime feeds the caches"
    elif kind in ("drafter", "pair"):
        found = f"a {kind}; a drafter reads its target's caches"
    else:
        return
    raise PackageError(f"stateful is asked for {found}", at=at, remedy="leave --stateful out")


def _remarks(source: Source, how: _How) -> Iterable[str]:
    build: dict[str, Any] = source.record.get("build") or {}
    if (kept := build.get("logits_to_keep") or 0) > 1:
        yield f"logits_to_keep must be given: its default, {kept}, is lost"
    if how.target == EPCONTEXT:
        yield f"whether ONNX Runtime ran it: evidence/{_EVIDENCE}"


def _fill(source: Source, stage: Path, how: _How, told: Progress) -> None:
    """Everything of a package into `stage`, an empty folder."""
    digests = dict[str, Digest]()
    for folder, graph in source.graphs.items():
        (stage / folder).mkdir(exist_ok=True)
        xml = stage / folder / FILES[how.target]
        if isinstance(graph, Graph):
            write_ir(graph, xml, told.advance, stateful=how.stateful and folder in _STATEFUL)
        else:
            _place(source.root / graph.path, xml)
            require_readable(xml, source.root / graph.path)
        for path in (xml, xml.with_name(weights_of(xml.name))):
            digests[inside(folder, path.name)] = Digest(path.stat().st_size, files.sha256(path, told.advance))
    nets = read_nets(stage, FILES[how.target])
    if how.target == EPCONTEXT:
        for folder, net in nets.items():
            path = stage / inside(folder, GRAPH)
            path.write_bytes(epcontext(net))
            digests[inside(folder, GRAPH)] = Digest(path.stat().st_size, files.sha256(path))
    if source.inner:
        inner = stage / source.inner.root.name
        inner.mkdir()
        _fill(source.inner, inner, how, told)
    named = _travelling(source.root)
    for name in named:
        files.copy(source.root / name, stage / name)
    _describe(Made(source, how.target, nets, how.stateful, how.command, digests, named), stage)


def _place(xml: Path, placed: Path) -> None:
    """An IR with its weights under another name: the same bytes, and the same file where the system lets it."""
    for own, name in (
        (xml, placed),
        (xml.with_name(weights_of(xml.name)), placed.with_name(weights_of(placed.name))),
    ):
        if files.hard_link(own, name):
            files.copy(own, name)


def _travelling(root: Path) -> dict[str, str]:
    """The files that come along unchanged, and what each is."""
    there = {path.name: path for path in root.iterdir() if path.is_file()}
    found = {**travelling(there), **media_files(there)}
    if _DRAFTS in there:
        found[_DRAFTS] = "how many tokens the assistant proposes"
    return {**found, _LICENSE: "the licence of the checkpoint"}


def _describe(made: Made, stage: Path) -> None:
    """The documents of a package whose graphs stand in `stage`, and its checksums."""
    ran: dict[str, Any] | None = devices.evidence(stage, made.nets) if made.wrapped else None
    said = f"{ran['how']}: {ran['reason']}" if ran and ran["reason"] else ran["how"] if ran else ""
    _write(stage / PROVENANCE, provenance(made))
    (stage / COMPONENT_CONTRACT).write_bytes(contract(made))
    _write(stage / "runtime-requirements.txt", requirements(made, said))
    _write(stage / "README.md", card(made, _files(made), said))
    known = {name: digest.sha256 for name, digest in made.digests.items()}
    if inner := made.source.inner:
        folder = inner.root.name
        known |= {inside(folder, name): digest for name, digest in sums.read(stage / folder).items()}
    sums.write(stage, known)
    if ran:
        evidence.write(stage, _EVIDENCE, {**_identity(made), **ran})
    accept(validate(stage, quick=True), stage)


def _identity(made: Made) -> dict[str, Any]:
    return {
        "target": made.target,
        "precision": made.precision,
        "sha256": {name: digest.sha256 for name, digest in made.digests.items()},
    }


def _files(made: Made) -> dict[str, str]:
    what = {
        name: "a node that names the graph beside it" if name.endswith(GRAPH) else
        "the graph" if name.endswith(".xml") else "its weights"
        for name in made.digests
    }  # fmt: skip
    return {
        **what,
        **(
            {f"{made.source.inner.root.name}/": "the target: a package of its own"}
            if made.source.inner
            else {}
        ),
        **made.travelled,
        COMPONENT_CONTRACT: "what each graph takes and gives",
        PROVENANCE: "source, commands, versions; what it was converted from",
        "runtime-requirements.txt": "the wheels it was converted with",
        **({f"evidence/{_EVIDENCE}": "whether ONNX Runtime ran it here"} if made.wrapped else {}),
        reports.EVIDENCE: "what `cabochon validate --quick` said when it was converted",
        sums.SUMS: f"checksums of all these files: `sha256sum -c {sums.SUMS}`",
    }


def _write(path: Path, text: str) -> None:
    # A name of undecodable bytes, of the checkpoint or in the command, is spelled \udcff: in JSON the very same.
    path.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")
