"""The rules on honesty: every statement of the package about itself, against what is measured in the graphs."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from cabochon.dialects import TARGETS
from cabochon.recipes.cast import TYPES
from cabochon.sums import SUMS
from cabochon.validate.facts import Decoded, decoded
from cabochon.validate.findings import Severity
from cabochon.validate.opened import Opened
from cabochon.validate.rules import Found, rule

__all__: list[str] = []

NEEDS = ("graphs",)
PROVENANCE, CARD, GENAI = "provenance.json", "README.md", "genai_config.json"
PROVIDERS = {
    "CPUExecutionProvider": "cpu",
    "CUDAExecutionProvider": "cuda",
    "WebGpuExecutionProvider": "webgpu",
}
NOTHING, VARIES = "nothing", "nothing: it differs between layers"  # what must not be said
CLOSE = 1e-6  # relative; numbers that went through decimal text


def facts(package: Opened) -> Iterator[Decoded]:
    """The decoder, if there is one."""
    if found := decoded(package):
        yield found


def inside(data: Any, *keys: str) -> Any:
    """A value inside of nested objects; None where there is none."""
    for key in keys:
        data = data.get(key) if isinstance(data, Mapping) else None
    return data


def differing(at: str, said: Mapping[str, Any] | None, real: Mapping[str, Any]) -> Iterator[Found]:
    """Every entry of `real` that is said, and otherwise. None is what is not known."""
    for key, expected in real.items():
        found = inside(said, key)
        if found is not None and expected is not None and not _same(found, expected):
            yield Found(f"{at}.{key}" if at else key, _short(found), _short(expected))


def _same(found: Any, expected: Any) -> bool:
    if isinstance(found, float | int) and isinstance(expected, float) and not isinstance(found, bool):
        return abs(found - expected) <= CLOSE * max(abs(expected), 1)
    return type(found) is type(expected) and found == expected


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 200 else text[:200] + " ..."


@rule("HON001", Severity.ERROR, ("graphs", "config"))
def provenance_geometry(package: Opened) -> Iterator[Found]:
    """provenance.json states another geometry than graph and config have.

    Causes: the record was kept while the graph was built again; numbers were copied from another model.
    Remedy: build the package again.
    """
    said = inside(package.json(PROVENANCE), "architecture_contracts")
    for found in facts(package):
        yield from differing(f"{PROVENANCE}: architecture_contracts", said, geometry(found))


def geometry(found: Decoded) -> dict[str, Any]:
    """What architecture_contracts must say where it speaks."""
    config = found.config
    assert config is not None
    sizes, heads = found.by_kind(3), found.by_kind(1)
    return {
        "num_hidden_layers": found.layers,
        "num_kv_shared_layers": found.borrowers,
        "owned_kv_layers": len(found.owners),
        "heterogeneous_head_dim": sizes if one(sizes) is None else NOTHING,
        "head_dim": one(sizes) or VARIES,
        "num_attention_heads": config.heads,
        "num_key_value_heads": one(heads) or heads,
        "per_layer_input_hidden": config.per_layer_input or NOTHING,
        "double_wide_mlp": len({layer.intermediate for layer in config.layers}) > 1,
        "attention_k_eq_v": any(layer.k_eq_v for layer in config.layers),
        "final_logit_softcapping": config.softcap or NOTHING,
        "tie_word_embeddings": config.tied,
        "max_position_embeddings": config.max_positions,
    }


def one(numbers: Mapping[str, Any]) -> Any:
    """The number that all layers have; None where they differ."""
    return next(iter(numbers.values())) if len(set(numbers.values())) == 1 else None


@rule("HON002", Severity.ERROR, NEEDS)
def provenance_build(package: Opened) -> Iterator[Found]:
    """provenance.json states another build than the graph shows.

    Causes: the record was kept while the graph was built again, for another target or in another precision.
    Remedy: build the package again.
    """
    said = inside(package.json(PROVENANCE), "build")
    for found in facts(package):
        properties = found.graph.properties
        target = TARGETS.get(properties.get("cabochon.target", ""))
        real = {
            "target": properties.get("cabochon.target"),
            "precision": properties.get("cabochon.precision"),
            "dtype": found.dtype,
            "execution_provider": PROVIDERS.get(target.provider) if target else None,
            "opsets": dict(found.graph.opsets),
            "operators": dict(found.operators),
            "optimize": sorted(found.fused),
            "logits_to_keep": found.kept,
        }
        yield from differing(f"{PROVENANCE}: build", said, real)


@rule("HON003", Severity.ERROR, NEEDS)
def precision_differs(package: Opened) -> Iterator[Found]:
    """The weights are of another type than the package's precision.

    Causes: a property was changed without the weights; some weights were left as the checkpoint has them.
    Remedy: build the package again in the precision that is stated.
    """
    for found in facts(package):
        precision = found.graph.properties.get("cabochon.precision", "")
        if precision not in TYPES:
            continue
        expected = TYPES[precision].name
        for dtype, nbytes in found.weights.items():
            if dtype != expected:
                yield Found(f"{found.graph.path}: initializers", f"{nbytes:,} bytes of {dtype}", expected)
        if found.dtype not in (None, expected):
            yield Found(f"{found.graph.path}: logits", f"{found.dtype}", expected)


@rule("HON004", Severity.ERROR, NEEDS)
def embed_scale_differs(package: Opened) -> Iterator[Found]:
    """The scale of the embeddings is stated otherwise than the graph computes it.

    Causes: the scale was rounded to another type; the graph was built from another config. Whoever looks tokens up by
    this number, such as a drafter, gets other rows than the decoder.
    Remedy: state the constant that the graph multiplies by.
    """
    for found in facts(package):
        real = found.embed_scale
        if real is None:
            continue
        said = {
            f"{found.graph.path}: cabochon.embed_scale": found.graph.properties.get("cabochon.embed_scale"),
            f"{PROVENANCE}: build.embed_scale": inside(package.json(PROVENANCE), "build", "embed_scale"),
        }
        for at, value in said.items():
            if value is not None and not _same(_number(value), real):
                yield Found(at, str(value), f"{real}, the constant after the look-up")


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


@rule("HON005", Severity.ERROR)
def provenance_files(package: Opened) -> Iterator[Found]:
    """provenance.json states other sizes or hashes than the files have.

    Causes: a file was changed after the build; the record is that of another build.
    Remedy: build the package again. Hashes are compared with SHA256SUMS, whose own are compared with the files unless
    the validation is quick.
    """
    listed = sums_of(package)
    for name, entry in (inside(package.json(PROVENANCE), "files") or {}).items():
        at = f"{PROVENANCE}: files.{name}"
        if name not in package.files:
            yield Found(at, "no such file", "a file of the package")
            continue
        size, digest = inside(entry, "bytes"), inside(entry, "sha256")
        if size is not None and size != package.files[name]:
            yield Found(f"{at}.bytes", str(size), f"{package.files[name]}")
        if digest is not None and digest != listed.get(name, digest):
            yield Found(f"{at}.sha256", str(digest), f"{listed[name]}, as {SUMS} says")


def sums_of(package: Opened) -> Mapping[str, str]:
    """The hashes of SHA256SUMS by file."""
    lines = re.findall(r"^([0-9a-f]{64}) [ *](.+)$", package.text(SUMS) or "", re.MULTILINE)
    return {name: digest for digest, name in lines}


@rule("HON006", Severity.ERROR, NEEDS)
def provenance_tensors(package: Opened) -> Iterator[Found]:
    """provenance.json accounts for other tensors than the graph has.

    Causes: the record is that of another build; weights were added or removed.
    Remedy: build the package again.
    """
    used = inside(package.json(PROVENANCE), "tensors", "used")
    for found in facts(package) if isinstance(used, Mapping) else ():
        weights = {name for name, weight in found.graph.initializers.items() if weight.external}
        at = f"{PROVENANCE}: tensors.used"
        for name in sorted(set(used) - {_whole(weight) for weight in weights} - weights)[:5]:
            yield Found(at, f"{name!r}, which is no weight of {found.graph.path}", "the weights of the graph")
        for name in sorted(weight for weight in weights if not {weight, _whole(weight)} & set(used))[:5]:
            yield Found(at, f"nothing of {name!r}", f"every weight of {found.graph.path}")


def _whole(name: str) -> str:
    """The tensor that a weight is, or is a part of: `embed_tokens_per_layer.3.weight` is a part of the table."""
    return re.sub(r"^(.*embed_tokens_per_layer)\.\d+\.weight$", r"\1.weight", name)


@rule("HON007", Severity.ERROR, ("graphs", "config"))
def card_geometry(package: Opened) -> Iterator[Found]:
    """README.md states another geometry than graph and config have.

    Causes: the card was written by hand or kept from another build.
    Remedy: build the package again, or correct the card.
    """
    rows = table(package.text(CARD) or "")
    for found in facts(package):
        for contract, expected in spoken(found).items():
            if contract in rows and (
                missing := [part for part in expected if not _says(rows[contract], part)]
            ):
                at = f"{CARD}: {contract}"
                yield Found(at, rows[contract], ", ".join(missing))


def table(text: str) -> Mapping[str, str]:
    """The rows of the card's contract table."""
    part = text.partition("| Contract | Value |")[2].partition("\n\n")[0]
    cells = [line.strip().strip("|").split(" | ", 1) for line in part.splitlines() if line.startswith("|")]
    return {row[0].strip().strip("*"): row[1].strip() for row in cells if len(row) == 2}


