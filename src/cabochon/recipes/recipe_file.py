"""Recipes as they are written: by users in TOML files, by builds in provenance.json. The form is in docs/recipes.md."""

import re
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from cabochon.checkpoint import Tensor
from cabochon.errors import ConfigError, TargetError
from cabochon.packing.scheme import BLOCKS
from cabochon.recipes.addresses import address
from cabochon.recipes.precision import PRECISIONS, Precision, Rule
from cabochon.section import Section

__all__ = ["addresses", "find_precision", "open_recipe", "read_recipe", "require_applicable", "written"]

COMPONENTS = ("decoder", "drafter", "vision_encoder", "audio_encoder")
FLOAT = "float"  # the method of a rule whose weights stay floating
METHODS = ("k-quant", "round", "nf4", FLOAT)
BITS = (4, 8)
ACTIVATIONS = ("f16", "f32")
_LOOKED_UP = ("*/embed_tokens*", "*/experts.*")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")


@dataclass(frozen=True)
class _Read(Precision):
    """A precision that was read `at` a place, which errors about its rules name."""

    at: str = field(default="", compare=False)


def find_precision(said: str | Path) -> Precision:
    """The row of the table that is called `said`, or the recipe in the TOML file of this path.

    Raises TargetError for a name that is neither, ConfigError for a file that is not understood.
    """
    name = str(said)
    if name in PRECISIONS:
        return PRECISIONS[name]
    if name.lower().endswith(".toml"):
        return open_recipe(said)
    raise TargetError(
        f"unknown precision {name!r}; expected one of {', '.join(PRECISIONS)}, or the path of a .toml file",
        remedy="`cabochon list precisions` says what each of them stores",
    )


def open_recipe(path: str | Path) -> Precision:
    """The recipe in a TOML file, whose name is none of the table's.

    Raises ConfigError with the file and the key for everything that is not understood.
    """
    at = str(path)
    try:
        values = tomllib.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise ConfigError(
            f"cannot be read: {error.strerror}; expected a recipe", at=at, remedy="check the path"
        ) from None
    except (ValueError, RecursionError) as error:  # not UTF-8, not TOML, or nested too deeply
        raise ConfigError(
            f"is not TOML: {error}", at=at, remedy="see the example in docs/recipes.md"
        ) from None
    recipe = read_recipe(values, at)
    if taken := [name for name in PRECISIONS if name.lower() == recipe.name.lower()]:
        raise ConfigError(
            f"is {recipe.name!r}; expected a name that cabochon's own table has not: {', '.join(PRECISIONS)}",
            at=f"{at}: name",
            remedy=f"call it otherwise, or build with --precision {taken[0]}",
        )
    return recipe


def read_recipe(values: Mapping[str, Any], at: str) -> Precision:
    """The recipe {"name", "activations", "rules"} found `at` a place, as `written` writes its rules.

    Raises ConfigError for unknown keys and for every value that is not understood.
    """
    recipe = Section(values, at)
    recipe.refuse_unknown(("name", "activations", "rules"))
    activations = _one_of(recipe, "activations", ACTIVATIONS) if "activations" in recipe else ""
    precision = _Read(_name(recipe), activations, tuple(map(_rule, _rules(recipe))), at=at)
    if not precision.quantized:
        raise recipe.error(
            "rules",
            f"leave every weight floating; expected one with a method other than {FLOAT!r}",
            "build with --precision f16 or f32",
        )
    return precision


def written(rules: Iterable[Rule]) -> list[dict[str, Any]]:
    """The rules as `read_recipe` reads them. What is left to the target is left out."""
    return [_object(rule) for rule in rules]


def addresses(tensors: Mapping[str, Tensor], component: str) -> list[str]:
    """Those of the weights that can be stored in blocks, of a model that is one `component` beside its towers.

    `tensors` by canonical name. A head is among them, tied or not.
    """
    found = {
        address(name, component) for name, t in tensors.items() if len(t.shape) == 2 and t.dtype != "I64"
    }
    return sorted(found | {f"{component}/lm_head"})


