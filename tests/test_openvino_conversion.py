"""Packages converted to OpenVINO compute what the NumPy oracle does, keep every weight, and say what they are."""

import json
import re
import shutil
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
from typer.testing import CliRunner

import cabochon
import quantized
from cabochon import sums
from cabochon.cli.app import app
from cabochon.errors import CabochonError, PackageError, TargetError
from cabochon.openvino import convert, states
from cabochon.parity.dequantized import read_dequantized
from cabochon.runtime.openvino_graph import EXACT
from cabochon.validation import validate
from cabochon.validation.graph import read_graph
from cabochon.validation.net import read_net
from converted import Converted
from drafters import Truth as DrafterTruth
from full_graphs import Truth, padded, picture
from graphs import Oracle, difference
from packages import TINY, Packages

openvino = pytest.importorskip("openvino", reason="openvino is not installed: pip install cabochon[openvino]")

CLOSE = 1e-4
IDS = np.random.default_rng(0).integers(24, 512, 21)
XML = "openvino_model.xml"


@pytest.fixture(scope="session")
def converted(packages: Packages) -> Converted:
    return Converted(packages)


@cache
def compiled(xml: Path) -> Any:
    return openvino.Core().compile_model(xml, "CPU", EXACT)


def run(xml: Path, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs by name; caches that are not fed are empty."""
    model, given = compiled(xml), dict[str, Any](feeds)
    for port in model.inputs:
        if port.any_name.startswith("past_key_values."):
            _, heads, _, size = port.partial_shape
            empty = [1, heads.get_length(), 0, size.get_length()]
            given.setdefault(port.any_name, openvino.Tensor(port.element_type, empty))
    return {port.any_name: value for port, value in model(given).items()}


def decoded(xml: Path, ids: np.ndarray, keep: int = 0) -> np.ndarray:
    feeds = {"input_ids": ids[None], "attention_mask": np.ones((1, len(ids)), np.int64)}
    return run(xml, {**feeds, "logits_to_keep": np.array(keep)})["logits"][0]


@pytest.mark.parametrize("precision", ["f32", "Q4_K_M"])
def test_a_decoder_gives_the_oracles_logits(converted: Converted, packages: Packages, precision: str) -> None:
    package, truth = converted("tiny", precision), Oracle(TINY / "text")
    if precision != "f32":
        source = packages("tiny", "onnx-standard", precision) / "model.onnx"
        truth.weights = quantized.Stand(truth.weights, read_dequantized(source))
    logits, _ = truth.run(IDS)
    assert difference(decoded(package / XML, IDS), logits) < CLOSE
    assert difference(decoded(package / XML, IDS, keep=2), logits[-2:]) < CLOSE


def test_components_give_what_the_oracle_says(converted: Converted) -> None:
    package, truth = converted("tiny-full"), Truth(TINY / "target")
    pixels, places = padded([picture(truth, 6, 3), picture(truth, 3, 9)], 27)
    sound, heard = np.random.default_rng(3).normal(-2, 2, (1, 21, 16)), np.ones((1, 21), bool)
    images, sounds = truth.images(pixels, places), truth.clips(sound.astype(np.float32), heard)
    given: dict[str, np.ndarray] = {"pixel_values": pixels, "pixel_position_ids": places.astype(np.int64)}
    found = run(package / "vision_encoder" / XML, given)["image_features"]
    assert difference(found, images) < CLOSE
    given = {"input_features": sound.astype(np.float32), "input_features_mask": heard}
    assert difference(run(package / "audio_encoder" / XML, given)["audio_features"], sounds) < CLOSE
    ids = np.concatenate([[2, 30], [8] * len(images), [40, 50], [11] * len(sounds), [60]])
    fed = run(
        package / "embedding" / XML,
        {"input_ids": ids[None], "image_features": images, "audio_features": sounds},
    )
    x, extras = truth.embed(ids, images, sounds)
    assert extras is not None
    assert difference(fed["inputs_embeds"][0], x) < CLOSE
    assert difference(fed["per_layer_inputs"][0], extras.reshape(len(x), -1)) < CLOSE
    fed |= {"attention_mask": np.ones_like(ids)[None], "logits_to_keep": np.array(0)}
    logits = run(package / "decoder" / XML, fed)["logits"][0]
    assert difference(logits, truth.logits(ids, images, sounds)) < CLOSE


def test_a_drafter_gives_the_oracles_step(converted: Converted) -> None:
    package, truth = converted("tiny-drafter"), DrafterTruth(TINY / "assistant")
    rng = np.random.default_rng(1)
    shared = truth.keys(rng, 12)
    inputs = rng.standard_normal(2 * truth.backbone).astype(np.float32)
    feeds = {"inputs_embeds": inputs[None, None], "attention_mask": np.ones((1, 12), np.int64)}
    feeds |= {
        f"shared_kv.{kind}.{part}": values
        for kind, pair in shared.items()
        for part, values in zip(("key", "value"), pair, strict=True)
    }
    found, (logits, state) = run(package / XML, feeds), truth.step(inputs, shared)
    assert difference(found["logits"][0, 0], logits) < CLOSE
    assert difference(found["projected_state"][0, 0], state) < CLOSE


def test_weights_in_blocks_stay_in_their_bits(converted: Converted, packages: Packages) -> None:
    """By type as many bytes as the source has; what needs shorter blocks has more scales."""
    source = read_graph(packages("tiny", "onnx-standard", "Q4_K_M").resolve(), "model.onnx")
    names = {name for node in source.nodes for name in node.input}
    own = [w for w in source.initializers.values() if w.external and w.name in names]
    expected = Counter(w.dtype for w in own)
    net = read_net(converted("tiny", "Q4_K_M"), XML)
    stored = {constant.layer: constant for constant in net.constants}
    spelled = {"u4": "uint4", "i8": "int8", "u8": "uint8", "f32": "float32", "f16": "float16"}
    kept = [w for w in own if w.name in stored]
    assert {w.name.rpartition(".")[2] for w in own if w not in kept} == {"weight_scales"}  # of 8 columns
    assert {w.name: (spelled[stored[w.name].dtype], stored[w.name].nbytes) for w in kept} == {
        w.name: (w.dtype, w.nbytes) for w in kept
    }
    assert expected["uint4"] == sum(c.dtype == "u4" for c in net.constants) == 104


def test_a_weight_that_is_stored_otherwise_is_refused(
    packages: Packages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = openvino.save_model
    monkeypatch.setattr(
        openvino, "save_model", lambda model, xml, **_: save(model, xml, compress_to_fp16=True)
    )
    with pytest.raises(PackageError, match=r"is stored as None; the graph has \('f32'") as caught:
        convert(packages("tiny-drafter", "onnx-standard"), tmp_path / "out")
    assert caught.value.at.startswith(f"{XML}: ")

    def spoilt(model: Any, xml: Path, **said: Any) -> None:
        save(model, xml, **said)
        data = bytearray(xml.with_suffix(".bin").read_bytes())
        data[len(data) // 2] ^= 1
        xml.with_suffix(".bin").write_bytes(data)

    monkeypatch.setattr(openvino, "save_model", spoilt)
    with pytest.raises(PackageError, match="has other bytes than in the graph"):
        convert(packages("tiny-drafter", "onnx-standard"), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_ports_and_properties(converted: Converted) -> None:
    net = read_net(converted("tiny", "Q4_K_M"), XML)
    kept = net.ports.inputs["logits_to_keep"]
    assert (kept.dtype, kept.shape) == ("int64", ())
    assert net.ports.inputs["past_key_values.4.key"].shape == ("batch", 1, "past_sequence", 32)
    assert net.ports.outputs["present.0.value"].shape == ("batch", 1, "sliding_present_sequence", 16)
    said = {key.removeprefix("cabochon."): value for key, value in net.properties.items()}
    assert said.pop("axes").splitlines()[0] == "input_ids: batch,sequence"
    assert said == {
        "target": "openvino-ir",
        "precision": "Q4_K_M",
        "activations": "f32",
        "mask": "anywhere",
        "sliding_window": "8",
        "max_positions": "4096",
        "embed_scale": "8.0",
    }


def test_states(converted: Converted) -> None:
    package = converted("tiny", "f32", stateful=True)
    net = read_net(package, XML)
    assert list(net.ports.inputs) == ["input_ids", "attention_mask", "logits_to_keep"]
    assert list(net.ports.outputs) == ["logits", "hidden_states.9"]
    assert net.ports.inputs["input_ids"].shape == (1, "sequence")
    assert net.properties["cabochon.stateful"] == "true"
    variables = openvino.Core().read_model(package / XML).get_variables()
    assert "past_key_values.0.keypresent.0.key" in {each.info.variable_id for each in variables}


def test_states_that_are_lost_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The logits of the last token are others where what came before is forgotten."""
    said = iter(np.eye(3, dtype=np.float32))
    monkeypatch.setattr(states, "_last", lambda *_: next(said))
    monkeypatch.setattr(states, "library", lambda: MagicMock())
    with pytest.raises(PackageError, match="a token after two others gives logits that are 1 "):
        states.require_steps(Path("model.xml"))


def test_f16_has_f16_ports(converted: Converted) -> None:
    net = read_net(converted("tiny-drafter", "f16"), XML)
    assert {port.dtype for port in (*net.ports.inputs.values(), *net.ports.outputs.values())} == {
        "int64",
        "float16",
    }
    assert "f32" not in {c.dtype for c in net.constants if c.nbytes > 64}


def test_bf16_has_bf16_ports(converted: Converted) -> None:
    net = read_net(converted("tiny-drafter", "bf16"), XML)
    assert {port.dtype for port in net.ports.outputs.values()} == {"bfloat16"}
    assert {c.dtype for c in net.constants if c.nbytes > 64 and "i" not in c.dtype} == {"bf16"}


def test_a_package_is_whole(converted: Converted) -> None:
    package = converted("tiny", "Q4_K_M")
    assert validate(package).passed
    assert sums.verify(package) == []
    record = json.loads((package / "provenance.json").read_text())
    build, before = record["build"], record["converted_from"]
    assert (build["target"], build["precision"], build["stateful"]) == ("openvino-ir", "Q4_K_M", False)
    assert build["versions"]["openvino"] == openvino.__version__.partition("-")[0]
    assert before["target"] == before["build"]["target"] == "onnx-standard"
    assert set(record["files"]) == {"openvino_model.xml", "openvino_model.bin"}
    assert re.search(r"^openvino==20\d\d\.", (package / "runtime-requirements.txt").read_text(), re.M)
    listed = re.findall(r"^\| `([^`/]+\.\w+)` \|", (package / "README.md").read_text(), re.M)
    assert {"openvino_model.bin", "tokenizer.json", "component_contract.yaml"} <= set(listed)


def held(package: Path) -> set[tuple[str, tuple[int, ...], bytes]]:
    """Every constant of an IR: its type, its shape, its bytes."""
    stored = (package / "openvino_model.bin").read_bytes()
    return {
        (one.dtype, one.shape, stored[(start := int(one.offset or 0)) : start + one.nbytes])
        for one in read_net(package, "openvino_model.xml").constants
    }


def test_the_same_operators_and_constants_every_time(
    converted: Converted, packages: Packages, tmp_path: Path
) -> None:
    """How OpenVINO counts and orders constants is its own to say; that none is lost, `convert` looks at itself."""
    convert(packages("tiny-drafter", "onnx-standard"), tmp_path / "out")
    both = [tmp_path / "out", converted("tiny-drafter")]
    layers = re.compile(r'<layer id="\d+" name="[^"]*" type="(?!Const")(\w+)"')
    mine, its = (sorted(layers.findall((folder / "openvino_model.xml").read_text())) for folder in both)
    assert mine == its != []
    mine, its = map(held, both)
    assert mine == its and len(mine) > 50
    mine, its = ((folder / "component_contract.yaml").read_bytes() for folder in both)
    assert mine == its


def blocks(package: Path, title: str) -> str:
    """The Python under a title of the card."""
    found = re.search(
        rf"^## {re.escape(title)}\n\n```python\n(.*?)```", (package / "README.md").read_text(), re.M | re.S
    )
    assert found, title
    return found[1]


@pytest.mark.parametrize(
    ("source", "precision", "stateful"),
    [
        ("tiny", "f32", False),
        ("tiny", "f32", True),
        ("tiny-full", "f32", False),
        ("tiny-drafter", "bf16", False),
    ],
)
def test_the_cards_lines_for_openvino_run(
    converted: Converted,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    source: str,
    precision: str,
    stateful: bool,
) -> None:
    package = converted(source, precision, stateful=stateful)
    monkeypatch.chdir(package)
    monkeypatch.setattr(
        openvino, "compile_model", lambda file, _: compiled(package / file)
    )  # once for all tests
    exec(blocks(package, "Usage (OpenVINO)"), {})
    assert 0 <= int(capsys.readouterr().out) < 512


def test_the_cards_lines_for_cabochon_run(converted: Converted, capsys: pytest.CaptureFixture[str]) -> None:
    package = converted("tiny", "f32")
    exec(blocks(package, "Usage (cabochon)").replace("PACKAGE", str(package)), {})
    assert capsys.readouterr().out.strip()


def test_what_is_refused(converted: Converted, packages: Packages, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(PackageError, match="for a drafter; a drafter reads its target's caches\n"):
        convert(packages("tiny-drafter", "onnx-standard"), out, stateful=True)
    with pytest.raises(PackageError, match="for openvino-epcontext, where ONNX Runtime feeds the caches\n"):
        convert(packages("tiny", "onnx-standard"), out, to="openvino-epcontext", stateful=True)
    with pytest.raises(PackageError, match="was built for default; only packages of onnx-standard"):
        convert(packages("tiny"), out)
    with pytest.raises(PackageError, match="is of openvino-ir already"):
        convert(converted("tiny"), out)
    with pytest.raises(PackageError, match="keeps its caches"):
        convert(converted("tiny", stateful=True), out, to="openvino-epcontext")
    with pytest.raises(PackageError, match="OUT exists already"):
        convert(packages("tiny", "onnx-standard"), tmp_path)
    spoilt = shutil.copytree(packages("tiny", "onnx-standard"), tmp_path / "spoilt")
    with (spoilt / "model.onnx.data").open("r+b") as file:
        file.write(b"\1")
    with pytest.raises(PackageError, match="is not what SHA256SUMS says") as caught:
        convert(spoilt, out)
    assert caught.value.at.endswith("model.onnx.data")
    assert {path.name for path in tmp_path.iterdir()} == {"spoilt"}


def test_without_openvino(packages: Packages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "openvino", None)
    with pytest.raises(CabochonError, match="OpenVINO cannot be loaded") as caught:
        convert(packages("tiny", "onnx-standard"), tmp_path / "out")
    assert caught.value.remedy == "pip install 'cabochon[openvino]'"


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"precision": "NF4"}, "target 'openvino-ir' cannot carry weights in 'nf4'"),
        ({"target": "openvino-epcontext", "stateful": True}, "stateful is asked for openvino-epcontext"),
        ({"assistant": TINY / "assistant", "stateful": True}, "stateful is asked for a pair"),
        ({"model": "drafter", "stateful": True}, "stateful is asked for a drafter"),
    ],
)
def test_what_is_never_built_is_refused_first(
    said: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before OpenVINO is missed."""
    monkeypatch.setitem(__import__("sys").modules, "openvino", None)
    asked: dict[str, Any] = {"target": "openvino-ir"} | said
    with pytest.raises(CabochonError, match=message) as caught:
        cabochon.build(TINY / "text", tmp_path / "out", **asked)
    assert not caught.value.at


def test_what_is_never_converted_is_refused_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "openvino", None)
    with pytest.raises(PackageError, match="is not a folder; expected a package"):
        convert(tmp_path / "nosuch", tmp_path / "out")
    with pytest.raises(PackageError, match="OUT exists already"):
        convert(tmp_path / "nosuch", tmp_path)


def test_a_checkpoint_is_built_and_converted(tmp_path: Path) -> None:
    said: dict[str, Any] = {"precision": "Q8", "license": "apache-2.0", "command": ["cabochon", "build"]}
    out = tmp_path / "out"
    built = cabochon.build(
        TINY / "assistant-dense", out, model="drafter", target="openvino-epcontext", **said
    )
    assert (built.target, built.precision, built.path) == ("openvino-epcontext", "Q8", out)
    assert built.remarks[-1].startswith("whether ONNX Runtime ran it")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (
        json.loads((tmp_path / "out" / "provenance.json").read_text())["build"]["command"] == said["command"]
    )
    with pytest.raises(TargetError, match="stateful is asked for 'cuda'"):
        cabochon.build(TINY / "text", tmp_path / "no", target="cuda", stateful=True)
    with pytest.raises(TargetError, match="unknown target 'openvino-x'; expected one of openvino-ir"):
        cabochon.build(TINY / "text", tmp_path / "no", target="openvino-x")


def test_the_command(packages: Packages, tmp_path: Path) -> None:
    out = tmp_path / "out"
    asked = ["convert", str(packages("tiny-drafter", "onnx-standard")), str(out), "--json"]
    ran = CliRunner().invoke(app, asked)
    assert ran.exit_code == 0, ran.output
    said = json.loads(ran.stdout)
    assert (said["target"], said["path"], said["remarks"]) == ("openvino-ir", str(out), [])
