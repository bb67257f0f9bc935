"""Recipes in files: what is read, what is written again, and what is refused with the place and the remedy."""

import json
import re
from pathlib import Path

import pytest

import cabochon
from cabochon.checkpoint import Tensor
from cabochon.dialects import TARGETS, Target
from cabochon.errors import ConfigError, TargetError
from cabochon.planning.offers import offers
from cabochon.planning.opened import open_config
from cabochon.recipes import PRECISIONS, Rule
from cabochon.recipes.recipe_file import (
    addresses,
    find_precision,
    open_recipe,
    read_recipe,
    require_applicable,
    written,
)

DOCS = (Path(__file__).parents[1] / "docs" / "recipes.md").read_text("utf-8")
TINY = Path(__file__).parent / "data" / "tiny"
MINE = """
name = "mine"
activations = "f16"

[[rules]]
weights = "*"
method = "k-quant"
bits = 4
block = 32

[[rules]]
weights = "decoder/mlp.down_proj"
method = "round"
bits = 8
block = 64
symmetric = false

[[rules]]
weights = "*_encoder/*"
method = "float"
"""


def tensors(*names: str, shape: tuple[int, ...] = (4, 8)) -> dict[str, Tensor]:
    return {name: Tensor(name, "BF16", shape, Path(), 0, 0) for name in names}


TENSORS = {
    **tensors(
        "model.embed_tokens.weight",
        "model.layers.0.mlp.down_proj.weight",
        "model.layers.1.mlp.up_proj.weight",
    ),
    **tensors("model.norm.weight", shape=(8,)),
}


def recipe(tmp_path: Path, text: str) -> Path:
    (tmp_path / "mine.toml").write_text(text, "utf-8")
    return tmp_path / "mine.toml"


def test_a_file_is_read_and_written_again(tmp_path: Path) -> None:
    found = find_precision(str(recipe(tmp_path, MINE)))
    assert (found.name, found.activations, found.quantized) == ("mine", "f16", True)
    assert found.rules == (
        Rule("*", "k-quant", 4, 32, None),
        Rule("decoder/mlp.down_proj", "round", 8, 64, False),
        Rule("*_encoder/*"),
    )
    again = {"name": "mine", "activations": "f16", "rules": written(found.rules)}
    assert read_recipe(json.loads(json.dumps(again)), "provenance.json") == found
    assert written(found.rules)[2] == {"weights": "*_encoder/*", "method": "float"}


@pytest.mark.parametrize("name", [name for name, one in PRECISIONS.items() if one.quantized])
@pytest.mark.parametrize("target", TARGETS)
def test_what_a_build_records_is_read_back(name: str, target: str) -> None:
    """Of what is stored: nf4 has no zero points to speak of."""
    known = PRECISIONS[name].on(TARGETS[target].storage)
    found = read_recipe(
        {"name": name, "activations": known.activations, "rules": written(known.rules)}, "here"
    )
    assert (found.name, found.activations) == (name, known.activations)
    for read, rule in zip(found.rules, known.rules, strict=True):
        assert (read.weights, read.method, read.bits, read.block) == (
            rule.weights,
            rule.method,
            rule.bits,
            rule.block,
        )
        assert read.symmetric == rule.symmetric or rule.method == "nf4"


@pytest.mark.parametrize("name", PRECISIONS)
def test_names_of_the_table(name: str) -> None:
    assert find_precision(name) is PRECISIONS[name]


def test_activations_are_the_targets_where_a_file_says_nothing(tmp_path: Path) -> None:
    found = open_recipe(recipe(tmp_path, MINE.replace('activations = "f16"', "")))
    for target in TARGETS.values():
        known = found.on(target.storage)
        assert known.activations == target.storage.activations
        assert known.rules[0].symmetric is target.storage.symmetric
        assert known.rules[1].symmetric is False


