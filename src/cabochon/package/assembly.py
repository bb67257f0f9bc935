"""The content of a package, written into its stage: weights, graph, side files, documents, checksums."""

from collections import deque
from dataclasses import replace
from pathlib import Path

from cabochon import files, sums
from cabochon.package.card import card
from cabochon.package.facts import Digest, Facts
from cabochon.package.genai_config import GENAI_CONFIG, genai_text
from cabochon.package.layout import GRAPH, Layout, stored_weights
from cabochon.package.notices import requirements, source_license
from cabochon.package.provenance import provenance
from cabochon.package.side_files import travelling
from cabochon.package.stage_check import check_graph
from cabochon.package.writer import Progress, serialize, write_weights

__all__ = ["assemble"]

_SPARE = 1 << 20  # bytes; the documents are not known in size before they are written
_DOCUMENTS = {
    GENAI_CONFIG: "what onnxruntime-genai asks for",
    "provenance.json": "source, command, versions, tensors used and unused",
    "SOURCE_LICENSE.md": "the licence of the checkpoint",
    "runtime-requirements.txt": "the wheels it was built beside",
    sums.SUMS: f"checksums of all these files: `sha256sum -c {sums.SUMS}`",
}


def assemble(facts: Facts, layout: Layout, stage: Path, progress: Progress) -> None:
    """Fill `stage`, in which linked files stand already. Raises PackageError where it would not fit."""
    weights = stored_weights(facts.model)
    graph = serialize(facts.model, layout)
    along = {name: facts.checkpoint.files[name] for name in travelling(facts.checkpoint.files)}
    size = layout.nbytes + len(graph) + sum(file.stat().st_size for file in along.values())
    files.require_space(stage.parent, size + _SPARE)
    linked = {name: (stage / name).stat().st_size for name in layout.links}
    progress.start(layout.nbytes + sum(linked.values()))
    digests = {name: Digest(n, files.sha256(stage / name, progress.advance)) for name, n in linked.items()}
    for weight in weights:
        if layout.places[weight.name or ""].location in linked:  # in memory by now: they were hashed
            deque(weight.blocks(), maxlen=0)  # raises for a value that is no finite number
    if layout.data is not None:
        digests[layout.data] = Digest(
            layout.nbytes, write_weights(weights, layout, stage / layout.data, progress)
        )
    (stage / GRAPH).write_bytes(graph)
    for name, file in along.items():
        files.copy(file, stage / name)
    digests = {GRAPH: Digest(len(graph), files.sha256(stage / GRAPH))} | digests
    _describe(replace(facts, digests=digests, linked=tuple(layout.links)), stage)
    sums.write(stage, {name: digest.sha256 for name, digest in digests.items()})
    check_graph(stage, layout.places)
    progress.done()


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
