"""The contract of a text package as files: three documents, and the graphs of the loop."""

import onnx_ir as ir

from cabochon.metadata.annotate import comments
from cabochon.metadata.decoder import Decoder
from cabochon.metadata.derive import decoder_document
from cabochon.metadata.forms import dump
from cabochon.metadata.loop import loop_document
from cabochon.metadata.policies import policies
from cabochon.metadata.ports import read
from cabochon.metadata.yaml import write

__all__ = ["ANNOTATED", "CANONICAL", "LOOP", "POLICIES", "inference_metadata"]

CANONICAL = "inference_metadata.yaml"
ANNOTATED = "inference_metadata.annotated.yaml"
LOOP = "inference_metadata.loop.yaml"
POLICIES = "policies"


def inference_metadata(decoder: Decoder) -> dict[str, bytes]:
    """The content of each file by its path in the package. Documents are written in the form v1."""
    graphs = policies(decoder.ports, decoder.properties["cabochon.mask"])
    document = decoder_document(decoder)
    plain = dump(document, "v1")
    loop = loop_document(decoder, {name: read(graph) for name, graph in graphs.items()})
    return {
        CANONICAL: write(plain),
        ANNOTATED: write(plain, comments(document, decoder)),
        LOOP: write(dump(loop, "v1")),
        **{f"{POLICIES}/{name}.onnx": _bytes(graph) for name, graph in graphs.items()},
    }


def _bytes(graph: ir.Model) -> bytes:
    return ir.to_proto(graph).SerializeToString(deterministic=True)