# (what is replaced, by what, the key the error is at, what it says)
REFUSED = [
    ('name = "mine"', "", "name", "is missing; expected a name"),
    ('name = "mine"', "name = 4", "name", "is 4; expected a name"),
    ('name = "mine"', 'name = "../mine"', "name", "'../mine'; expected up to 64 letters"),
    (
        'name = "mine"',
        'name = "q4_k_m"',
        "name",
        "is 'q4_k_m'; expected a name that cabochon's own table has not",
    ),
    ('"f16"', '"bf16"', "activations", "is 'bf16'; expected 'f16' or 'f32'"),
    ('name = "mine"', 'name = "mine"\nrule = 1', "", "unknown key 'rule' (did you mean 'rules'?)"),
    (MINE[MINE.index("[[rules]]") :], "", "rules", "is missing; expected [[rules]], one or more"),
    (MINE[MINE.index("[[rules]]") :], "rules = []", "rules", "is []; expected [[rules]], one or more"),
    (MINE[MINE.index("[[rules]]") :], "rules = [1]", "rules", "is [1]; expected [[rules]], one or more"),
    (
        MINE[MINE.index("[[rules]]") :],
        '[[rules]]\nweights="*"\nmethod="float"',
        "rules",
        "every weight floating",
    ),
    ('weights = "*"', "", "rules[0]: weights", "is missing; expected a pattern"),
    ('weights = "*"', 'weights = "mlp.*"', "rules[0]: weights", "expected component/role"),
    ('weights = "*"', 'weights = "decoder/"', "rules[0]: weights", "expected component/role"),
    ('weights = "*"', 'weights = "decoder/[a]"', "rules[0]: weights", "expected component/role"),
    ('weights = "*"', 'weights = "a/b/c"', "rules[0]: weights", "expected component/role"),
    (
        'weights = "*"',
        'weights = "decoders/*"',
        "rules[0]: weights",
        "(did you mean 'decoder'?); expected decoder, dr",
    ),
    (
        'method = "k-quant"',
        "",
        "rules[0]: method",
        "is missing; expected 'k-quant' or 'round' or 'nf4' or 'float'",
    ),
    ('method = "k-quant"', 'method = "awq"', "rules[0]: method", "is 'awq'; expected 'k-quant'"),
    ("bits = 4", "bits = 3", "rules[0]: bits", "is 3; expected 4 or 8"),
    ("bits = 4", "bits = 4.0", "rules[0]: bits", "is 4.0; expected 4 or 8"),
    ("bits = 4", "bits = true", "rules[0]: bits", "is True; expected 4 or 8"),
    ("bits = 4", "", "rules[0]: bits", "is missing; expected 4 or 8"),
    ("block = 32", "block = 48", "rules[0]: block", "is 48; expected 16 or 32 or 64 or 128"),
    ("block = 64", 'block = "64"', "rules[1]: block", "is '64'; expected 16"),
    ("symmetric = false", "symmetric = 0", "rules[1]: symmetric", "is 0; expected true or false"),
    ("block = 64", "block = 64\ngroup = 1", "rules[1]", "unknown key 'group'"),
    ('method = "float"', 'method = "float"\nbits = 4', "rules[2]", "unknown key 'bits'"),
    (
        'method = "round"\nbits = 8',
        'method = "nf4"\nbits = 8',
        "rules[1]: bits",
        "is 8; expected 4: nf4 is a table",
    ),
    (
        'method = "round"\nbits = 8',
        'method = "nf4"\nbits = 4',
        "rules[1]: symmetric",
        "is False; expected true, or",
    ),
    ("[[rules]]", "[rules", "", "is not TOML"),
    ('name = "mine"', 'name = "mine"\nname = "yours"', "", "is not TOML"),
]


@pytest.mark.parametrize(("old", "new", "key", "said"), REFUSED)
def test_what_is_not_understood_is_refused(old: str, new: str, key: str, said: str, tmp_path: Path) -> None:
    assert old in MINE
    path = recipe(tmp_path, MINE.replace(old, new, 1))
    with pytest.raises(ConfigError) as caught:
        open_recipe(path)
    assert caught.value.at == (f"{path}: {key}" if key else str(path))
    assert said in caught.value.message
    assert caught.value.remedy


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        find_precision(tmp_path / "none.toml")
    (tmp_path / "odd.toml").write_bytes(b'name = "\xff"')
    with pytest.raises(ConfigError, match="is not TOML"):
        find_precision(tmp_path / "odd.toml")
    (tmp_path / "deep.toml").write_text("rules = " + "[" * 5000)
    with pytest.raises(ConfigError, match="is not TOML"):
        find_precision(tmp_path / "deep.toml")


def test_a_name_that_is_neither() -> None:
    with pytest.raises(
        TargetError, match=re.escape("unknown precision 'q4'; expected one of f32, f16")
    ) as caught:
        find_precision("q4")
    assert "the path of a .toml file" in caught.value.message


def test_addresses_are_those_of_matrices() -> None:
    found = ["decoder/embed_tokens", "decoder/lm_head", "decoder/mlp.down_proj", "decoder/mlp.up_proj"]
    assert addresses(TENSORS, "decoder") == found


def test_a_pattern_that_fits_nothing_is_refused_with_what_there_is(tmp_path: Path) -> None:
    found = open_recipe(recipe(tmp_path, MINE.replace("decoder/mlp.down_proj", "decoder/mlp.down_project")))
    with pytest.raises(ConfigError) as caught:
        require_applicable(found, TENSORS, "decoder")
    assert caught.value.at == f"{tmp_path / 'mine.toml'}: rules[1]: weights"
    assert "fits no weight (did you mean 'decoder/mlp.down_proj'?)" in caught.value.message
    assert (
        "decoder/embed_tokens, decoder/lm_head, decoder/mlp.down_proj, decoder/mlp.up_proj"
        in caught.value.message
    )


