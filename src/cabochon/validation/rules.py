"""The register of rules. A rule is a function with a code; its docstring is its section of the manual."""

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from cabochon.errors import RequestError
from cabochon.validation.findings import Finding, Severity

if TYPE_CHECKING:
    from cabochon.validation.opened import Opened

__all__ = ["FAMILIES", "RULES", "Found", "Rule", "Skipped", "load", "rule", "selected"]

# The families by the prefix of their codes, in the order in which a package is best understood.
FAMILIES = {
    "FIL": "files",
    "SCH": "schema",
    "REF": "references",
    "PRT": "ports",
    "STA": "state",
    "ATT": "attention",
    "SPC": "speculative",
    "HON": "honesty",
    "RUN": "runnable",
    "HYG": "hygiene",
    "SRC": "source",
    "OVN": "openvino",
    "BEH": "behaviour",
}
# Where their rules are: a module of the family's name, and these.
_MORE = {
    **dict.fromkeys(("external_data", "graph_files", "weight_index"), "FIL"),
    **dict.fromkeys(("interfaces", "cells"), "REF"),
    "cache_claims": "STA",
    "closure": "PRT",
    **dict.fromkeys(("carry", "lookup"), "SPC"),
    **dict.fromkeys(
        (
            "block_claims",
            "card_claims",
            "drafter_claims",
            "evidence_claims",
            "genai_claims",
            "media_claims",
            "model_claims",
            "norm_claims",
            "processor_claims",
            "token_claims",
        ),
        "HON",
    ),
    **dict.fromkeys(("kernel_limits", "block_kernels", "portable"), "RUN"),
    "block_values": "HYG",
    **dict.fromkeys(("openvino_ports", "openvino_claims", "contexts", "openvino_behaviour"), "OVN"),
    **dict.fromkeys(("drafter_behaviour", "media_behaviour"), "BEH"),
}
MODULES = {module: family for family, module in FAMILIES.items()} | _MORE
NEEDS = {
    "document": "inference_metadata.yaml as a typed document",
    "graphs": "the graphs that the document names",
    "config": "config.json as a text model",
    "weights": "the bytes of the weights: not with --quick",
    "source": "the checkpoint: only with --source",
    "execute": "to run the graphs: only with --execute",
}


@dataclass(frozen=True)
class Found:
    """What a rule yields. `remedy` takes the place of the rule's own where this case asks for another."""

    at: str
    found: str
    expected: str
    remedy: str = ""


class Skipped(Exception):  # noqa: N818  nothing is wrong
    """Raised by a rule that cannot be checked here, before it found anything; its text says why."""


Check = Callable[["Opened"], Iterable[Found]]


@dataclass(frozen=True)
class Rule:
    """A registered rule: `title`, `causes` and `remedy` are its docstring's three parts."""

    code: str
    severity: Severity
    needs: frozenset[str]
    title: str
    causes: str
    remedy: str
    check: Check

    def finding(self, found: Found) -> Finding:
        """What the rule found, with the rule's own words around it."""
        remedy = found.remedy or self.remedy
        return Finding(self.code, self.severity, self.title, found.at, found.found, found.expected, remedy)


RULES: dict[str, Rule] = {}


def rule(code: str, severity: Severity, needs: Collection[str] = ()) -> Callable[[Check], Check]:
    """Register a rule under `code`: the prefix of its family and three digits. Returned unchanged.

    The docstring has three parts, or this raises ValueError: the title (one line, without the full stop), a paragraph
    that begins with "Causes:" and one that begins with "Remedy:".
    """

    def register(check: Check) -> Check:
        if re.fullmatch(r"[A-Z]{3}\d{3}", code) is None or code in RULES:
            raise ValueError(f"{code}: no code, or taken")
        if MODULES.get(check.__module__.removeprefix(f"{__package__}.")) != code[:3]:
            raise ValueError(f"{code}: {check.__module__} is no module of that family")
        if unknown := set(needs) - NEEDS.keys():
            raise ValueError(f"{code}: unknown needs {sorted(unknown)}")
        RULES[code] = Rule(code, severity, frozenset(needs), *_parts(code, check), check)
        return check

    return register


def _parts(code: str, check: Check) -> tuple[str, str, str]:
    """Title, causes and remedy of a rule's docstring."""
    form = re.compile(
        r"(?P<title>[^\n]+)\.\n\nCauses:\s+(?P<causes>.+?)\n\s*Remedy:\s+(?P<remedy>.+)", re.DOTALL
    )
    match = form.fullmatch(inspect.getdoc(check) or "")
    if match is None:
        raise ValueError(f"{code}: its docstring is not a title, 'Causes: ...' and 'Remedy: ...'")
    title, causes, remedy = (" ".join(part.split()) for part in match.groups())
    return title, causes, remedy


def load() -> Mapping[str, Rule]:
    """Every rule by code, family by family in the order of `FAMILIES`."""
    for module in MODULES:
        import_module(f"{__package__}.{module}")
    order = list(FAMILIES)
    return {code: RULES[code] for code in sorted(RULES, key=lambda code: (order.index(code[:3]), code))}


def selected(select: Collection[str], ignore: Collection[str]) -> dict[str, str]:
    """Of the rules that are not to run, by code, why. A code is a whole one or its beginning: "STA003", "STA".

    Raises RequestError for one that no rule begins with.
    """
    codes = list(load())
    for asked in (*select, *ignore):
        if not asked or not any(code.startswith(asked) for code in codes):
            raise RequestError(
                f"no rule's code begins with {asked!r}; the families are {', '.join(FAMILIES)}",
                remedy="see `cabochon list rules`",
            )
    left_out = {code: "not selected" for code in codes if select and not code.startswith(tuple(select))}
    return left_out | {code: "ignored" for code in codes if code.startswith(tuple(ignore))}
