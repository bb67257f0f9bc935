"""Decoders for tests of what is derived from them: traced, with the tokenizer files of a checkpoint, never written."""

import json
from pathlib import Path
from typing import Any

import checkpoints
from cabochon.dialects import TARGETS
from cabochon.gemma4 import read_text_config, trace_text
from cabochon.metadata.decoder import Decoder, read_decoder
from cabochon.metadata.vocabulary import read_vocabulary
from cabochon.recipes import PRECISIONS
from graphs import imagined

MINIATURE = Path(__file__).parents[1] / "src" / "cabochon" / "demo" / "miniature" / "target"
E2B = (
    checkpoints.published(checkpoints.tiny_config("text"))
    | checkpoints.E2B
    | {"max_position_embeddings": 131072}
)


def decoder(
    config: dict[str, Any] | None = None,
    target: str = "default",
    precision: str = "f16",
    tokens: Path | None = checkpoints.TINY / "text",
    **names: Any,
) -> Decoder:
    """The decoder of a config (the tiny one if none is given) over weights that lie nowhere.

    `names` replace entries of tokenizer_config.json; `tokens` is where the tokenizer files are, None for none.
    """
    raw = config or checkpoints.tiny_config("text")
    read = read_text_config(raw)
    model = trace_text(read, imagined(read), TARGETS[target], PRECISIONS[precision])
    if tokens is None:
        return read_decoder(model, read, None, {})
    tokenizer = json.loads((tokens / "tokenizer_config.json").read_bytes()) | names
    generation = json.loads((tokens / "generation_config.json").read_bytes())
    vocabulary = read_vocabulary(tokens / "tokenizer.json", generation, raw, names=tokenizer)
    return read_decoder(model, read, vocabulary, generation)
