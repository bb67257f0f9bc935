"""A package as a folder in another version: the document converted, everything else the same bytes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cabochon import files, sums
from cabochon.errors import CabochonError, PackageError
from cabochon.media import read_processors, spelled
from cabochon.metadata import forms, versions, yaml
from cabochon.metadata.decoder import Decoder, read_decoder
from cabochon.metadata.document import Document
from cabochon.metadata.drafter import Drafter, read_drafter
from cabochon.metadata.full import COMPONENTS, Full, artifact, read_full
from cabochon.metadata.full_documents import full_policies, served_full
from cabochon.metadata.pair import EMBEDDING, Pair, read_embedding, served_pair, width
from cabochon.metadata.ports import read
from cabochon.metadata.served import served_document
from cabochon.metadata.vocabulary import Vocabulary, end_tokens, read_vocabulary
from cabochon.strict_json import parse_object

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["Folder", "convert_package", "open_decoder", "open_drafter", "open_full", "open_pair"]

_LOOP, _ANNOTATED = "inference_metadata.loop.yaml", "inference_metadata.annotated.yaml"
_VERDICT = "evidence/validation.json"
# They speak of the documents that are converted, and would be wrong beside the new ones.
_LEFT_OUT = {_ANNOTATED: "its comments explain the other version", _VERDICT: "it judges the other documents"}

_UNHEARD = "sound is left out: the released runtime has a log-mel spectrogram of its own alone, not this model's input"


@dataclass(frozen=True)
class Folder:
    """What was made: where, in which version, and what a user should know of it. `copied`: why nothing was linked."""

    path: Path
    dialect: str
    remarks: tuple[str, ...]
    copied: str | None


def convert_package(package: Path, out: Path, dialect: str) -> Folder:
    """Make `out` the package with its document as "v1" or "v1.8" says it; weights become hard links where possible.

    For v1.8 the document of a text package is the loop that the released runtime drives with its own token policy, that
    of a full package the loop with policy graphs: it loads the one-pass form as well, and generates nothing from it.
    Raises MetadataError for what the version
    cannot say, and PackageError for a folder that is no package or cannot be written.
    """
    name = next((name for name in forms.NAMES if (package / name).is_file()), None)
    if name is None:
        found = "has no inference_metadata.yaml" if package.is_dir() else "is not a folder"
        remedy = "build it again" if package.is_dir() else "make one with `cabochon build`"
        raise PackageError(f"{found}; expected a package", at=str(package), remedy=remedy)
    files.refuse(out, package)
    document, remarks = _converted(package, name, dialect)
    new = {forms.NAMES[0]: document} | _loop(package, dialect, remarks)
    with files.staged(out) as stage:
        copied, kept = _fill(package, stage, {*forms.NAMES, *_LEFT_OUT, _LOOP})
        for path, data in new.items():
            (stage / path).write_bytes(data)
        known = sums.read(package) if (package / sums.SUMS).is_file() else {}
        sums.write(stage, {path: digest for path, digest in known.items() if path in kept})
    remarks += [f"{path} is left out: {why}" for path, why in _LEFT_OUT.items() if (package / path).is_file()]
    return Folder(out, dialect, tuple(remarks), copied)


def _converted(package: Path, name: str, dialect: str) -> tuple[bytes, list[str]]:
    document = forms.read((package / name).read_bytes(), name)
    if dialect == versions.dialect(document):
        return (package / name).read_bytes(), []
    runnable, remarks = _runnable(package) if dialect == "v1.8" else (None, [])
    converted = _convert(package, name, runnable or document, dialect)
    return yaml.write(forms.plain(converted.document)), [*remarks, *converted.remarks]


def _runnable(package: Path) -> tuple[Document | None, list[str]]:
    """What the released runtime generates from, and what it cannot; None, and why, for a package without a loop."""
    try:
        if any((package / "target" / name).is_file() for name in ("model.onnx", artifact("decoder"))):
            return served_pair(open_pair(package)), []
        if (package / artifact("decoder")).is_file():
            full = open_full(package)
            ports = {name: read(graph) for name, graph in full_policies(full).items()}
            return served_full(full, ports), [_UNHEARD] if full.audio else []
        if _is_drafter(package):
            return None, ["a drafter generates nothing by itself: the document says what it said before"]
        return served_document(open_decoder(package)), []
    except (CabochonError, OSError) as error:
        why = f"{error.at}: {error.message}" if isinstance(error, CabochonError) else str(error)
        return None, [
            f"the document says what it said before; a loop could not be derived from the package: {why}"
        ]


def _loop(package: Path, dialect: str, remarks: list[str]) -> dict[str, bytes]:
    """The loop with policy graphs in the other version, where the package has it."""
    if not (package / _LOOP).is_file():
        return {}
    document = forms.read((package / _LOOP).read_bytes(), _LOOP)
    converted = _convert(package, _LOOP, document, dialect)
    remarks += [f"{_LOOP}: {remark}" for remark in converted.remarks]
    return {_LOOP: yaml.write(forms.plain(converted.document))}


def _convert(package: Path, name: str, document: Document, dialect: str) -> forms.Converted:
    said = [_object(package, "generation_config.json"), _object(package, "config.json")]
    ends = sorted({token for config in said for token in end_tokens(config)})
    return forms.convert(document, dialect, contents=_contents(package), ends=ends, at=name)


def _fill(package: Path, stage: Path, without: set[str]) -> tuple[str | None, set[str]]:
    """Link the files of the package into the stage, or copy them; why they were copied, and their names."""
    copied, kept = None, set[str]()
    for path in sorted(package.rglob("*")):
        name = path.relative_to(package).as_posix()
        if path.is_symlink() and path.is_dir():  # the walk does not enter it: its files would be missing
            raise PackageError(
                "is a link to a folder; expected the folder itself",
                at=name,
                remedy="copy it into the package",
            )
        if not path.is_file() or name in without or name == sums.SUMS:
            continue
        (stage / name).parent.mkdir(parents=True, exist_ok=True)
        if (reason := files.hard_link(path.resolve(), stage / name)) is not None:
            copied = copied or reason
            files.copy(path, stage / name)
        kept.add(name)
    return copied, kept


def open_decoder(package: Path) -> Decoder:
    """The facts of a built package's decoder; no weight is read. Raises CabochonError for what is no text package."""
    from cabochon.gemma4 import read_text_config

    config = _object(package, "config.json")
    generation = _object(package, "generation_config.json")
    graph = _graph(package, "model.onnx")
    return read_decoder(graph, read_text_config(config), _vocabulary(package, config), generation)


