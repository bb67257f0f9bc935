"""EPContext nodes around converted graphs: their structure, and what is said of whether ONNX Runtime ran them."""

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx
import onnxruntime as ort
import pytest

from cabochon import sums
from cabochon.errors import PackageError
from cabochon.openvino import convert, devices
from cabochon.validation import validate
from cabochon.validation.net import read_net
from converted import Converted
from packages import Packages

openvino = pytest.importorskip("openvino", reason="openvino is not installed: pip install cabochon[openvino]")


@pytest.fixture(scope="module")
def ir(packages: Packages) -> Path:
    return Converted(packages)("tiny", "f32")


@pytest.fixture(scope="module")
def wrapped(ir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wrapped") / "out"
    convert(ir, out, to="openvino-epcontext")
    return out


def test_one_node_that_names_the_file(wrapped: Path, ir: Path) -> None:
    model = onnx.load(wrapped / "model.onnx")
    (node,) = model.graph.node
    said = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    assert (node.op_type, node.domain) == ("EPContext", "com.microsoft")
    assert said == {
        "embed_mode": 0,
        "ep_cache_context": b"model.xml",
        "ep_sdk_version": openvino.__version__.partition("-")[0].encode(),
        "main_context": 1,
        "max_size": 0,
        "partition_name": b"model",
        "source": b"OpenVINOExecutionProvider",
    }
    assert not model.graph.initializer
    assert {p.key: p.value for p in model.metadata_props}["cabochon.target"] == "openvino-epcontext"
    ports = read_net(ir, "openvino_model.xml").ports
    assert [value.name for value in model.graph.input] == list(node.input) == list(ports.inputs)
    assert [value.name for value in model.graph.output] == list(node.output) == list(ports.outputs)
    dims = model.graph.input[2].type.tensor_type.shape.dim
    assert [d.dim_param or d.dim_value for d in dims] == ["batch", 1, "sliding_past_sequence", 16]
    onnx.checker.check_model(model)


def test_the_graphs_are_the_irs_own_files(wrapped: Path, ir: Path) -> None:
    for suffix in (".xml", ".bin"):
        assert (wrapped / f"model{suffix}").samefile((ir / "openvino_model").with_suffix(suffix))
    assert validate(wrapped).passed


def test_an_ir_that_openvino_does_not_read_is_refused(ir: Path, tmp_path: Path) -> None:
    package = Path(shutil.copytree(ir, tmp_path / "ir"))
    xml = package / "openvino_model.xml"
    xml.write_text(xml.read_text().replace('element_type="f32"', 'element_type="f33"', 1))
    sums.write(package, {})
    with pytest.raises(PackageError, match="cannot read it") as refused:
        convert(package, tmp_path / "out", to="openvino-epcontext")
    assert refused.value.at == str(xml) and [path.name for path in tmp_path.iterdir()] == ["ir"]


def test_of_onnx_standard_at_once(packages: Packages, tmp_path: Path) -> None:
    out = tmp_path / "out"
    convert(packages("tiny-drafter", "onnx-standard"), out, to="openvino-epcontext")
    own = Converted(packages)("tiny-drafter", "f32")
    mine, its = ((out / "model.xml").read_text(), (own / "openvino_model.xml").read_text())
    layers = re.compile(r'<layer id="\d+" name="[^"]*" type="(?!Const")(\w+)"')
    assert sorted(layers.findall(mine)) == sorted(layers.findall(its)) != []
    assert validate(out).passed


def test_what_is_said_is_what_onnxruntime_says(wrapped: Path) -> None:
    said = json.loads((wrapped / "evidence" / "epcontext.json").read_text())
    assert said["providers"] == ort.get_available_providers()
    assert said["versions"]["onnxruntime"] == ort.__version__
    if "OpenVINOExecutionProvider" not in said["providers"] and not said["devices"]:
        assert said["how"] == "structure only"
        assert said["reason"]
    card = (wrapped / "README.md").read_text()
    assert said["reason"] in card
    assert said["reason"] in (wrapped / "runtime-requirements.txt").read_text()


def test_a_device_is_tried(wrapped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an onnxruntime that has the provider: what it makes of each graph is told, and what fails as it failed."""
    nets = {"": read_net(wrapped, "model.xml")}
    monkeypatch.setattr(ort, "get_available_providers", lambda: ["OpenVINOExecutionProvider"])
    fed = dict[str, Any]()

    def session(path: Path, options: Any, providers: list[str]) -> Any:
        assert (path.name, providers) == ("model.onnx", ["OpenVINOExecutionProvider"])
        return SimpleNamespace(run=lambda _, feeds: fed.update(feeds) or [])

    monkeypatch.setattr(ort, "InferenceSession", session)
    said = devices.evidence(wrapped, nets)
    assert (said["how"], said["reason"], said["graphs"]) == ("executed", "", {"": "ran"})
    assert {name: array.shape for name, array in fed.items()}["past_key_values.0.key"] == (1, 1, 0, 16)

    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no device")

    monkeypatch.setattr(ort, "InferenceSession", fails)
    said = devices.evidence(wrapped, nets)
    assert (said["how"], said["reason"]) == ("structure only", "RuntimeError: no device")


def test_a_plugin_without_devices_is_told_apart(wrapped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "installed", lambda name: "9.9.9")
    monkeypatch.setattr(
        devices, "import_module", lambda name: SimpleNamespace(get_library_path=lambda: "x.so")
    )
    listed = list[Any]()
    monkeypatch.setattr(ort, "register_execution_provider_library", lambda name, path: listed.append(path))
    monkeypatch.setattr(ort, "unregister_execution_provider_library", lambda name: listed.append(name))
    said = devices.evidence(wrapped, {})
    assert listed == ["x.so", "cabochon_openvino"]
    assert re.match(
        "onnxruntime-ep-openvino 9.9.9 lists no device on this machine, whose processor", said["reason"]
    )


def test_the_card_names_the_files(wrapped: Path) -> None:
    text = (wrapped / "README.md").read_text()
    assert 'ov.compile_model("model.xml", "CPU")' in text
    assert 'ort.InferenceSession("model.onnx", options)' in text