def _says(text: str, part: str) -> bool:
    """Whether the words are there, as words: 3 is not in 35."""
    return (
        re.search(rf"(?<![\w.]){re.escape(part)}(?![\w]|\.\d)", text.replace("**", "").replace("`", ""))
        is not None
    )


def spoken(found: Decoded) -> dict[str, list[str]]:
    """What each row of the card's table must contain."""
    config = found.config
    assert config is not None
    sizes, heads = found.by_kind(3), found.by_kind(1)
    attentions = [f"{name} × {count}" for name, count in found.attentions.items()]
    borrowers, layers = found.borrowers, [] if found.layers is None else [str(found.layers)]
    return {
        "Layers": [*layers, *attentions],
        "Hybrid attention": [f"sliding_window({config.window})" if config.window else "full_attention"],
        "Heterogeneous head size": _by_kind(sizes),
        "Head size": [str(size) for size in set(sizes.values())],
        "Heads": [f"num_attention_heads={config.heads}", *([*map(str, set(heads.values()))])],
        "Key/value caches": [
            str(len(found.owners)),
            *([f"num_kv_shared_layers={borrowers}"] if borrowers else []),
        ],
        "Per-layer input": [f"hidden_size_per_layer_input={config.per_layer_input}"],
        "Logits": [
            f"soft-capped at {config.softcap}" if config.softcap else "not capped",
            "tied" if config.tied else "own",
        ],
        "Embedding scale": [] if found.embed_scale is None else [repr(found.embed_scale)],
        "Fused operators": sorted(found.fused) or ["none"],
    }


