"""Comments for the annotated copy of a document: what each part means in this package, and what is left out and why.

All of it is computed from the facts the document is derived from, so that no sentence can outlive them.
"""

from collections.abc import Iterator, Mapping

from cabochon.gemma4.config import SLIDING
from cabochon.metadata.decoder import Cache, Decoder, Kind
from cabochon.metadata.document import Document, Group, Workflow
from cabochon.metadata.experts import UNSAID
from cabochon.metadata.weights import quantization_note

__all__ = ["Comments", "comments"]

Path = tuple[str | int, ...]
Comments = Mapping[Path, tuple[str, ...]]  # lines above the key at the path; () is the head of the file

_WORKFLOW: Path = ("pipeline", "workflow")


def comments(document: Document, decoder: Decoder) -> Comments:
    """The comments of a document that was derived from `decoder`, by the path of the key they stand above."""
    assert document.pipeline is not None
    workflow = document.pipeline.workflow
    found: dict[Path, tuple[str, ...]] = {(): (*_head(decoder), *_omissions(document, decoder))}
    found |= {path: lines for path, lines in _facts(document, decoder)}
    found |= {(*_WORKFLOW, *path): lines for path, lines in _workflow(workflow, decoder)}
    return found


def _head(decoder: Decoder) -> Iterator[str]:
    yield "inference_metadata.yaml with comments: `cabochon validate` holds both to be one object. Programs read that."
    yield (
        f"Derived from the ports of {decoder.artifact}, from config.json and from the tokenizer's files; "
        "written by no hand."
    )


def _omissions(document: Document, decoder: Decoder) -> Iterator[str]:
    """What a reader may look for, and why it is not there."""
    yield ""
    yield "Left out on purpose:"
    if document.model is not None and document.model.attention is None:
        yield f"- model.attention: {_why_no_attention(decoder)}"
    if document.quantization is None:
        yield "- quantization: no weight is quantized."
    if document.generation is None:
        yield "- generation: how the authors generate stands in generation_config.json."
    if document.speculative is None:
        yield "- speculative: there is no drafter in this package."
    if document.preprocessing is None:
        yield "- preprocessing: this package takes tokens, no images and no sound."
    if document.adapters is None:
        yield "- adapters: the graph has no inputs for them."
    yield "- checksums: SHA256SUMS holds them, so that weights can be replaced without a new contract."
    borrowed = [i for i, layer in enumerate(decoder.config.layers) if layer.shares_kv]
    if borrowed:
        yield f"- layers {_span(borrowed)}: they read the cache of another layer and own none."


def _facts(document: Document, decoder: Decoder) -> Iterator[tuple[Path, tuple[str, ...]]]:
    if document.model is not None:
        yield ("model",), ("max_position_embeddings of config.json; the last dimension of logits.",)
        if document.model.mixture_of_experts is not None:
            yield ("model", "mixture_of_experts"), (f"Not said here: {UNSAID}",)
    if document.quantization is not None:
        yield ("quantization",), quantization_note(document.quantization)
    if document.package is not None and decoder.vocabulary is not None:
        ends = ", ".join(map(str, decoder.vocabulary.ends))
        yield (
            ("package", "tokenizer", "special_tokens"),
            (
                "By the names of tokenizer_config.json; the chat template is a file of its own.",
                f"An answer ends with one of {ends}: what generation_config.json, config.json and the tokenizer say."
                if ends
                else "No file names a token that ends an answer.",
            ),
        )


def _workflow(workflow: Workflow, decoder: Decoder) -> Iterator[tuple[Path, tuple[str, ...]]]:
    yield (), ("One pass: the application supplies everything and keeps what it needs for the next.",)
    yield ("inputs",), tuple(_inputs(decoder))
    for kind, caches in decoder.groups.items():
        yield ("inputs", f"request.{caches[0].cell}"), (_shape(kind, caches),)
    yield ("outputs",), (f"{' x '.join(map(str, decoder.logits.shape))}, {decoder.logits.dtype}.",)
    yield from _component(decoder)
    yield (
        ("state",),
        (f"{len(decoder.caches)} cells: keys and values of {len(decoder.caches) // 2} layers.",),
    )
    if workflow.serving is not None:
        served = workflow.serving.state_service.groups
        for name in decoder.groups:
            path: Path = ("serving", "state_service", "groups", name)
            yield path, tuple(_group(name, served[name], decoder))


def _inputs(decoder: Decoder) -> Iterator[str]:
    yield "attention_mask spans every token fed so far, dropped ones included: positions are counted in it."
    if decoder.properties["cabochon.mask"] == "anywhere":
        yield "Zeros may stand anywhere in it: padding on either side, or tokens taken back."
    else:
        yield "Its rows are left-justified, real tokens first: the kernel takes lengths."
    yield "active, done and accepted_len are the server's: which rows run, which are over, how far each got."


def _component(decoder: Decoder) -> Iterator[tuple[Path, tuple[str, ...]]]:
    ports: Path = ("components", decoder.name, "ports")
    if "logits_to_keep" in decoder.ports.inputs:
        yield (
            (*ports, "inputs", "logits_to_keep"),
            ("Optional: how many of the last real tokens get logits; 0 is all. The graph holds a default.",),
        )
    if decoder.hidden:
        scale = decoder.properties.get("cabochon.embed_scale")
        means = "After the final norm: what the head takes, and what a drafter would continue from."
        scaled = (f"Embeddings were multiplied by {scale} on the way in.",) if scale else ()
        yield (*ports, "outputs", decoder.hidden), (means, *scaled)


def _group(name: Kind, group: Group, decoder: Decoder) -> Iterator[str]:
    caches = decoder.groups[name]
    layers = sorted({cache.layer for cache in caches})
    yield f"Layers {_span(layers)}. {_shape(name, caches)}"
    if name == SLIDING:
        window = decoder.config.window
        yield (
            f"A layer sees {window} keys, its own token included: all but the last {(window or 1) - 1} may be dropped."
        )
        yield (
            f"This format has no key for the width of the window; {decoder.artifact} has: cabochon.sliding_window."
        )
    if group.aliasing == "forbidden":
        yield "aliasing forbidden: the graph returns a new tensor; past and present are never one buffer."
    else:
        yield "aliasing permitted: GroupQueryAttention writes into its past where present is the same buffer."


def _shape(kind: str, caches: tuple[Cache, ...]) -> str:
    past = caches[0].past
    return f"{kind}: {past.dtype} [{', '.join(map(str, past.shape))}] each."


def _why_no_attention(decoder: Decoder) -> str:
    sizes = {kind: caches[0].past.shape[-1] for kind, caches in decoder.groups.items()}
    if len(set(sizes.values())) == 1:
        return "the ports say heads and head size."
    each = " and ".join(f"{size} in {kind} layers" for kind, size in sizes.items())
    return f"it has room for one head size; this model has {each}. The ports say it."


def _span(layers: list[int]) -> str:
    """[0, 1, 2, 5] -> "0-2, 5" """
    runs: list[list[int]] = []
    for layer in layers:
        if runs and layer == runs[-1][-1] + 1:
            runs[-1].append(layer)
        else:
            runs.append([layer])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
