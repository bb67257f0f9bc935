"""METADATA_STATUS.md of a full package: what each version of the contract says, what it cannot, who has checked it."""

from collections.abc import Collection, Iterator

from cabochon.metadata.experts import UNSAID
from cabochon.metadata.full import Full
from cabochon.metadata.full_notes import unsaid
from cabochon.package.genai_full import PROCESSORS
from cabochon.package.metadata_status import BLOCKS, CONVERT, status_page

__all__ = ["full_status"]


def full_status(full: Full, processors: Collection[str]) -> str:
    """The text of METADATA_STATUS.md; `processors` are the processor files that the package has."""
    introduction = (
        "`inference_metadata.yaml` was built in the form v1: one pass of all components. "
        f"`inference_metadata.loop.yaml` is the loop around them. `{CONVERT}` writes the form v1.8. All are derived "
        "from the ports of the graphs, from config.json and from the files of tokenizer and processor."
    )
    versions = {
        "What no version can say": _unsaid(full),
        "What v1.8 says otherwise": _v18(full),
    }
    checked = (
        "The documents, their cross-references and the real ports of all graphs; "
        "the numbers of genai_config.json."
    )
    return status_page(introduction, _stated(full), versions, checked, _clients(full, processors))


def _unsaid(full: Full) -> Iterator[str]:
    yield from map(_sentence, unsaid(full))
    if full.decoder.config.experts is not None:
        yield _sentence(UNSAID)
    if full.quantized:
        yield BLOCKS


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def _stated(full: Full) -> Iterator[tuple[str, str]]:
    graphs = (*full.members, full.decoder)
    yield "Components", ", ".join(f"`{each.name}` ({each.artifact})" for each in graphs)
    media = " and ".join(full.encoders) or "none"
    yield "Media", f"{media}; each may be absent: the embedding then takes no rows of features"
    yield "Preparation", "from processor_config.json: a program of generic operations for each medium"
    yield "Embedded", ", ".join(f"`{name}`" for name in full.embedding.ports.outputs)
    kinds = ", ".join(f"{len(caches) // 2} {kind}" for kind, caches in full.decoder.groups.items())
    yield "Caches", f"layers that own one: {kinds}"
    yield "Width of features", str(full.width)


def _v18(full: Full) -> Iterator[str]:
    yield "It is the loop, not the pass: the released runtime generates from nothing else, and says the ends itself."
    yield "Texts of special tokens and the tokens around media are left out: it has ids alone, and keys for a few."
    if full.audio:
        yield (
            "Sound is left out, `no_features` stands for it: the released runtime has one log-mel spectrogram, of 400 "
            "points and in Slaney's scale, and refuses a document with any other sound as soon as an image comes."
        )


def _clients(full: Full, processors: Collection[str]) -> Iterator[str]:
    for medium in full.encoders:
        if PROCESSORS[medium] not in processors:
            yield (
                f"onnxruntime-genai 0.18 cannot prepare {medium} input as processor_config.json says: there is no "
                f"{PROCESSORS[medium]}, and it is told of none."
            )
    yield (
        "onnxruntime-genai 0.18 puts two line breaks before and behind the tokens of a medium, where the published "
        "processor puts none: a prompt is another one there."
    )
    if full.audio:
        yield "onnxruntime-genai 0.18 takes one recording in a prompt."
    yield "onnx-genai 0.1.0.dev6 takes one picture in a prompt, and no sound."
    yield "cabochon's own runtime reads graphs, their metadata properties and processor_config.json, not this document."
