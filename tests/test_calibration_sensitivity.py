"""Roles in blocks, one at a time: the same as a package whose weights of that role are what the blocks hold."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest

import cabochon
from cabochon.calibration import Sensitivity, sensitivity
from cabochon.calibration.roles import groups
from cabochon.calibration.session import read_graph
from cabochon.checkpoint import open_checkpoint
from cabochon.dialects import TARGETS
from cabochon.errors import RequestError
from cabochon.gemma4 import read_text_config, text_tensors, text_weights
from cabochon.packing import Scheme, pack, unpack
from cabochon.recipes import PRECISIONS, Part, Precision, Rule
from cabochon.recipes.addresses import address
from cabochon.runtime.folder import open_folder
from packages import TINY, Packages
from test_cli import call

HEAD = ("decoder/embed_tokens", "decoder/lm_head")
FOUR = {"method": "k-quant", "bits": 4, "block": 32}
ROLES = {
    *("mlp.down_proj", "mlp.gate_proj", "mlp.up_proj"),
    *(f"self_attn.{part}_proj" for part in "qkvo"),
    *("per_layer_input_gate", "per_layer_projection", "per_layer_model_projection", "embed_tokens_per_layer"),
}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "words.txt"
    path.write_text("In the beginning was the Word, and the Word was with God. " * 4)
    return path


def recipe(folder: Path, *rules: dict[str, object]) -> Path:
    path = folder / "mine.toml"
    said = ["\n".join(f"{key} = {json.dumps(value)}" for key, value in rule.items()) for rule in rules]
    path.write_text("\n[[rules]]\n".join(['name = "mine"', *said]))
    return path


@pytest.fixture(scope="module")
def found(packages: Packages, text: Path) -> Sensitivity:
    some = [{"weights": f"decoder/{role}", **FOUR} for role in ("embed*", "lm_head", "*.q_proj")]
    return sensitivity(packages(), text, precision=recipe(text.parent, *some), threads=1)


def test_every_role_that_goes_into_blocks(packages: Packages) -> None:
    folder = open_folder(packages())
    known = groups(read_graph(folder).graph, folder, PRECISIONS["Q4_K_M"])
    assert {group.addresses for group in known} == {HEAD, *((f"decoder/{role}",) for role in ROLES)}
    assert {len(group.tensors) for group in known} == {1, 6, 10}  # owners of keys and values are 6


def test_a_tied_head_that_is_stored_otherwise_is_measured_apart(packages: Packages, text: Path) -> None:
    one = sensitivity(
        packages(), text, precision=recipe(text.parent, {"weights": "*/lm_head", **FOUR}), threads=1
    )
    assert [role.addresses for role in one.roles] == [("decoder/lm_head",)]
    assert one.roles[0].divergence > 0
    folder = open_folder(packages())
    known = groups(read_graph(folder).graph, folder, PRECISIONS["Q4_K_M-uniform"])
    assert ("decoder/lm_head",) in {group.addresses for group in known}
    assert not [group for group in known if "embed_tokens" in group.addresses[0]]


def test_experts_are_roles(packages: Packages, text: Path) -> None:
    """Whichever of them a token asks for, they are in blocks."""
    folder = open_folder(packages("moe"))
    known = {
        group.addresses: group for group in groups(read_graph(folder).graph, folder, PRECISIONS["Q4_K_M"])
    }
    for role in ("experts.gate_up_proj", "experts.down_proj"):
        group = known[f"decoder/{role}",]
        assert len(group.tensors) == 6 and not group.scattered
    rules = {"weights": "decoder/experts.*", **FOUR}
    found = sensitivity(packages("moe"), text, precision=recipe(text.parent, rules), threads=1)
    assert len(found.roles) == 2 and all(role.divergence > role.divergence_error > 0 for role in found.roles)


def test_the_worst_comes_first(found: Sensitivity) -> None:
    harms = [role.harm for role in found.roles]
    assert len(harms) == 3
    assert harms == sorted(harms, reverse=True) and harms[1] > 0
    for role in found.roles[:2]:
        assert 0 < role.divergence_error < role.divergence and 0 < role.agreement < 1
        assert role.harm == pytest.approx(role.divergence / role.more * 1e6)


@pytest.mark.parametrize("bits", [4, 8])
def test_bytes_are_those_that_a_package_stores(packages: Packages, bits: int) -> None:
    checkpoint, target = open_checkpoint(TINY / "text"), TARGETS["default"]
    config = read_text_config(checkpoint.config)
    tensors = text_tensors(checkpoint.tensors, config).used
    four, stored = (Precision("plain", "", (Rule("*", "k-quant", each, 32),)) for each in (4, bits))
    precision = stored.on(target.storage)
    nbytes = dict[str, int]()
    for part in text_weights(config, tensors, target, precision):
        if isinstance(part, Part):
            name = re.sub("weight_(scales|zero_points)$", "weight", part.name)
            nbytes[address(name, "decoder")] = nbytes.get(address(name, "decoder"), 0) + part.nbytes
    folder = open_folder(packages())
    known = groups(read_graph(folder).graph, folder, four)
    assert nbytes == {g.addresses[0]: g.nbytes + (g.more if bits == 8 else 0) for g in known}


@pytest.mark.parametrize("at", ["decoder/embed_tokens", "decoder/self_attn.q_proj"])
def test_figures_are_those_of_a_package_with_these_weights(
    packages: Packages, found: Sensitivity, text: Path, tmp_path: Path, at: str
) -> None:
    role = next(role for role in found.roles if role.addresses[0] == at)
    other = shutil.copytree(packages(), tmp_path / "other")
    graph = onnx.load(other / "model.onnx", load_external_data=False).graph
    scales = PRECISIONS["Q4_K_M"].on(TARGETS["default"].storage).activations
    for weight in graph.initializer:
        if address(weight.name, "decoder") == at:
            place = {entry.key: entry.value for entry in weight.external_data}
            shape, offset = tuple(weight.dims), int(place.get("offset", 0))
            values = np.memmap(other / place["location"], np.float32, "r+", offset, shape)
            scheme = Scheme("k-quant", 4, 32, True, scales)
            values[:] = unpack(pack(values, scheme), scheme, shape[1])
            values.flush()
    same = cabochon.evaluate(other, text, against=packages(), threads=1)
    assert same.divergence is not None and same.against is not None
    assert role.loss == pytest.approx(same.package.loss, rel=1e-6)
    assert found.loss == pytest.approx(same.against.loss, rel=1e-6)
    assert role.divergence == pytest.approx(same.divergence.mean, rel=1e-3)


def test_statistics_change_the_search(packages: Packages, text: Path, tmp_path: Path) -> None:
    """But not that of a table whose rows are looked up."""
    said = recipe(tmp_path, *({"weights": f"decoder/{role}", **FOUR} for role in ("*_layer", "*o_proj")))
    told = list[tuple[int, int]]()
    plain, calibrated = (
        sensitivity(packages(), text, precision=said, threads=1, calibrate=other, progress=progress)
        for other, progress in ((None, lambda *each: None), (text, lambda *each: told.append(each)))
    )
    before, after = ({r.addresses[0]: r.divergence for r in one.roles} for one in (plain, calibrated))
    assert before["decoder/embed_tokens_per_layer"] == after["decoder/embed_tokens_per_layer"]
    assert before["decoder/self_attn.o_proj"] != after["decoder/self_attn.o_proj"]
    assert calibrated.calibrated and told == [(1, 3), (2, 3), (3, 3)]


def test_the_command(packages: Packages, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    said = recipe(
        tmp_path,
        {"weights": "decoder/mlp.up_proj", "method": "round", "bits": 8, "block": 32},
        {"weights": "decoder/self_attn.q_proj", "method": "nf4", "bits": 4, "block": 64, "symmetric": True},
    )
    command = ("sensitivity", packages(), "--text", text, "--precision", said, "--threads", "1")
    roles = {role["weights"][0]: role for role in json.loads(call(*command, "--json").stdout)["roles"]}
    q, up = (roles[f"decoder/{name}"] for name in ("self_attn.q_proj", "mlp.up_proj"))
    assert (up["bits"], up["bytes_more_at_8_bits"], up["kl_per_megabyte"]) == (8, 0, 0)
    assert q["stored"] == "NF4 in blocks of 64" and q["bytes_more_at_8_bits"] > 0
    first, _, head, *rows = call(*command).stdout.splitlines()
    assert re.match(r"words\.txt: [1-9]\d* tokens in windows of 511; f32 has a perplexity of \d", first)
    assert head.startswith("in blocks alone ") and [row.split()[:2] for row in rows] == [
        ["decoder/self_attn.q_proj", "4"],
        ["decoder/mlp.up_proj", "8"],
    ]
    with pytest.raises(RequestError, match="f16 puts no weight into blocks"):
        sensitivity(packages(), text, precision="f16")
