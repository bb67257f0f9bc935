"""README.md of a drafter: computed from the graph, the config and what was written."""

from collections.abc import Iterator, Mapping

from cabochon.package.contracts import fusions, operators
from cabochon.package.drafter_snippet import drafter_snippet
from cabochon.package.facts import DrafterFacts
from cabochon.package.how_stored import how_stored, titled
from cabochon.package.page import bullets, front_matter, largest_tensor, made, page, table

__all__ = ["contract_rows", "drafter_card", "limits", "step_notes"]

_EVIDENCE = "A build proves nothing about results. What was compared, and with what, `evidence/` says."


def drafter_card(facts: DrafterFacts, files: Mapping[str, str]) -> str:
    """The text of README.md. `files` are the package's files and what each is."""
    sections = {
        "Truthful graph contracts": table(("Contract", "Value"), contract_rows(facts)),
        **how_stored(facts),
        "Usage (one drafter step, direct ONNX Runtime)": f"```python\n{drafter_snippet(facts)}```",
        "Runtime notes": bullets(step_notes(facts)),
        "Limits": bullets(_limits(facts)),
        "Evidence": _EVIDENCE,
        "Files": table(("File", "What it is"), [(f"`{name}`", what) for name, what in files.items()]),
        "License": f"`{facts.license.id}` ({facts.license.evidence}). See `SOURCE_LICENSE.md`.",
    }
    head = front_matter(facts.license.id, facts.base_models, "speculative-decoding")
    return page(head, _introduction(facts), sections)


def _introduction(facts: DrafterFacts) -> str:
    return "\n".join(
        [
            f"# {facts.name}: ONNX speculative-decoding drafter ({titled(facts)}, {facts.target.name})",
            "",
            "The drafter of a Gemma 4 checkpoint as an ONNX graph with its weights. It proposes tokens from the keys, "
            "values and hidden states of the model it drafts for, which verifies them.",
            "",
            *made(facts),
        ]
    )


def contract_rows(facts: DrafterFacts) -> Iterator[tuple[str, str]]:
    """The graph in a table."""
    drafter, text = facts.drafter, facts.config.text
    kinds = ", ".join(layer.kind.removesuffix("_attention") for layer in text.layers)
    attention = {name: n for name, n in operators(facts.model).items() if name.endswith("Attention")}
    spelled = ", ".join(f"`{name.rpartition('.')[2]}` × {n}" for name, n in attention.items())
    yield "Layers", f"{len(text.layers)} ({kinds}), {spelled or 'attention in plain operators'}"
    ports = ", ".join(f"`shared_kv.{kind}.{{key,value}}`" for kind in drafter.kinds)
    yield "**Borrowed read-only KV**", f"reads the target's {ports}; owns no cache, emits no `present.*`"
    sizes = ", ".join(
        f"{kind.removesuffix('_attention')} **{p.shape[3]}**" for kind, p in drafter.kinds.items()
    )
    yield "Head size", sizes
    yield (
        "Window",
        f"sliding layers see {drafter.window + 1} keys, the target's {drafter.window} and one more"
        if (drafter.window is not None)
        else "none",
    )
    inputs = ", ".join(f"`{name}` {_shape(port.shape)}" for name, port in drafter.ports.inputs.items())
    outputs = ", ".join(f"`{name}` {_shape(port.shape)}" for name, port in drafter.ports.outputs.items())
    yield "Inputs", inputs
    yield "Outputs", outputs
    yield "Head", _head(facts)
    yield "Fused operators", ", ".join(f"`{name}`" for name in fusions(facts.model)) or "none"


def _shape(shape: tuple[int | str, ...]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _head(facts: DrafterFacts) -> str:
    head = facts.drafter.head
    if head.kind == "dense":
        return f"dense, tied to the embedding table: {head.vocabulary} scores a position"
    return (
        f"centroid-routed: `num_centroids={head.centroids}`, `top_k={head.top_k}`, {head.scored} active logits of "
        f"{head.vocabulary} a position; the others lie 1 below the least score of the call"
    )


def step_notes(facts: DrafterFacts) -> Iterator[str]:
    """How a step is fed."""
    drafter = facts.drafter
    yield (
        "`inputs_embeds` is the newest token's row of the target's embedding table, times the target's scale "
        "(`cabochon.embed_scale` of its graph), and behind it the target's hidden state after the final norm at the "
        "position that predicted that token. In further steps: the row of the token just drafted, and "
        "`projected_state`."
    )
    yield (
        "The newest token has no key yet. Its position is the number of ones in the first `kv_sequence` columns of "
        "`attention_mask`, in every step of a round: after a prefill and after a partial acceptance alike. Rejected "
        "entries are cut off, or masked with zeros, which may stand anywhere."
    )
    if drafter.window is not None:
        yield (
            f"A sliding cache may be evicted down to its last {drafter.window + 1} real entries; it then holds those "
            "of the mask's last columns."
        )


def _limits(facts: DrafterFacts) -> Iterator[str]:
    yield (
        "It generates nothing by itself: `cabochon build TARGET OUT --assistant ASSISTANT` makes one package of both, "
        "which `cabochon run` drives."
    )
    yield "No genai_config.json: onnxruntime-genai has no route for a drafter that reads another model's caches."
    yield from limits(facts)


def limits(facts: DrafterFacts) -> Iterator[str]:
    """What holds for the graph wherever it stands."""
    if facts.drafter.head.kind == "ordered":
        yield "Rows of a batch share the score of tokens that are not scored, and nothing else."
    if caveat := facts.caveat:
        yield f"{facts.precision.name} on {facts.target.name}: {caveat}."
    if large := largest_tensor(facts):
        yield large
    yield f"Positions end at {facts.config.text.max_positions}."
    if facts.linked:
        yield (
            f"{', '.join(f'`{name}`' for name in facts.linked)}: another name of the checkpoint's own file. "
            "A change in one is in both, and it may hold tensors that this package does not use."
        )
