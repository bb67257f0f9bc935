"""The rules on genai_config.json."""

from collections.abc import Iterator
from typing import Any

from cabochon.validation.facts import Decoded
from cabochon.validation.findings import Severity
from cabochon.validation.opened import Opened
from cabochon.validation.rules import Found, rule
from cabochon.validation.statements import GENAI, NEEDS, VARIES, differing, entries, facts, inside, one
from cabochon.validation.token_claims import stated_as

__all__: list[str] = []

# How tokens are drawn: called alike in both files, with what transformers does where nothing is said.
DRAWN = {
    "do_sample": False,
    "temperature": 1.0,
    "top_k": 50,
    "top_p": 1.0,
    "repetition_penalty": 1.0,
}


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
        for key, name in entries(decoder, side).items():
            names = [name.replace("%d", str(i)) for i in found.owners] if "%d" in str(name) else [str(name)]
            if missing := [each for each in names if each not in real]:
                at = f"{GENAI}: model.decoder.{side}.{key}"
                yield Found(at, f"{name!r}, but there is no {missing[0]!r}", f"{side} of {found.graph.path}")


@rule("HON036", Severity.ERROR, NEEDS)
def genai_search_differs(package: Opened) -> Iterator[Found]:
    """genai_config.json draws, begins, pads or ends otherwise than the package's other files say.

    Causes: the settings of another model; a file that was edited alone; a length beyond the positions of the model.
    Remedy: build the package again: these settings are those of the checkpoint, or those of transformers where it has
    none.
    """
    said, drawn = package.json(GENAI), package.json("generation_config.json")
    if said is None:
        return
    search = entries(said, "search")
    for key, default in DRAWN.items() if drawn is not None else ():
        found, stated = search.get(key), inside(drawn, key)
        if found != stated and not (stated is None and found == default):
            yield Found(f"{GENAI}: search.{key}", _shown(found), _shown(stated))
    longest, most = search.get("max_length"), package.config and package.config.max_positions
    if isinstance(longest, int | float) and most is not None and longest > most:
        yield Found(f"{GENAI}: search.max_length", str(longest), f"at most {most}, as config.json has it")
    for role in ("bos", "pad"):
        token, known = inside(said, "model", f"{role}_token_id"), stated_as(package, role)
        if known and not any(token == each for each in known):
            expected = " or ".join(map(str, sorted(known)))
            yield Found(f"{GENAI}: model.{role}_token_id", _shown(token), expected)


def _shown(value: Any) -> str:
    return "nothing" if value is None else repr(value)[:200]


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
