"""README.md of a pair: computed from both graphs and what was written."""

from collections.abc import Iterator, Mapping
from typing import Any

from cabochon.metadata.pair import Pair
from cabochon.package.drafter_card import contract_rows, limits, step_notes
from cabochon.package.drafter_snippet import drafter_snippet
from cabochon.package.facts import DrafterFacts
from cabochon.package.how_stored import how_stored, titled
from cabochon.package.page import bullets, front_matter, made, page, table

__all__ = ["pair_card"]

_EVIDENCE = (
    "A build proves nothing about results. What was compared, and with what, `evidence/` says, and of the target "
    "`target/evidence/`."
)


def pair_card(facts: DrafterFacts, pair: Pair, target: Mapping[str, Any], files: Mapping[str, str]) -> str:
    """The text of README.md. `target` is the target's source as its record has it; `files`: what each file is."""
    sections = {
        "Generate": _GENERATE,
        "Truthful graph contracts": table(("Contract", "Value"), (*_pair_rows(pair), *contract_rows(facts))),
        **how_stored(facts, "How the drafter's weights are stored"),
        "Usage (one drafter step, direct ONNX Runtime)": f"```python\n{drafter_snippet(facts)}```",
        "Runtime notes": bullets((*_notes(pair), *step_notes(facts))),
        "Limits": bullets(_limits(facts)),
        "Evidence": _EVIDENCE,
        "Files": table(("File", "What it is"), [(f"`{name}`", what) for name, what in files.items()]),
        "License": f"`{facts.license.id}` ({facts.license.evidence}). See `SOURCE_LICENSE.md`, and "
        f"`target/SOURCE_LICENSE.md` for the target, `{target.get('license')}`.",
    }
    models = [*([target["id"]] if target.get("id") else []), *facts.base_models]
    head = front_matter(facts.license.id, models, "speculative-decoding", "text-generation")
    return page(head, _introduction(facts, target), sections)


_GENERATE = """```sh
cabochon run PACKAGE --prompt "Why is the sky blue?"
```

Greedy output is that of the target alone; sampled output is distributed as the target's alone."""


def _introduction(facts: DrafterFacts, target: Mapping[str, Any]) -> str:
    name = target.get("id") or target.get("name")
    revision = f" @ `{target['revision']}`" if target.get("revision") else ""
    return "\n".join(
        [
            f"# {target.get('name')} with {facts.name}: ONNX pair ({titled(facts)}, {facts.target.name})",
            "",
            "A Gemma 4 model and the drafter that proposes tokens to it, as ONNX graphs with their weights.",
            "",
            f"- **Target**: `{name}`{revision} ({target.get('license')}), in `target/`: a package of its own",
            *made(facts),
        ]
    )


def _pair_rows(pair: Pair) -> Iterator[tuple[str, str]]:
    anchors = ", ".join(f"{kind} of layer {pair.target.anchors[kind]}" for kind in pair.drafter.kinds)
    yield (
        "Pair",
        f"`{pair.target.artifact}` verifies what `{pair.drafter.artifact}` proposes, {pair.width} at a time at most",
    )
    yield "Reads of the target", f"{anchors}; `{pair.seed}`"
    yield (
        "Embedding scale",
        f"{pair.embedding.scale}, by `{pair.embedding.artifact}` over `{pair.embedding.table}`",
    )


def _notes(pair: Pair) -> Iterator[str]:
    yield (
        f"`{pair.embedding.artifact}` takes `input_ids` and gives scaled rows of the target's own table, which stays "
        "where the target has it."
    )
    yield "What the workflow says in each version of the contract, and what it cannot: `METADATA_STATUS.md`."


def _limits(facts: DrafterFacts) -> Iterator[str]:
    yield "No genai_config.json: onnxruntime-genai has no route for a drafter that reads another model's caches."
    yield from limits(facts)
    yield "What holds for the target stands in `target/README.md`."