def open_drafter(package: Path) -> Drafter:
    """The facts of a built drafter; no weight is read. Raises CabochonError for what is none."""
    from cabochon.gemma4 import read_drafter_config

    config = _object(package, "config.json")
    graph = _graph(package, "model.onnx")
    return read_drafter(graph, read_drafter_config(config), _vocabulary(package, config))


def open_full(package: Path) -> Full:
    """The facts of a built full package; no weight is read. Raises CabochonError for what is none."""
    from cabochon.gemma4 import read_text_config

    config = _object(package, "config.json")
    models = {
        name: _graph(package, artifact(name)) for name in COMPONENTS if (package / artifact(name)).exists()
    }
    text, generation = read_text_config(config), _object(package, "generation_config.json")
    processor = spelled(read_processors(package))
    return read_full(models, text, config, _vocabulary(package, config), generation, processor)


def open_pair(package: Path) -> Pair:
    """The facts of a built pair; no weight is read. Raises CabochonError for what is none."""
    inner = package / "target"
    full = open_full(inner).within("target") if (inner / artifact("decoder")).is_file() else None
    target = full.decoder if full else _inner_decoder(inner)
    embedding = read_embedding(_graph(package, EMBEDDING))
    proposed = width(_object(package, "assistant_generation_config.json"))
    return Pair(target, open_drafter(package), embedding, proposed, full)


def _inner_decoder(package: Path) -> Decoder:
    return replace(open_decoder(package), name="target", artifact="target/model.onnx")


def _is_drafter(package: Path) -> bool:
    return _graph(package, "model.onnx").metadata_props.get("cabochon.model") == "drafter"


def _graph(package: Path, name: str) -> "ir.Model":
    import onnx_ir as ir

    if not (package / name).is_file():  # a pipe would be waited for
        raise PackageError("is missing or no file; expected a graph", at=name)
    try:
        return ir.load(package / name)
    except Exception as error:  # protobuf and onnx_ir raise what they like
        raise PackageError(f"no graph: {error}"[:200], at=name) from error


def _vocabulary(package: Path, config: Mapping[str, Any]) -> Vocabulary | None:
    """The tokens, as the tokenizer's files beside the graph state them; None without a tokenizer."""
    tokenizer = package / "tokenizer.json"
    generation, names = (_object(package, f"{name}_config.json") for name in ("generation", "tokenizer"))
    return read_vocabulary(tokenizer, generation, config, names=names) if tokenizer.is_file() else None


def _object(package: Path, name: str) -> dict[str, Any]:
    try:
        return parse_object((package / name).read_bytes()) if (package / name).is_file() else {}
    except ValueError as error:
        raise PackageError(str(error), at=name) from None


def _contents(package: Path) -> Mapping[int, str]:
    """The texts of the added tokens by id, which v1 wants to know."""
    added = _object(package, "tokenizer.json").get("added_tokens")
    tokens = [token for token in added if isinstance(token, dict)] if isinstance(added, list) else []
    return {
        token["id"]: token["content"]
        for token in tokens
        if isinstance(token.get("id"), int) and isinstance(token.get("content"), str)
    }