def _by_kind(numbers: Mapping[str, Any]) -> list[str]:
    return [f"{kind.replace('_', '/')} {number}" for kind, number in numbers.items()]


@rule("HON008", Severity.ERROR, NEEDS)
def card_build(package: Opened) -> Iterator[Found]:
    """README.md names another type or provider than the graph is of.

    Causes: the card was kept while the package was built again.
    Remedy: build the package again, or correct the card.
    """
    match = re.search(r"^- \*\*dtype / EP\*\*: `([^`]*)` / `([^`]*)`", package.text(CARD) or "", re.MULTILINE)
    for found in facts(package) if match else ():
        assert match is not None
        target = TARGETS.get(found.graph.properties.get("cabochon.target", ""))
        if found.dtype not in (None, match[1]):
            yield Found(f"{CARD}: dtype", match[1], str(found.dtype))
        if target and target.provider != match[2]:
            yield Found(f"{CARD}: EP", match[2], target.provider)


@rule("HON009", Severity.ERROR, NEEDS)
def caveat_withheld(package: Opened) -> Iterator[Found]:
    """README.md does not say what to know before running this precision on this target.

    Causes: the limits were taken out of the card.
    Remedy: build the package again: the card says what the table of targets says.
    """
    text = package.text(CARD)
    for found in facts(package) if text is not None else ():
        properties = found.graph.properties
        target = TARGETS.get(properties.get("cabochon.target", ""))
        said = target.caveats.get(properties.get("cabochon.precision", "")) if target else None
        if said and said not in (text or ""):
            yield Found(f"{CARD}: Limits", "nothing of it", said)


