"""The files of a checkpoint that travel along unchanged, and which of them a package must have."""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from cabochon.errors import PackageError, SourceError
from cabochon.section import Section
from cabochon.strict_json import parse_object

__all__ = ["NEEDED", "PROCESSOR", "media_files", "require", "travelling"]

_TOKENIZER = {
    "tokenizer.json": "the tokenizer",
    "tokenizer_config.json": "how the tokenizer is set up",
    "special_tokens_map.json": "special tokens, as older tokenizers list them",
    "added_tokens.json": "added tokens, as older tokenizers list them",
    "tokenizer.model": "the tokenizer in SentencePiece's form",
}
_TRAVELLING = {
    "config.json": "the checkpoint's config, as published",
    "generation_config.json": "how the checkpoint's authors generate",
    **_TOKENIZER,
    "chat_template.jinja": "the chat template",
}
_OBJECTS = {name for name in _TRAVELLING if name.endswith(".json")} - {"config.json", "tokenizer.json"}
_PROCESSORS = {
    "processor_config.json": "how images, video and sound are prepared, as published",
    "preprocessor_config.json": "how images are prepared, as older checkpoints say it",
    "video_preprocessor_config.json": "how video is prepared, as older checkpoints say it",
}
# Keys of generation_config.json: whole numbers and the least they may be, numbers from 0 and the most.
_COUNTS = {
    **dict.fromkeys(("bos_token_id", "pad_token_id", "top_k", "no_repeat_ngram_size"), 0),
    **dict.fromkeys(("min_length", "max_length"), 0),
    **dict.fromkeys(("num_beams", "num_return_sequences"), 1),
}
_NUMBERS = {"temperature": 1e30, "top_p": 1, "repetition_penalty": 1e30}
NEEDED = ("tokenizer", "generation_config", "chat_template")
PROCESSOR = "processor"  # no package with encoders does without: programs and prompts follow it


def travelling(files: Mapping[str, Path]) -> dict[str, str]:
    """The names among `files` that are copied into a package, and what each is."""
    return {name: what for name, what in _TRAVELLING.items() if name in files}


def media_files(files: Mapping[str, Path]) -> dict[str, str]:
    """The same of the files that only a package with encoders needs."""
    return {name: what for name, what in _PROCESSORS.items() if name in files}


def require(
    files: Mapping[str, Path], allowed: Collection[str], needed: Collection[str] = NEEDED
) -> tuple[str, ...]:
    """Refuse a checkpoint without tokenizer, generation config or chat template, where `needed` and not `allowed`.

    Returns remarks on what is absent and allowed to be. Raises PackageError with everything that is not,
    SourceError for a file that would travel and that no runtime could read.
    """
    for name in allowed:
        if name not in NEEDED:
            raise PackageError(
                f"allow_missing names {name!r}; expected one of {', '.join(NEEDED)}",
                remedy="correct the name, or leave --allow-missing out",
            )
    missing = {name: what for name, what in _missing(files, _check(files)) if name in needed}
    refused = [name for name in missing if name not in allowed]
    if refused:
        allowable = " ".join(f"--allow-missing {name}" for name in refused if name in NEEDED)
        raise PackageError(
            "the checkpoint has no " + ", no ".join(missing[name] for name in refused),
            at="checkpoint",
            remedy="copy them from the base model into its folder"
            + (f", or build with {allowable}" if allowable else ""),
        )
    return tuple(f"the package has no {missing[name]}" for name in missing)


def _missing(files: Mapping[str, Path], template: str | None) -> Iterator[tuple[str, str]]:
    if not {"tokenizer.json", "tokenizer_config.json"} <= set(files):
        yield "tokenizer", "tokenizer (tokenizer.json and tokenizer_config.json)"
    if "generation_config.json" not in files:
        yield "generation_config", "generation_config.json"
    if not template:
        yield "chat_template", "chat template (chat_template.jinja, or in tokenizer_config.json)"

    if "processor_config.json" not in files and "preprocessor_config.json" not in files:
        yield PROCESSOR, "processor_config.json"


def _check(files: Mapping[str, Path]) -> str | None:
    """Every file that travels can be read as what it is. Returns the chat template, if there is one."""
    objects = {name: _object(name, file) for name, file in files.items() if name in _OBJECTS}
    _check_generation(
        Section(objects.get("generation_config.json", {}), "generation_config.json", null_is_absent=True)
    )
    if "tokenizer.json" in files:
        _check_tokenizer(files["tokenizer.json"])
    at, template = "tokenizer_config.json: chat_template", _default(objects.get("tokenizer_config.json", {}))
    if "chat_template.jinja" in files:
        at = "chat_template.jinja"
        template = files[at].read_bytes()
    return None if template is None else _compiled(at, template)


def _object(name: str, file: Path) -> dict[str, Any]:
    try:
        return parse_object(file.read_bytes())
    except ValueError as error:
        raise _unusable(name, f"is no JSON object: {error}") from None


def _check_generation(said: Section) -> None:
    """What documents and runtimes take over is of its type. ConfigError otherwise."""
    said.flag("do_sample", False)
    for key, least in _COUNTS.items():
        said.integer(key, least, minimum=least)
    for key, most in _NUMBERS.items():
        said.number(key, 0, minimum=0, maximum=most)
    said.refuse_other("early_stopping", (None, True, False, "never"), "transformers knows no other")


def _check_tokenizer(file: Path) -> None:
    from tokenizers import Tokenizer

    try:
        Tokenizer.from_buffer(file.read_bytes())
    except Exception as error:  # tokenizers raises plain Exception
        raise _unusable(file.name, f"is no tokenizer: {error}") from None


def _default(tokenizer: Mapping[str, Any]) -> Any:
    """The template that tokenizer_config.json holds, or of a list of named ones the default."""
    found = tokenizer.get("chat_template")
    if not isinstance(found, list):
        return found
    named = (entry for entry in found if isinstance(entry, Mapping) and entry.get("name") == "default")
    return next((entry.get("template") for entry in named), None)


def _compiled(at: str, template: Any) -> str:
    """The text of a template that jinja2 compiles, in the sandbox and with the extension that a runtime has."""
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(extensions=[loopcontrols])
    environment.intercepted_binops = frozenset({"*", "**"})  # or compiling would compute 'a' * 10**10
    try:
        text = template.decode("utf-8") if isinstance(template, bytes) else template
        environment.compile(text)
    except Exception as error:  # jinja2's own and Python's, such as RecursionError
        raise _unusable(at, f"is no template: {error}") from None
    return text


def _unusable(at: str, what: str) -> SourceError:
    return SourceError(what, at=at, remedy="download the file again, or take it from the base model")
