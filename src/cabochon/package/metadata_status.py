"""METADATA_STATUS.md: what each version of the contract says, what it cannot, and who has checked it."""

from collections.abc import Iterable, Iterator, Mapping

from cabochon import __version__
from cabochon.package.page import bullets, page, table
from cabochon.validation import reports
from cabochon.validation.rules import load

__all__ = ["BLOCKS", "CONVERT", "METADATA_STATUS", "status_page"]

METADATA_STATUS = "METADATA_STATUS.md"
BLOCKS = (
    "How weights are stored in blocks. `quantization` names the precision of most of them, and of components and of "
    "layers whose most differ: bits alone. Sizes of blocks, zero points, types of scales and which role is stored how: "
    "README.md and `build.recipe` of provenance.json say it; runtimes read it off the graphs' operators."
)
CONVERT = "cabochon metadata convert PACKAGE --dialect v1.8 --out OUT"


def status_page(
    introduction: str,
    stated: Iterable[tuple[str, str]],
    versions: Mapping[str, Iterable[str]],
    checked: str,
    clients: Iterable[str],
) -> str:
    """The text of METADATA_STATUS.md: what is stated, titles and lines on `versions`, what was checked, `clients`."""
    sections = {
        "What is stated": table(("Statement", "Value"), stated),
        **{title: bullets(lines) for title, lines in versions.items()},
        "What was validated": bullets(_validated(checked)),
        "Other clients": bullets(_clients(clients)),
    }
    return page("# Status of the inference metadata", introduction, sections)


def _validated(checked: str) -> Iterator[str]:
    yield (
        f"By cabochon {__version__}, `cabochon validate --quick`, {len(load())} rules, when it was built: "
        f"`{reports.EVIDENCE}` says which of them ran, which did not and why, and what they found."
    )
    yield checked
    yield f"The form v1.8 is not part of this package: validate what `{CONVERT}` writes."


def _clients(clients: Iterable[str]) -> Iterator[str]:
    yield "None ran when this was built. What ran since, and with what result, stands in `evidence/`, a file for each."
    yield from clients