@rule("HON010", Severity.ERROR, ("document", "graphs"))
def limits_differ(package: Opened) -> Iterator[Found]:
    """The document's model has other limits than the graph and config.json.

    Causes: a placeholder; numbers of another model; the tokenizer's number of tokens taken for the model's.
    Remedy: vocab_size is the last dimension of the logits, max_sequence_length is max_position_embeddings.
    """
    for found in facts(package):
        real = {
            "vocab_size": found.vocabulary,
            "max_sequence_length": package.config.max_positions if package.config else None,
        }
        for name, document in package.documents.items():
            for key, expected in real.items():
                said = getattr(document.model, key, None)
                if said is not None and expected is not None and said != expected:
                    yield Found(f"{name}: model.{key}", str(said), str(expected))


@rule("HON011", Severity.ERROR, ("document", "graphs"))
def attention_contradicted(package: Opened) -> Iterator[Found]:
    """The document's model.attention contradicts the graph.

    Causes: it has one head size and one window for all layers; this family has two.
    Remedy: leave model.attention out: head sizes are those of the ports.
    """
    for found in facts(package):
        for name, document in package.documents.items():
            said = document.model.attention if document.model else None
            if said is not None:
                plain = said.model_dump(exclude_none=True)
                yield from differing(f"{name}: model.attention", plain, attention(found))


def attention(found: Decoded) -> dict[str, Any]:
    """What model.attention must say where it speaks; a fact that differs between layers cannot be said."""
    config = found.config
    return {
        "head_dim": one(found.by_kind(3)) or VARIES,
        "num_kv_heads": one(found.by_kind(1)) or VARIES,
        "num_attention_heads": config.heads if config else None,
        "sliding_window": (config.window or NOTHING) if config else None,
        "sink_tokens": 0,
    }


@rule("HON012", Severity.ERROR, ("document", "graphs"))
def quantization_contradicted(package: Opened) -> Iterator[Found]:
    """The document's quantization is not what the weights are.

    Causes: it was copied from a quantized package; it states an intent.
    Remedy: state the type that the weights have, or nothing.
    """
    for found in facts(package):
        real = max(found.weights, key=lambda dtype: found.weights[dtype], default=None)
        for name, document in package.documents.items():
            said = document.quantization.default if document.quantization else None
            if said and real and NAMES.get(said, said) != real:
                yield Found(f"{name}: quantization.default", said, f"{real}, the type of most weights")
            for i, override in enumerate(
                document.quantization.overrides or () if document.quantization else ()
            ):
                if (
                    real
                    and len(found.weights) == 1
                    and NAMES.get(override.precision, override.precision) != real
                ):
                    at = f"{name}: quantization.overrides[{i}].precision"
                    yield Found(at, override.precision, f"{real}, the type of all weights")


NAMES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


@rule("HON013", Severity.ERROR, NEEDS)
def tap_differs(package: Opened) -> Iterator[Found]:
    """What is said of the hidden states is not the graph's output.

    Causes: the layers were counted otherwise; the output was dropped.
    Remedy: the output is called hidden_states.N with N the last layer.
    """
    for found in facts(package):
        if (
            found.tap is not None
            and found.layers
            and found.tap != (last := f"hidden_states.{found.layers - 1}")
        ):
            yield Found(f"{found.graph.path}: outputs", found.tap, last)
        for name in sorted(set(_taps(package)) - set(found.graph.ports.outputs)):
            yield Found(f"{PROVENANCE}: build.outputs_note", name, found.tap or "no such output")


def _taps(package: Opened) -> list[str]:
    note = inside(package.json(PROVENANCE), "build", "outputs_note")
    return re.findall(r"hidden_states\.\d+", note) if isinstance(note, str) else []


@rule("HON014", Severity.ERROR, ("graphs", "config"))
def properties_differ(package: Opened) -> Iterator[Found]:
    """A property of the graph is not what graph and config show.

    Causes: the properties were edited; the graph was built from another config.
    Remedy: build the package again.
    """
    config = package.config
    assert config is not None
    for found in facts(package):
        said = found.graph.properties
        target = TARGETS.get(said.get("cabochon.target", ""))
        real = {
            "cabochon.max_positions": str(config.max_positions),
            "cabochon.sliding_window": None if config.window is None else str(config.window),
            "cabochon.mask": "left-justified" if "GroupQueryAttention" in found.attentions else "anywhere",
        }
        for key, expected in real.items():
            if key in said and said[key] != expected:
                yield Found(f"{found.graph.path}: {key}", said[key], expected or "no such property")
        if "cabochon.target" in said and target is None:
            yield Found(
                f"{found.graph.path}: cabochon.target",
                said["cabochon.target"],
                f"one of {', '.join(TARGETS)}",
            )


