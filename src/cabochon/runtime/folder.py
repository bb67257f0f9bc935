"""The files of a package that a runtime reads, and the facts that several of them may state."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cabochon.errors import PackageError

HONOURED = {
    "do_sample", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "max_new_tokens", "eos_token_id",
}  # fmt: skip
INERT = {
    "bos_token_id", "pad_token_id", "transformers_version", "cache_implementation", "use_cache", "_from_model_config",
    "num_assistant_tokens", "num_assistant_tokens_schedule", "assistant_confidence_threshold",
}  # fmt: skip


@dataclass(frozen=True)
class Folder:
    """A package on disk: its JSON files as they are, {} where a file is absent, and its chat template."""

    path: Path
    config: Mapping[str, Any]
    generation: Mapping[str, Any]
    tokenizer: Mapping[str, Any]
    template: str | None

    @property
    def text_config(self) -> Mapping[str, Any]:
        """The text part of config.json, whichever of the two spellings it is in."""
        return self.config.get("text_config") or self.config

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """End-of-sequence ids of generation_config.json, of config.json and of its text_config."""
        sources = (self.generation, self.config, self.text_config)
        return frozenset(i for s in sources for i in _several(s.get("eos_token_id")))

    @property
    def remarks(self) -> tuple[str, ...]:
        """What the package asks for and this runtime does not do."""
        unknown = sorted(k for k, v in self.generation.items() if v is not None and k not in HONOURED | INERT)
        return tuple(f"generation_config.json: {k} = {self.generation[k]!r} is not followed" for k in unknown)


def open_folder(package: str | Path) -> Folder:
    """Read a package's small files; raise PackageError where there is no graph or a file is not JSON."""
    path = Path(package)
    if not (path / "model.onnx").is_file():
        found = "holds no model.onnx" if path.is_dir() else "is not a folder"
        raise PackageError(
            f"{found}; expected a package", at=str(path), remedy="make one with `cabochon build`"
        )
    tokenizer = _json(path / "tokenizer_config.json")
    template = path / "chat_template.jinja"
    text = (
        template.read_text(encoding="utf-8")
        if template.is_file()
        else _default(tokenizer.get("chat_template"))
    )
    return Folder(path, _json(path / "config.json"), _json(path / "generation_config.json"), tokenizer, text)


def _json(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        return {}
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise PackageError(f"not JSON: {error}", at=str(path), remedy="build the package again") from error
    if not isinstance(read, dict):
        raise PackageError(
            f"a {type(read).__name__}; expected an object", at=str(path), remedy="build the package again"
        )
    return read


def _default(template: Any) -> str | None:
    """tokenizer_config.json holds one template or a list of named ones."""
    if isinstance(template, list):
        return next((t["template"] for t in template if t.get("name") == "default"), None)
    return template


def _several(ids: Any) -> Iterable[int]:
    return ids if isinstance(ids, list) else () if ids is None else (ids,)
