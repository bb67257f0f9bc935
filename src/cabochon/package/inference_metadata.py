"""The contract of a text or full package as files: three documents, and the graphs of the loop."""

from collections.abc import Mapping

import onnx_ir as ir

from cabochon.metadata.annotate import Comments, comments
from cabochon.metadata.decoder import Decoder
from cabochon.metadata.derive import decoder_document
from cabochon.metadata.document import Document
from cabochon.metadata.forms import dump
from cabochon.metadata.full import Full
from cabochon.metadata.full_documents import full_document, full_loop, full_policies
from cabochon.metadata.full_notes import full_comments
from cabochon.metadata.loop import loop_document
from cabochon.metadata.policies import policies
from cabochon.metadata.ports import read
from cabochon.metadata.yaml import write

__all__ = ["ANNOTATED", "CANONICAL", "LOOP", "POLICIES", "full_inference_metadata", "inference_metadata"]

CANONICAL = "inference_metadata.yaml"
ANNOTATED = "inference_metadata.annotated.yaml"
LOOP = "inference_metadata.loop.yaml"
POLICIES = "policies"


def inference_metadata(decoder: Decoder) -> dict[str, bytes]:
    """The content of each file by its path in the package. Documents are written in the form v1."""
    graphs = policies(decoder.ports, decoder.properties["cabochon.mask"])
    document = decoder_document(decoder)
    loop = loop_document(decoder, {name: read(graph) for name, graph in graphs.items()})
    return _files(document, comments(document, decoder), loop, graphs)


def full_inference_metadata(full: Full) -> dict[str, bytes]:
    """The same of a full package."""
    graphs = full_policies(full)
    document = full_document(full)
    loop = full_loop(full, {name: read(graph) for name, graph in graphs.items()})
    return _files(document, full_comments(document, full), loop, graphs)


def _files(
    document: Document, said: Comments, loop: Document, graphs: Mapping[str, ir.Model]
) -> dict[str, bytes]:
    plain = dump(document, "v1")
    return {
        CANONICAL: write(plain),
        ANNOTATED: write(plain, said),
        LOOP: write(dump(loop, "v1")),
        **{f"{POLICIES}/{name}.onnx": _bytes(graph) for name, graph in graphs.items()},
    }


def _bytes(graph: ir.Model) -> bytes:
    return ir.to_proto(graph).SerializeToString(deterministic=True)
