"""The files of a package that a runtime reads, and the facts that several of them may state."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cabochon.errors import PackageError
from cabochon.runtime.kinds import checked

HONOURED = {
    "do_sample", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "max_new_tokens", "eos_token_id",
    "seed",
}  # fmt: skip
INERT = {
    "bos_token_id", "pad_token_id", "transformers_version", "cache_implementation", "use_cache", "_from_model_config",
    "num_assistant_tokens", "num_assistant_tokens_schedule", "assistant_confidence_threshold",
}  # fmt: skip
TEXT = ("eos_token_id", "bos_token_id", "num_attention_heads")
GRAPHS = ("model.onnx", "openvino_model.xml")
"""What the file of a graph is called, by what runs it: onnxruntime, or OpenVINO."""
DECODERS = tuple(f"{folder}{name}" for name in GRAPHS for folder in ("", "decoder/"))
REMEDY = "correct the file, or build the package again from a source that has it right"


@dataclass(frozen=True)
class Folder:
    """A package on disk: its JSON files, {} where one is absent, and its chat template. What we read is checked.

    `graph` is the file of the decoder.
    """

    path: Path
    graph: Path
    config: Mapping[str, Any]
    generation: Mapping[str, Any]
    tokenizer: Mapping[str, Any]
    template: str | None

    @property
    def full(self) -> bool:
        """True where the decoder is one component of several."""
        return self.graph.parent != self.path

    @property
    def text_config(self) -> Mapping[str, Any]:
        """The text part of config.json, whichever of the two spellings it is in."""
        return self.config.get("text_config") or self.config

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """End-of-sequence ids of generation_config.json, of config.json and of its text_config."""
        sources = (self.generation, self.config, self.text_config)
        return frozenset(i for s in sources for i in s.get("eos_token_id") or ())

    @property
    def remarks(self) -> tuple[str, ...]:
        """What the package asks for and this runtime does not do."""
        unknown = sorted(k for k, v in self.generation.items() if v is not None and k not in HONOURED | INERT)
        return tuple(f"generation_config.json: {k} = {self.generation[k]!r} is not followed" for k in unknown)


def open_folder(package: str | Path) -> Folder:
    """Read a package's small files; raise PackageError where there is no graph or a file is not JSON."""
    path = Path(package)
    graph = decoder_file(path)
    if graph is None:
        found = f"holds no {' and no '.join(DECODERS)}" if path.is_dir() else "is not a folder"
        raise PackageError(
            f"{found}; expected a package", at=str(path), remedy="make one with `cabochon build`"
        )
    tokenizer = read_object(
        path / "tokenizer_config.json", ("chat_template", "model_specific_special_tokens")
    )
    own = path / "chat_template.jinja"
    template = _text(own) if own.is_file() else tokenizer.get("chat_template")
    generation = read_object(path / "generation_config.json", HONOURED)
    return Folder(path, graph, _config(path / "config.json"), generation, tokenizer, template)


def decoder_file(package: Path) -> Path | None:
    """The decoder's graph in a text package or in a full one; None where there is neither."""
    return next((package / name for name in DECODERS if (package / name).is_file()), None)


def graph_file(folder: Path) -> Path | None:
    """The graph in a folder; None where there is none."""
    return next((folder / name for name in GRAPHS if (folder / name).is_file()), None)


def _config(path: Path) -> Mapping[str, Any]:
    config = read_object(path, ("text_config", *TEXT))
    inner = config.get("text_config")
    return {**config, "text_config": checked(inner, TEXT, f"{path}: text_config")} if inner else config


def read_object(path: Path, names: Iterable[str]) -> Mapping[str, Any]:
    """A JSON file, {} where there is none; of its entries those of `names` are checked. Raises PackageError."""
    if not path.is_file():
        return {}
    try:
        read = json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        raise PackageError(f"not JSON: {error}", at=str(path), remedy=REMEDY) from error
    if not isinstance(read, dict):
        raise PackageError(f"a {type(read).__name__}; expected an object", at=str(path), remedy=REMEDY)
    return checked(read, names, str(path))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise PackageError(f"not UTF-8 text: {error}", at=str(path), remedy=REMEDY) from error
