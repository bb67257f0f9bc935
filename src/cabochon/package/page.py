"""The parts that the cards of all packages have: front matter, tables, lists."""

import io
import re
from collections.abc import Iterable, Mapping
from typing import Any

from cabochon import __version__
from cabochon.package.facts import Facts, installed

__all__ = ["bullets", "front_matter", "largest_tensor", "made", "page", "table"]

_YAML_1_1 = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}


def page(head: str, introduction: str, sections: Mapping[str, str]) -> str:
    """The text of README.md."""
    titled = [f"## {title}\n\n{body}" for title, body in sections.items()]
    return "\n\n".join([head, introduction, *titled]) + "\n"


def front_matter(
    license: str,
    base_models: list[str],
    *tags: str,
    pipeline: str = "text-generation",
    library: tuple[str, ...] = ("onnx", "onnxruntime"),
) -> str:
    """The fields that a hub reads; `tags` follow those that every package has, `pipeline` is what the hub calls the
    task, the last of `library` what it calls the runtime."""
    from ruamel.yaml import YAML

    values: dict[str, Any] = {"license": _plain_or_quoted(license)}
    if base_models:
        values["base_model"] = [_plain_or_quoted(name) for name in base_models]
    values["tags"] = [*library, "gemma4", *tags]
    values |= {"pipeline_tag": pipeline, "library_name": library[-1]}
    text, yaml = io.StringIO(), YAML()
    yaml.dump(values, text)
    return f"---\n{text.getvalue()}---"


def _plain_or_quoted(text: str) -> str:
    """In quotes what a reader of YAML 1.1 could take for something else than text: `no`, `710e4927`."""
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString

    plain = re.fullmatch(r"[A-Za-z][\w./-]*", text) and text.lower() not in _YAML_1_1
    return text if plain else DoubleQuotedScalarString(text)


def made(facts: Facts[Any]) -> Iterable[str]:
    """Where a package comes from, what it is made of, and by what."""
    source = f"[`{facts.checkpoint.id}`]({facts.url})" if facts.url else f"`{facts.name}` (a local folder)"
    revision = f" @ `{facts.checkpoint.revision}`" if facts.checkpoint.revision else ""
    yield f"- **Source**: {source}{revision} ({facts.license.id})"
    yield f"- **dtype / EP**: `{facts.dtype}` / `{facts.target.provider}`"
    yield f"- **Built by**: cabochon {__version__} with onnx_ir {installed('onnx_ir')}"


def largest_tensor(facts: Facts[Any]) -> str | None:
    """What an adapter must grant beyond what every one does."""
    binding = facts.target.binding
    values = (value for model in facts.models.values() for value in model.graph.initializers.values())
    tensors = (value.const_value for value in values)
    largest = max(tensor.nbytes for tensor in tensors if tensor is not None)
    if binding is None or largest <= binding:
        return None
    return (
        f"The largest tensor has {largest:,} bytes; an adapter need not bind more than {binding:,}. Ask for the limits "
        "`maxBufferSize` and `maxStorageBufferBindingSize`, and expect adapters that refuse."
    )


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A table with as many columns as its head."""
    cells = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells)


def bullets(lines: Iterable[str]) -> str:
    """A list."""
    return "\n".join(f"- {line}" for line in lines)
