"""An evaluation that is kept with its package: evidence/evaluation.json, and a table in the model card."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cabochon import evidence, files, sums
from cabochon.errors import PackageError
from cabochon.evaluation.figures import Evaluation, Figures

__all__ = ["record", "section"]

CARD, NAME, TITLE = "README.md", "evaluation.json", "Quality"
_SECTION = re.compile(rf"^## {TITLE}\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)


def record(evaluation: Evaluation) -> str:
    """Write evidence/evaluation.json into the package, and its figures into README.md. Returns its path inside.

    What was recorded before is replaced. The evidence holds the hashes of graphs and weights of both packages and says
    of neither where it lies. Raises PackageError where the package cannot be written.
    """
    package = evaluation.package.package
    document: dict[str, Any] = {
        "what": "perplexity over a text",
        **_identity(evaluation.package),
        **evaluation.described(),
    }
    if evaluation.against is not None:
        name = evaluation.against.package.resolve().name
        document["against"] |= {"name": name, **_identity(evaluation.against)}
    document["versions"] = evidence.versions()
    try:
        inside = evidence.write(package, NAME, document)
        _note_in_card(package, section(evaluation))
    except OSError as error:
        raise PackageError(
            f"cannot be written: {error.strerror or error}; the figures would be kept there",
            at=str(error.filename or package),
            remedy="leave --record out, or make the folder writable",
        ) from error
    return inside


def _identity(figures: Figures) -> dict[str, Any]:
    metadata = {"cabochon.target": figures.target, "cabochon.precision": figures.precision}
    return evidence.identity(figures.package, metadata)


def _note_in_card(package: Path, text: str) -> None:
    """Put the section in the place of the one before, else before that on evidence; a package may have no card."""
    card = package / CARD
    if not card.is_file():
        return
    said = card.read_text(encoding="utf-8")
    if _SECTION.search(said):
        said = _SECTION.sub(lambda _: text, said, count=1)
    else:
        before, title, after = said.partition("\n## Evidence\n")
        said = f"{before}\n{text}{title[1:]}{after}" if title else f"{said.rstrip()}\n\n{text}"
    files.replace(card, f"{said.rstrip()}\n".encode())
    sums.note(package, CARD)


def section(evaluation: Evaluation) -> str:
    """The figures as a section of a model card, which ends in an empty line."""
    against = evaluation.against
    head = ["", "this package", *(["reference"] if against else [])]
    rows = [head, ["---"] * len(head), *_rows(evaluation)]
    table = "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows)
    text = f"`{evaluation.text.name}`" if evaluation.text.name else "a text"
    return (
        f"## {TITLE}\n\n"
        f"Measured by `cabochon eval` over {text} (SHA-256 `{evaluation.text.sha256[:12]}…`), "
        f"{evaluation.protocol}. In full: `evidence/{NAME}`.\n\n{table}\n\n"
    )


def _rows(evaluation: Evaluation) -> Iterator[list[str]]:
    sides = [side for side in (evaluation.package, evaluation.against) if side]
    yield ["Built as", *(f"{side.target}, {side.precision}" for side in sides)]
    yield ["Weights", *(weights(side) for side in sides)]
    yield ["Perplexity", *(f"{side.perplexity:.4f}" for side in sides)]
    if found := evaluation.divergence:
        tails = ", ".join(f"{p} % below {value:.2g}" for p, value in found.percentiles.items())
        yield ["KL divergence from the reference", f"{found.mean:.3g} nats a token; {tails}", ""]
        yield ["Same likeliest token", f"{found.agreement:.2%}", ""]


def weights(side: Figures) -> str:
    """Bytes of the weights, and bits of each where it is known how many there are."""
    bits = side.weights.bits
    return f"{side.weights.nbytes:,} bytes" + (f", {bits:.2f} bits a weight" if bits else "")
