"""METADATA_STATUS.md of a full package: what each version of the contract says, what it cannot, who has checked it."""

from collections.abc import Iterator

from cabochon import __version__
from cabochon.metadata.full import Full
from cabochon.metadata.full_notes import unsaid
from cabochon.package.page import bullets, table
from cabochon.validation import reports
from cabochon.validation.rules import load

__all__ = ["full_status"]

_CONVERT = "cabochon metadata convert PACKAGE --dialect v1.8 --out OUT"


def full_status(full: Full) -> str:
    """The text of METADATA_STATUS.md."""
    sections = {
        "What is stated": table(("Statement", "Value"), _stated(full)),
        "What no version can say": bullets(_sentence(each) for each in unsaid(full)),
        "What v1.8 says otherwise": bullets(_v18(full)),
        "What was validated": bullets(_validated()),
        "Other clients": bullets(_clients(full)),
    }
    said = [f"## {title}\n\n{body}" for title, body in sections.items()]
    introduction = (
        "`inference_metadata.yaml` was built in the form v1: one pass of all components. "
        f"`inference_metadata.loop.yaml` is the loop around them. `{_CONVERT}` writes the form v1.8. All are derived "
        "from the ports of the graphs, from config.json and from the files of tokenizer and processor."
    )
    return "\n\n".join(["# Status of the inference metadata", introduction, *said]) + "\n"


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
            "points and in Slaney's scale, and refuses a document with another one as soon as an image comes."
        )


def _validated() -> Iterator[str]:
    yield (
        f"By cabochon {__version__}, `cabochon validate --quick`, {len(load())} rules, when it was built: "
        f"`{reports.EVIDENCE}` says which of them ran, which did not and why, and what they found."
    )
    yield "The documents, their cross-references and the real ports of all graphs; the numbers of genai_config.json."
    yield f"The form v1.8 is not part of this package: validate what `{_CONVERT}` writes."


def _clients(full: Full) -> Iterator[str]:
    yield "None ran when this was built. What ran since, and with what result, stands in `evidence/`, a file for each."
    yield (
        "onnxruntime-genai 0.18 puts two line breaks before and behind the tokens of a medium, where the published "
        "processor puts none: a prompt is another one there."
    )
    if full.audio:
        yield "onnxruntime-genai 0.18 takes one recording in a prompt."
    yield "onnx-genai 0.1.0.dev6 takes one picture in a prompt, and no sound."
    yield "cabochon's own runtime reads graphs, their metadata properties and processor_config.json, not this document."