@rule("HON015", Severity.ERROR, NEEDS)
def window_unsaid(package: Opened) -> Iterator[Found]:
    """The graph does not say the window that its caches may be cut to.

    Causes: the property was removed; a runtime then keeps every entry, or guesses.
    Remedy: build the package again.
    """
    for found in facts(package):
        windowed = found.config is not None and found.config.window is not None
        ours = "cabochon.target" in found.graph.properties
        if windowed and ours and "cabochon.sliding_window" not in found.graph.properties:
            yield Found(f"{found.graph.path}: properties", "no cabochon.sliding_window", "the number of keys")


@rule("HON016", Severity.ERROR, ("graphs", "config"))
def genai_differs(package: Opened) -> Iterator[Found]:
    """genai_config.json claims what the graph contradicts.

    Causes: one head size was stated for layers of two; a shared buffer was claimed of a graph that does not write into
    its past; numbers were copied from another model.
    Remedy: build the package again: every number of genai_config.json is derived.
    """
    said = package.json(GENAI)
    for found in facts(package) if said is not None else ():
        yield from differing(f"{GENAI}: model", inside(said, "model"), genai_model(found))
        yield from differing(
            f"{GENAI}: model.decoder", inside(said, "model", "decoder"), genai_decoder(found)
        )
        yield from _genai_names(found, inside(said, "model", "decoder"))


def genai_model(found: Decoded) -> dict[str, Any]:
    """What the part about the model must say where it speaks."""
    return {
        "vocab_size": found.vocabulary,
        "context_length": found.config.max_positions if found.config else None,
    }


def genai_decoder(found: Decoded) -> dict[str, Any]:
    """What the part about the decoder must say where it speaks."""
    return {
        "filename": found.graph.path,
        "num_hidden_layers": found.layers,
        "num_attention_heads": found.config.heads if found.config else None,
        "hidden_size": found.config.hidden if found.config else None,
        "head_size": one(found.by_kind(3)) or VARIES,
        "num_key_value_heads": one(found.by_kind(1)) or VARIES,
    }


def _genai_names(found: Decoded, decoder: Any) -> Iterator[Found]:
    """Every name, with each owner for %d, is a port of the graph."""
    ports = {"inputs": found.graph.ports.inputs, "outputs": found.graph.ports.outputs}
    for side, real in ports.items():
        for key, name in (inside(decoder, side) or {}).items():
            names = [name.replace("%d", str(i)) for i in found.owners] if "%d" in str(name) else [str(name)]
            if missing := [each for each in names if each not in real]:
                at = f"{GENAI}: model.decoder.{side}.{key}"
                yield Found(at, f"{name!r}, but there is no {missing[0]!r}", f"{side} of {found.graph.path}")


@rule("HON017", Severity.ERROR, NEEDS)
def genai_shares_buffer(package: Opened) -> Iterator[Found]:
    """genai_config.json claims a shared buffer of a graph that does not update its caches in place.

    Causes: the setting was copied from a package for GroupQueryAttention. With Attention or Concat the graph returns a
    longer tensor than the buffer, and the run fails.
    Remedy: past_present_share_buffer must be false here.
    """
    said = inside(package.json(GENAI), "search", "past_present_share_buffer")
    for found in facts(package) if said is True else ():
        if reader := next(elsewhere(found), None):
            at = f"{GENAI}: search.past_present_share_buffer"
            yield Found(at, f"true, but {reader}", "false")


def elsewhere(found: Decoded) -> Iterator[str]:
    """What reads a cache of the graph otherwise than in place."""
    for layer in found.owners:
        for part in ("key", "value"):
            past = f"past_key_values.{layer}.{part}"
            for node in found.graph.consumers.get(past, ()):
                if node.op_type not in ("Shape", "GroupQueryAttention"):
                    yield f"{node.op_type} {node.name} reads {past}"