def require_applicable(precision: Precision, tensors: Mapping[str, Tensor], component: str) -> None:
    """Every rule of a user's recipe that speaks of what is built must fit a weight of it, and no table may be in nf4.

    `tensors` and `component` as for `addresses`. Rules of components that are not built are let be. Raises ConfigError.
    """
    if precision.name in PRECISIONS:
        return
    at = precision.at if isinstance(precision, _Read) else f"recipe {precision.name}"
    known = addresses(tensors, component)
    built = {one.partition("/")[0] for one in known}
    for i, rule in enumerate(precision.rules):
        spoken_of = any(fnmatchcase(name, rule.weights.partition("/")[0]) for name in built)
        if spoken_of and not any(fnmatchcase(one, rule.weights) for one in known):
            raise ConfigError(
                f"{rule.weights!r} fits no weight{_meant(rule.weights, known)}; "
                f"those that can be stored in blocks are {', '.join(known)}",
                at=f"{at}: rules[{i}]: weights",
                remedy="correct the pattern, or leave the rule out",
            )
    for table, pattern in ((one, each) for each in _LOOKED_UP for one in known if fnmatchcase(one, each)):
        fitting = [i for i, rule in enumerate(precision.rules) if fnmatchcase(table, rule.weights)]
        if fitting and precision.rules[fitting[-1]].method == "nf4":
            raise ConfigError(
                f"is 'nf4' for {table}; expected 'k-quant', 'round' or {FLOAT!r}: no operator looks up rows in nf4",
                at=f"{at}: rules[{fitting[-1]}]: method",
                remedy=f"add [[rules]] behind it, with weights = {pattern!r} and another method",
            )


def _object(rule: Rule) -> dict[str, Any]:
    if not rule.method:
        return {"weights": rule.weights, "method": FLOAT}
    said = {"weights": rule.weights, "method": rule.method, "bits": rule.bits, "block": rule.block}
    return said if rule.symmetric is None or rule.method == "nf4" else {**said, "symmetric": rule.symmetric}


def _name(recipe: Section) -> str:
    name = _text(recipe, "name", "a name, such as 'mine'")
    if not _NAME.fullmatch(name):
        raise recipe.error(
            "name",
            f"is {name!r:.100}; expected up to 64 letters, digits and . _ + -, a letter or digit first",
            "it becomes a word of model cards and of properties of graphs",
        )
    return name


def _rules(recipe: Section) -> list[Section]:
    rules = recipe.values.get("rules")
    if not isinstance(rules, list) or not rules or not all(isinstance(rule, Mapping) for rule in rules):
        found = "is missing" if rules is None else f"is {rules!r:.100}"
        raise recipe.error("rules", f"{found}; expected [[rules]], one or more", "see docs/recipes.md")
    return [Section(rule, f"{recipe.at}: rules[{i}]") for i, rule in enumerate(rules)]


def _rule(rule: Section) -> Rule:
    """One rule; what floats has no other keys."""
    weights, method = _pattern(rule), _one_of(rule, "method", METHODS)
    if method == FLOAT:
        rule.refuse_unknown(("weights", "method"))
        return Rule(weights)
    rule.refuse_unknown(("weights", "method", "bits", "block", "symmetric"))
    bits, block = _one_of(rule, "bits", BITS), _one_of(rule, "block", BLOCKS)
    symmetric = _one_of(rule, "symmetric", (True, False)) if "symmetric" in rule else None
    if method == "nf4" and (bits != 4 or symmetric is False):
        key, found = ("bits", bits) if bits != 4 else ("symmetric", False)
        raise rule.error(
            key,
            f"is {found!r}; expected {'4' if bits != 4 else 'true, or nothing'}: nf4 is a table of 16 numbers around 0",
            "choose the method k-quant or round for other forms",
        )
    return Rule(weights, method, bits, block, symmetric)


def _pattern(rule: Section) -> str:
    """ "*", or component/role, of which the component is one there is."""
    pattern = _text(rule, "weights", "a pattern, such as 'decoder/mlp.*'")
    component, slash, role = pattern.partition("/")
    if (
        not re.fullmatch(r"[\w.*?]+", component + role)
        or (slash and not role)
        or (not slash and pattern != "*")
    ):
        raise rule.error(
            "weights",
            f"is {pattern!r:.100}; expected component/role, in which * and ? stand for any letters, or '*' alone",
            "see the roles in docs/recipes.md",
        )
    if not any(fnmatchcase(name, component) for name in COMPONENTS):
        raise rule.error(
            "weights",
            f"is {pattern!r:.100}, of a component {component!r} that no model has{_meant(component, COMPONENTS)}; "
            f"expected {', '.join(COMPONENTS)}, or a pattern that fits one of them",
            "see the roles in docs/recipes.md",
        )
    return pattern


def _text(section: Section, key: str, expected: str) -> str:
    value = section.values.get(key)
    if not isinstance(value, str):
        found = "is missing" if value is None else f"is {value!r:.100}"
        raise section.error(key, f"{found}; expected {expected}", "see docs/recipes.md")
    return value


def _one_of(section: Section, key: str, allowed: Collection[Any]) -> Any:
    value = section.values.get(key)
    if not any(type(value) is type(one) and value == one for one in allowed):
        found = "is missing" if value is None else f"is {value!r:.100}"
        expected = " or ".join(str(one).lower() if type(one) is bool else repr(one) for one in allowed)
        raise section.error(key, f"{found}; expected {expected}", "see docs/recipes.md")
    return value


def _meant(said: str, known: Collection[str]) -> str:
    close = get_close_matches(said, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
