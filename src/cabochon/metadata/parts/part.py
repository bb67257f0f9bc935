"""What every part of the document has in common: strict, frozen, and nothing in it that is not known."""

from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict

__all__ = [
    "ALWAYS",
    "DTYPES",
    "READING",
    "Axis",
    "Count",
    "Dtype",
    "Filled",
    "Names",
    "Open",
    "Part",
    "Positive",
    "Scalar",
    "Text",
    "Token",
    "Tuple",
    "empty",
]

Item = TypeVar("Item")
_INT64 = 2**63 - 1
ALWAYS = frozenset({"kind", "version"})  # fields that are written even where they have their default
READING = "a document that is read"  # the context of a validation in which nothing is filled in


class Part(BaseModel):
    """A mapping of the document. Field names are the keys of the specification; unknown keys are refused."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, populate_by_name=True, allow_inf_nan=False
    )


def empty() -> Any:
    """The default of a mapping of the document: one of its own for each part."""
    return Field(default_factory=dict)


class Open(Part):
    """A mapping to which the specification lets others add keys of their own."""

    model_config = ConfigDict(extra="allow")


DTYPES = {
    "bool": "bool",
    "float16": "float16",
    "fp16": "float16",
    "float32": "float32",
    "fp32": "float32",
    "bfloat16": "bfloat16",
    "bf16": "bfloat16",
    **dict.fromkeys(("float8_e4m3fn", "fp8_e4m3fn", "float8_e4m3", "fp8_e4m3"), "float8_e4m3fn"),
    **dict.fromkeys(("float8_e5m2", "fp8_e5m2"), "float8_e5m2"),
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}  # what a contract may say -> numpy's name of the element type


def _element_type(name: str) -> str:
    if name not in DTYPES:
        raise ValueError(f"one of {', '.join(sorted(DTYPES))}")
    return name


def _name_all(schema: dict[str, Any]) -> None:
    schema["enum"] = sorted(DTYPES)


def _unique(names: tuple[Any, ...]) -> tuple[Any, ...]:
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"every name once; {twice!r} is there twice")
    return names


Tuple = Annotated[tuple[Item, ...], Strict(False)]  # a list in YAML and JSON
Filled = Annotated[tuple[Item, ...], Strict(False), Field(min_length=1)]
Text = Annotated[str, Field(min_length=1)]
Names = Annotated[tuple[str, ...], Strict(False), AfterValidator(_unique)]  # a set, in the order written
Dtype = Annotated[str, AfterValidator(_element_type), Field(json_schema_extra=_name_all)]
Count = Annotated[int, Field(ge=0, le=_INT64)]
Positive = Annotated[int, Field(ge=1, le=_INT64)]
Token = Annotated[int, Field(ge=0, le=2**32 - 1)]  # the id of a token
Axis = Count
Scalar = bool | int | float | str