@rule("HON018", Severity.ERROR, NEEDS)
def evidence_of_another(package: Opened) -> Iterator[Found]:
    """Evidence was measured on another package.

    Causes: evidence was copied; the package was built again and kept its evidence.
    Remedy: run `cabochon parity` again, or remove the file.
    """
    listed = sums_of(package)
    for name in evidence(package):
        data = package.json(name)
        for file, digest in (inside(data, "sha256") or {}).items():
            if file not in package.files:
                yield Found(f"{name}: sha256.{file}", "no such file", "a file of the package")
            elif listed.get(file, digest) != digest:
                yield Found(f"{name}: sha256.{file}", str(digest), f"{listed[file]}, as {SUMS} says")
        for found in facts(package):
            for key in ("target", "precision"):
                said, real = inside(data, key), found.graph.properties.get(f"cabochon.{key}")
                if isinstance(said, str) and real is not None and said != real:
                    yield Found(f"{name}: {key}", said, real)


def evidence(package: Opened) -> list[str]:
    """The evidence files that hold JSON."""
    return [
        name for name in package.files if re.fullmatch(r"evidence/[^/]+\.json", name) and package.json(name)
    ]


@rule("HON019", Severity.ERROR)
def evidence_without_runs(package: Opened) -> Iterator[Found]:
    """Evidence claims what its own results do not show.

    Causes: `passed` was set by hand; a check was listed that was not run.
    Remedy: run the check again.
    """
    for name in evidence(package):
        data = package.json(name) or {}
        trials = data.get("trials")
        if data.get("passed") is True and isinstance(trials, list):
            failed = [t for t in trials if not isinstance(t, Mapping) or t.get("passed") is not True]
            if failed or not trials:
                yield Found(
                    f"{name}: passed", "true", f"false: {len(failed)} of {len(trials)} trials did not pass"
                )
        yield from _prompts(name, trials if isinstance(trials, list) else [])
        yield from _validated(name, data)


def _prompts(name: str, trials: list[Any]) -> Iterator[Found]:
    for i, trial in enumerate(trials):
        rows = inside(trial, "prompts")
        failed = [r for r in rows if inside(r, "passed") is False] if isinstance(rows, list) else []
        if inside(trial, "passed") is True and (failed or rows == []):
            found = "no prompt" if not rows else f"{len(failed)} of {len(rows)} prompts that did not pass"
            yield Found(f"{name}: trials[{i}].passed", f"true, with {found}", "false")


def _validated(name: str, data: Mapping[str, Any]) -> Iterator[Found]:
    """A verdict of this validator: no rule both run and skipped, none passed that lists errors."""
    if inside(data, "validator", "name") != "cabochon":
        return
    ran, skipped = data.get("rules"), data.get("skipped")
    if (
        isinstance(ran, list)
        and isinstance(skipped, Mapping)
        and (both := sorted(set(map(str, ran)) & set(skipped)))
    ):
        yield Found(f"{name}: rules", f"{both[0]} as run and as skipped", "one of both")
    findings = data.get("findings")
    errors = [f for f in findings if inside(f, "severity") == "error"] if isinstance(findings, list) else []
    if data.get("passed") is True and errors:
        yield Found(f"{name}: passed", f"true, with {len(errors)} errors", "false")
    if data.get("passed") is True and isinstance(ran, list) and not ran:
        yield Found(f"{name}: passed", "true, with no rule run", "rules that were run")


@rule("HON020", Severity.ERROR, NEEDS)
def tokens_differ(package: Opened) -> Iterator[Found]:
    """A special token is not one of the tokenizer's, or not below the vocabulary.

    Causes: ids were copied from another tokenizer; placeholders of a template were left.
    Remedy: take ids and texts from tokenizer.json and generation_config.json.
    """
    for found in facts(package):
        contents = tokens(package)
        for at, number, content in stated_tokens(package):
            if found.vocabulary is not None and number >= found.vocabulary:
                yield Found(at, str(number), f"an id below {found.vocabulary}")
            elif content is not None and contents and contents.get(number, content) != content:
                yield Found(at, f"{number} for {content!r}", f"{contents[number]!r}, as in tokenizer.json")


