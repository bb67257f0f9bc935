"""docs/rules.md, made of the rules themselves: python -m cabochon.validation.manual > docs/rules.md"""

from collections.abc import Iterator
from textwrap import fill

from cabochon.validation.rules import FAMILIES, NEEDS, Rule, load

__all__ = ["manual"]

_INTRODUCTION = {
    "FIL": "What is named exists, lies inside the package, has the bytes that shapes ask for, and is what was summed.",
    "SCH": "The documents can be read and are what their version allows.",
    "REF": "Inside a document every name leads somewhere; every value is made once, before it is read, and fits.",
    "PRT": "The ports that a document states are those of the graphs.",
    "STA": "The caches that a document states are those of the graphs and of the layers in config.json.",
    "ATT": "Every attention node computes what the config and its group say.",
    "SPC": "The proposer of a speculative package and its target fit together.",
    "HON": "What README, provenance and evidence say is what the files show.",
    "RUN": "Every node has a kernel on the execution provider that the package is for.",
    "HYG": "What the weights hold. They are read once, for these rules and for the checksums.",
    "SRC": "With the checkpoint at hand (`--source`), every weight is derived again and compared.",
    "OVN": "Packages that were converted to OpenVINO: what their IR files and EPContext nodes are, hold and say.",
    "BEH": "With `--execute` the graphs are run on small random inputs, and do what the document claims.",
}


def manual() -> str:
    """The whole page, in Markdown."""
    rules = load()
    present = {family: [r for r in rules.values() if r.code.startswith(family)] for family in FAMILIES}
    present = {family: found for family, found in present.items() if found}
    return "\n".join([*_head(rules), *_contents(present), *_sections(present)])


def _head(rules: dict[str, Rule] | object) -> Iterator[str]:
    yield "# The rules of `cabochon validate`"
    yield ""
    yield "<!-- Made by `python -m cabochon.validation.manual`; the text is that of the rules' docstrings. -->"
    yield ""
    yield _wrapped(
        "`cabochon validate PACKAGE` looks at a package as a whole and says everything that is wrong with it at once. "
        "Each finding has the code of a rule, an address, what was found there, what was expected, and what to do. "
        "An **error** refuses the package (exit code 1), a **warning** does so with `--strict`, a **note** never."
    )
    yield ""
    yield _wrapped(
        "`--select` and `--ignore` take codes or their beginnings: `--select STA`, `--ignore FIL005`. `--quick` reads "
        "no bytes of weights, and so leaves out the rules that need them. A rule that could not be checked is listed "
        "with the reason; its subject is then neither right nor wrong."
    )
    yield ""


def _contents(present: dict[str, list[Rule]]) -> Iterator[str]:
    for family, rules in present.items():
        yield f"**[{FAMILIES[family].capitalize()}](#{FAMILIES[family]})**"
        yield ""
        yield "| code | | a finding means |"
        yield "|---|---|---|"
        for rule in rules:
            yield f"| [{rule.code}](#{rule.code.lower()}) | {rule.severity} | {rule.title} |"
        yield ""


def _sections(present: dict[str, list[Rule]]) -> Iterator[str]:
    for family, rules in present.items():
        yield f"## {FAMILIES[family].capitalize()}"
        yield ""
        yield _INTRODUCTION[family]
        yield ""
        for rule in rules:
            yield from _section(rule)


def _section(rule: Rule) -> Iterator[str]:
    yield f"### {rule.code}"
    yield ""
    yield _wrapped(f"**{rule.title}.** ({rule.severity})")
    yield ""
    yield _wrapped(f"*Common causes:* {rule.causes}")
    yield ""
    yield _wrapped(f"*Remedy:* {rule.remedy}")
    yield ""
    needs = "; ".join(NEEDS[need] for need in NEEDS if need in rule.needs)
    if needs:
        yield _wrapped(f"*Needs* {needs}.")
        yield ""


def _wrapped(text: str) -> str:
    return fill(text, 120, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    print(manual(), end="")