def test_rules_of_what_is_not_built_are_let_be(tmp_path: Path) -> None:
    found = open_recipe(recipe(tmp_path, MINE))
    require_applicable(found, TENSORS, "decoder")  # "*_encoder/*"
    require_applicable(found, TENSORS, "drafter")  # "decoder/mlp.down_proj"
    require_applicable(PRECISIONS["Q4_K_M-mixed"], {}, "decoder")


def test_no_table_is_stored_in_nf4(tmp_path: Path) -> None:
    nf4 = '[[rules]]\nweights = "*"\nmethod = "nf4"\nbits = 4\nblock = 64\n'
    found = open_recipe(recipe(tmp_path, 'name = "mine"\n' + nf4))
    with pytest.raises(ConfigError, match="'nf4' for decoder/embed_tokens") as caught:
        require_applicable(found, TENSORS, "decoder")
    assert caught.value.at == f"{tmp_path / 'mine.toml'}: rules[0]: method"
    float_tables = '[[rules]]\nweights = "*/embed_tokens*"\nmethod = "float"\n'
    found = open_recipe(recipe(tmp_path, 'name = "mine"\n' + nf4 + float_tables))
    require_applicable(found, TENSORS, "decoder")


# docs/recipes.md


def test_the_recipe_of_the_docs_is_built(tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", DOCS, re.DOTALL)
    path = recipe(tmp_path, example)
    built = cabochon.build(TINY / "text", tmp_path / "out", precision=path, license="apache-2.0")
    assert built.precision == "mine"
    said = json.loads((built.path / "provenance.json").read_text())["build"]
    asked = open_recipe(path).on(TARGETS["default"].storage)
    assert (said["precision"], said["dtype"]) == ("mine", "float16")
    assert said["recipe"] == written(asked.rules)
    stored = {f"{row['component']}/{row['role']}": row["precision"] for row in said["stored"]["weights"]}
    assert stored["decoder/mlp.down_proj"] == "8 bits in blocks of 64, asymmetric, round"
    assert stored["decoder/mlp.up_proj"] == "4 bits in blocks of 32, symmetric, k-quant"
    assert stored["decoder/embed_tokens"] == stored["decoder/input_layernorm"] == "f16"
    assert stored["decoder/lm_head"] == "4 bits in blocks of 32, symmetric, k-quant"
    again = {"name": said["precision"], "activations": "f16", "rules": said["recipe"]}
    assert read_recipe(again, "provenance.json").rules == asked.rules


def test_a_recipe_that_fits_nothing_builds_nothing(tmp_path: Path) -> None:
    path = recipe(tmp_path, MINE.replace("decoder/mlp.down_proj", "decoder/mlp.down"))
    with pytest.raises(ConfigError, match="fits no weight"):
        cabochon.build(TINY / "text", tmp_path / "out", precision=path)
    assert not (tmp_path / "out").exists()


def test_the_docs_have_the_table_of_what_is_shipped() -> None:
    lines = list[str]()
    for precision in filter(lambda one: one.quantized, PRECISIONS.values()):
        for i, rule in enumerate(precision.rules):
            lines.append(f"| {'' if i else f'`{precision.name}` '}| `{rule.weights}` | {in_words(rule)} |")
    assert "\n".join(lines) in DOCS


def in_words(rule: Rule) -> str:
    if not rule.method:
        return "float"
    points = {None: ", zero points by target", True: ", symmetric", False: ", asymmetric"}[rule.symmetric]
    said = f"{rule.bits} bits in blocks of {rule.block}, {rule.method}"
    return said if rule.method == "nf4" else said + points


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_the_docs_say_what_targets_have(target: Target) -> None:
    storage = target.storage
    way = "[in, out], for D" if storage.across else "[out, in], for M"
    line = f"| `{target.name}` | {storage.activations} | {'no' if storage.symmetric else 'yes'} | {way}"
    assert line in DOCS


def test_the_docs_have_every_address() -> None:
    found = dict[str, set[str]]()
    for name in ("e2b", "12b", "26b-a4b", "e2b-assistant", "31b-assistant"):
        config = open_config(Path(__file__).parent / "data" / "geometries" / f"{name}.json")
        for offer in offers(config):
            for one in addresses(offer.tensors, offer.kind.component):
                component, _, role = one.partition("/")
                found.setdefault(component, set()).add(role)
    for component, roles in found.items():
        assert f"| `{component}` | {' '.join(f'`{role}`' for role in sorted(roles))} |" in DOCS
