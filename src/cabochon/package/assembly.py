"""What stands beside the weights of a package: graph, side files, documents, checksums; judged together."""

from dataclasses import replace
from pathlib import Path

from cabochon import files, sums
from cabochon.errors import PackageError
from cabochon.package.card import card
from cabochon.package.facts import Digest, Facts
from cabochon.package.genai_config import GENAI_CONFIG, genai_text
from cabochon.package.graph_file import serialize
from cabochon.package.inference_metadata import ANNOTATED, CANONICAL, LOOP, POLICIES, inference_metadata
from cabochon.package.layout import GRAPH, Layout
from cabochon.package.notices import requirements, source_license
from cabochon.package.provenance import provenance
from cabochon.package.side_files import travelling
from cabochon.validate import reports, validate

__all__ = ["complete", "place_graph"]

_SHOWN = 20  # findings that an error lists
_DOCUMENTS = {
    CANONICAL: "the contract: ports, state and caches, for programs",
    ANNOTATED: "the same with comments, for people",
    LOOP: "the loop around the decoder, from prompt to tokens",
    f"{POLICIES}/": "the graphs of that loop: sampler, termination, states",
    GENAI_CONFIG: "what onnxruntime-genai asks for",
    "provenance.json": "source, command, versions, tensors used and unused",
    "SOURCE_LICENSE.md": "the licence of the checkpoint",
    reports.EVIDENCE: "what `cabochon validate --quick` said when it was built",
    "runtime-requirements.txt": "the wheels it was built beside",
    sums.SUMS: f"checksums of all these files: `sha256sum -c {sums.SUMS}`",
}


def place_graph(facts: Facts, layout: Layout, stage: Path) -> Facts:
    """The graph, its contract and the files of the checkpoint that travel along, into `stage`.

    Returns `facts` with the digest of the graph.

    Raises GraphError where the weights of the graph are not those that `layout` places.
    """
    graph = serialize(facts.model, layout)
    (stage / GRAPH).write_bytes(graph)
    (stage / POLICIES).mkdir()
    for name, content in inference_metadata(facts.decoder).items():
        (stage / name).write_bytes(content)
    for name in travelling(facts.checkpoint.files):
        files.copy(facts.checkpoint.files[name], stage / name)
    return replace(facts, digests={GRAPH: Digest(len(graph), files.sha256(stage / GRAPH))})


def complete(facts: Facts, stage: Path) -> None:
    """The documents and the checksums of `stage`, in which all else stands; and the verdict on all of it.

    Raises PackageError where a rule finds an error.
    """
    _describe(facts, stage)
    sums.write(stage, {name: digest.sha256 for name, digest in facts.digests.items()})
    _judge(stage)


def _judge(stage: Path) -> None:
    """All rules but those that read weights, which were hashed just now. The verdict is kept in the package."""
    verdict = validate(stage, quick=True)
    if verdict.errors:
        shown = "\n".join(str(finding) for finding in verdict.errors[:_SHOWN])
        raise PackageError(
            f"the package that was written has {len(verdict.errors)} errors:\n{shown}",
            at=str(stage),
            remedy="this is a fault of cabochon, of the checkpoint's files or of the disk: build again, and report it",
        )
    reports.record(verdict, stage)


def _describe(facts: Facts, stage: Path) -> None:
    what = {GRAPH: "the graph"}
    what |= {name: "the weights" for name in facts.digests if name != GRAPH}
    what |= travelling(facts.checkpoint.files) | _DOCUMENTS
    _write(stage / GENAI_CONFIG, genai_text(facts))
    _write(stage / "provenance.json", provenance(facts))
    _write(stage / "SOURCE_LICENSE.md", source_license(facts))
    _write(stage / "runtime-requirements.txt", requirements(facts))
    _write(stage / "README.md", card(facts, what))


def _write(path: Path, text: str) -> None:
    # A name of undecodable bytes, of the checkpoint or in the command, is spelled \udcff: in JSON the very same.
    path.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")
