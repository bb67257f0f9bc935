"""README.md of a full package: computed from the graphs, the configs and what was written."""

from collections.abc import Iterator, Mapping

from cabochon.gemma4.audio_config import AudioConfig
from cabochon.gemma4.embedder_config import AudioEmbedder
from cabochon.package.card import EVIDENCE, contract_rows, decoder_limits, decoder_notes
from cabochon.package.contracts import operators
from cabochon.package.facts import FullFacts
from cabochon.package.how_stored import how_stored, titled
from cabochon.package.layout import inside
from cabochon.package.page import bullets, front_matter, made, page, table

__all__ = ["full_card"]

_USAGE = """\
```python
import cabochon

model = cabochon.load("PACKAGE")
said = [{{"role": "user", "content": [{part}, {{"type": "text", "text": "What is this?"}}]}}]
print(model.generate(said, max_new_tokens=64).text)
```"""
_IMAGE, _AUDIO = '{"type": "image", "image": "photo.jpg"}', '{"type": "audio", "audio": "speech.wav"}'


def full_card(facts: FullFacts, files: Mapping[str, str]) -> str:
    """The text of README.md. `files` are the package's files and what each is."""
    sections = {
        "Components": table(("Component", "What it is"), _components(facts)),
        "Truthful graph contracts": table(("Contract", "Value"), _contract_rows(facts)),
        **how_stored(facts),
        "Usage": _USAGE.format(part=_IMAGE if facts.config.vision else _AUDIO),
        "Runtime notes": bullets(_runtime_notes(facts)),
        "Limits": bullets(decoder_limits(facts)),
        "Evidence": EVIDENCE,
        "Files": table(("File", "What it is"), [(f"`{name}`", what) for name, what in files.items()]),
        "License": f"`{facts.license.id}` ({facts.license.evidence}). See `SOURCE_LICENSE.md`.",
    }
    head = front_matter(
        facts.license.id, facts.base_models, "image-text-to-text", pipeline="image-text-to-text"
    )
    return page(head, _introduction(facts), sections)


def _introduction(facts: FullFacts) -> str:
    seen = [what for what, tower in (("images", facts.config.vision), ("sound", facts.config.audio)) if tower]
    return "\n".join(
        [
            f"# {facts.name}: ONNX, text with {' and '.join(seen)} ({titled(facts)}, {facts.target.name})",
            "",
            f"A Gemma 4 checkpoint as {len(facts.models)} ONNX graphs with their weights.",
            "",
            *made(facts),
        ]
    )


def _components(facts: FullFacts) -> Iterator[tuple[str, str]]:
    for name, model in facts.models.items():
        nodes = sum(operators(model).values())
        size = sum(
            digest.nbytes for path, digest in facts.digests.items() if path.startswith(inside(name, ""))
        )
        inputs = [value.name or "" for value in model.graph.inputs]
        named = ", ".join(f"`{port}`" for port in inputs if not port.startswith("past_key_values."))
        made_of = ", ".join(
            f"`{v.name}`" for v in model.graph.outputs if not (v.name or "").startswith("present.")
        )
        yield f"`{name}`", f"{named} → {made_of}; {nodes} nodes, {size:,} bytes"


def _contract_rows(facts: FullFacts) -> Iterator[tuple[str, str]]:
    yield from contract_rows(facts)
    for medium in ("vision", "audio"):
        if said := facts.contracts.get(medium):
            free = said.get("encoder_free")
            name = f"{medium.capitalize()}, without an encoder" if free else f"{medium.capitalize()} encoder"
            yield name, ", ".join(f"`{key}={value}`" for key, value in said.items() if key != "encoder_free")


def _runtime_notes(facts: FullFacts) -> Iterator[str]:
    ids = facts.models["embedding"].metadata_props
    named = {key.removeprefix("cabochon."): ids[key] for key in sorted(ids) if key.endswith("_token_id")}
    yield "Placeholders: " + ", ".join(f"`{name}` {token}" for name, token in named.items()) + "."
    yield (
        "Features take the places of placeholders in order of appearance, row by row; a request without images or "
        "sound gives no rows of features. Who calls counts both: a feature too many is not looked at."
    )
    if facts.config.vision:
        side = facts.config.vision.pooling_kernel_size
        rows = "Each patch makes" if side == 1 else f"{side} x {side} patches make"
        yield (
            f"`pixel_values` holds patches in [0, 1], row by row; `pixel_position_ids` is (x, y) of each, (-1, -1) for "
            f"padding. {rows} a row of `image_features`."
        )
    if audio := facts.config.audio:
        yield f"`input_features` is {_sound(audio)}; frames that `input_features_mask` rules out give nothing."
    if facts.config.bidirectional:
        yield (
            "The tokens of an image see each other on sliding layers: the decoder takes `input_ids` too, and all "
            "tokens of an image are fed in one call."
        )
    yield from decoder_notes(facts)
    option = "image" if facts.config.vision else "audio"
    yield f"`cabochon run PACKAGE --{option} FILE --chat ...` and `cabochon.load(PACKAGE).generate(...)` do all this."


def _sound(audio: AudioConfig | AudioEmbedder) -> str:
    if isinstance(audio, AudioEmbedder):
        rows = "each of which makes a row of `audio_features`"
        return f"sound as it is, in frames of {audio.features} samples side by side, {rows}"
    return "the log-mel spectrogram"