def tokens(package: Opened) -> Mapping[int, str]:
    """The added tokens of tokenizer.json by id."""
    added = inside(package.json("tokenizer.json"), "added_tokens")
    found = [(inside(t, "id"), inside(t, "content")) for t in added] if isinstance(added, list) else []
    return {number: text for number, text in found if isinstance(number, int) and isinstance(text, str)}


def stated_tokens(package: Opened) -> Iterator[tuple[str, int, str | None]]:
    """Every special token that a file states: where, its id, its text where that is said."""
    for name, document in package.documents.items():
        tokenizer = document.package.tokenizer if document.package else None
        special = getattr(tokenizer, "special_tokens", None)
        at = f"{name}: package.tokenizer.special_tokens"
        if isinstance(special, Mapping):
            for role, token in special.items():
                yield f"{at}.{role}", token.id, token.content
        elif special is not None:
            yield from _ids(f"{at}.", special.model_dump(exclude_none=True))
    for name, keys in (("generation_config.json", ()), (GENAI, ("model",))):
        yield from _ids(
            ".".join((f"{name}:", *keys)), inside(package.json(name), *keys) if keys else package.json(name)
        )


def _ids(at: str, said: Any) -> Iterator[tuple[str, int, None]]:
    for key, value in said.items() if isinstance(said, Mapping) else ():
        if key.endswith("_token_id"):
            for number in value if isinstance(value, list | tuple) else [value]:
                if isinstance(number, int):
                    yield f"{at}{key}", number, None


@rule("HON021", Severity.ERROR, ("document",))
def ends_differ(package: Opened) -> Iterator[Found]:
    """The document leaves out a token that ends an answer, or adds one.

    Causes: only the tokenizer's own end token was listed; generation_config.json has more.
    Remedy: list the union of generation_config.json, config.json and the tokenizer.
    """
    known = ends(package)
    for name, document in package.documents.items():
        tokenizer = document.package.tokenizer if document.package else None
        special = getattr(tokenizer, "special_tokens", None)
        if not known or special is None:
            continue
        if isinstance(special, Mapping):
            stated = {token.id for token in special.values()}
        else:
            stated = set(special.model_dump(exclude_none=True).get("eos_token_id") or ())
        if missing := sorted(known - stated):
            at = f"{name}: package.tokenizer.special_tokens"
            yield Found(at, f"nothing of {missing}", f"every id that ends an answer: {sorted(known)}")


def ends(package: Opened) -> set[int]:
    """The ids that end an answer, as generation_config.json and config.json state them."""
    found = set[int]()
    for name in ("generation_config.json", "config.json"):
        said = inside(package.json(name), "eos_token_id")
        found |= {n for n in (said if isinstance(said, list) else [said]) if isinstance(n, int)}
    return found


@rule("HON022", Severity.ERROR, ("graphs",))
def tokenizer_too_large(package: Opened) -> Iterator[Found]:
    """The tokenizer has tokens that the model has no logits for.

    Causes: the tokenizer of another checkpoint; tokens were added to it after training.
    Remedy: take the tokenizer of the checkpoint.
    """
    highest = max((*tokens(package), *_vocabulary(package)), default=-1)
    for found in facts(package):
        if found.vocabulary is not None and highest >= found.vocabulary:
            yield Found("tokenizer.json", f"a token with the id {highest}", f"ids below {found.vocabulary}")


def _vocabulary(package: Opened) -> Iterator[int]:
    vocabulary = inside(package.json("tokenizer.json"), "model", "vocab")
    return (
        (n for n in vocabulary.values() if isinstance(n, int))
        if isinstance(vocabulary, Mapping)
        else iter(())
    )


@rule("HON023", Severity.ERROR, ("document",))
def tokenizer_size_differs(package: Opened) -> Iterator[Found]:
    """The document states another number of tokens than the tokenizer has.

    Causes: the model's padded vocabulary was taken for the tokenizer's; a placeholder.
    Remedy: count the tokens of tokenizer.json, the added ones included.
    """
    numbers = {*tokens(package), *_vocabulary(package)}
    for name, document in package.documents.items():
        tokenizer = document.package.tokenizer if document.package else None
        said = getattr(tokenizer, "vocab_size", None)
        if numbers and said is not None and said != len(numbers):
            yield Found(f"{name}: package.tokenizer.vocab_size", str(said), f"{len(numbers)} tokens")
