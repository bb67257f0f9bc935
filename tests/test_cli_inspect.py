"""cabochon inspect: what a package is made of, which targets it satisfies, and what it would need for the others."""

import json
import shutil
from pathlib import Path
from typing import Any

import onnx
import pytest
from typer.testing import CliRunner

import cabochon
from broken import copied
from cabochon.cli.app import app
from cabochon.errors import PackageError
from cabochon.validation import Inspection
from packages import Packages

Kind = tuple[str, str, str]


def asked(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner(env={"COLUMNS": "100"}).invoke(app, ["inspect", *map(str, arguments)])
    return result.exit_code, result.output


def needs(found: Inspection, target: str) -> tuple[str, ...]:
    fit = next(fit for fit in found.targets if fit.target == target)
    return (*fit.needs, *fit.beside)


def judged(found: Inspection, provider: str) -> Any:
    return next(one for one in found.providers if one.provider == provider)


SATISFIED: dict[Kind, set[str]] = {
    ("tiny", "default", "f16"): {"default", "cuda"},
    ("tiny", "onnx-standard", "Q4_K_M"): {"default", "onnx-standard", "cuda"},
    ("tiny", "cuda", "f16"): {"default", "cuda"},
    ("tiny", "cuda", "f32"): {"default"},
    ("tiny", "webgpu", "f32"): {"default", "webgpu"},
    ("tiny-drafter", "webgpu", "f16"): {"default", "cuda", "webgpu"},
}


@pytest.mark.parametrize("kind", SATISFIED, ids="-".join)
def test_a_package_satisfies_its_target_and_what_has_the_same_kernels(packages: Packages, kind: Kind) -> None:
    found = cabochon.inspect(packages(*kind))
    own = {fit.target for fit in found.targets} & {"default", "onnx-standard", "cuda", "webgpu"}
    assert own == {"default", "onnx-standard", "cuda", "webgpu"}
    assert set(found.satisfies) & own == SATISFIED[kind]
    assert (found.target, found.precision) == kind[1:]
    for one in found.providers:
        groups = (*one.falls_back, *one.missing, *one.unknown)
        assert one.kernel + one.small + sum(group.nodes for group in groups) == one.nodes


def test_what_is_in_the_way_is_said_with_a_reason_and_an_address(packages: Packages) -> None:
    found = cabochon.inspect(packages("tiny", "cuda", "f32"))
    assert needs(found, "onnx-standard")[0].startswith("com.microsoft.FusedMatMul in operators of ai.onnx (")
    (attention,) = needs(found, "cuda")
    assert attention.startswith("com.microsoft.GroupQueryAttention over float32, int32: run by CPU")
    assert attention.endswith("(10 nodes, such as model.onnx: layers.0.GroupQueryAttention)")
    wrong, *others = needs(found, "webgpu")
    assert "a borrowed cache with a window of 8" in wrong and "layers.6" in wrong
    assert any(line.startswith("com.microsoft.FusedMatMul over float32: run by wasm") for line in others)


def test_nodes_on_a_browser_are_where_it_was_seen_to_place_them(packages: Packages) -> None:
    """onnxruntime-web 1.30.0 placed 4 Cos, 4 Sin and else nothing over floats but their Cast on the CPU."""
    one = judged(cabochon.inspect(packages("tiny", "webgpu", "f32")), "WebGpuExecutionProvider")
    assert not (one.falls_back or one.missing or one.unknown or one.wrong or one.refused or one.slow)
    assert 0 < one.small < one.nodes / 5


def test_f16_on_a_cpu_is_slow_where_it_is_widened(packages: Packages) -> None:
    for target, slow in (("onnx-standard", True), ("default", False)):
        one = judged(cabochon.inspect(packages("tiny", target, "f16")), "CPUExecutionProvider")
        assert [group.operator for group in one.slow] == ["MatMul"] * slow


def test_types_weights_and_operator_sets_are_counted(packages: Packages) -> None:
    out = packages("tiny", "onnx-standard", "Q4_K_M")
    (component,) = cabochon.inspect(out).components
    graph = onnx.load(out / "model.onnx", load_external_data=False).graph
    assert component.nodes == len(graph.node) == sum(component.operators.values())
    assert component.opsets["ai.onnx"] == 23
    blocks = next(one for one in component.weights if one.type == "4 bits in blocks of 32")
    assert blocks.tensors > 10 and blocks.bytes > 10_000
    assert sum(one.tensors for one in component.weights) == len(graph.initializer)


def test_graphs_for_a_newer_runtime_have_no_kernels(packages: Packages, tmp_path: Path) -> None:
    copy = copied(packages("tiny", "onnx-standard", "f16"), tmp_path / "package")
    model = onnx.load(copy / "model.onnx", load_external_data=False)
    model.opset_import[0].version = 27
    (copy / "model.onnx").write_bytes(model.SerializeToString())
    one = judged(cabochon.inspect(copy), "wasm")
    assert not one.runs
    assert {group.why for group in one.missing} == {
        "operator set 27 is newer than 26, the newest that onnxruntime-web 1.30.0 takes"
    }


def test_words_and_exit_codes(packages: Packages) -> None:
    out = packages("tiny", "cuda", "f16")
    code, said = asked(out)
    assert code == 0
    assert "this package satisfies default, cuda" in said
    assert "for onnx-standard it would need:" in said and "for webgpu it would need:" in said
    assert [line.split()[0] for line in said.splitlines() if " 0 " in line] == [
        *("CPU", "CUDA", "WebGpu", "wasm", "OpenVINO")
    ]
    code, said = asked(out, "--provider", "webgpu")
    assert code == 1
    assert "wrong: com.microsoft.GroupQueryAttention" in said and "onnx-standard" not in said
    assert asked(out, "--provider", "CUDAExecutionProvider")[0] == 0


def test_the_manual_shows_what_is_printed(packages: Packages) -> None:
    manual = (Path(__file__).parents[1] / "docs" / "kernels.md").read_text()
    _, said = asked(packages("tiny", "cuda", "f16"))
    assert manual.split("```")[1].strip() in "\n".join(line.rstrip() for line in said.splitlines())


def test_json_says_the_same(packages: Packages) -> None:
    code, said = asked(packages("tiny", "cuda", "f16"), "--json")
    found = json.loads(said)
    assert code == 0 and found["satisfies"][:2] == ["default", "cuda"]
    webgpu = next(one for one in found["providers"] if one["provider"] == "WebGpuExecutionProvider")
    assert webgpu["runs"] is False and webgpu["wrong"][0]["nodes"] == 3
    code, said = asked(packages("tiny", "cuda", "f16"), "--json", "--provider", "webgpu")
    assert code == 1 and json.loads(said)["runs"] is False


def test_bad_requests(tmp_path: Path, packages: Packages) -> None:
    with pytest.raises(PackageError, match="no graph"):
        cabochon.inspect(tmp_path)
    code, said = asked(packages("tiny", "cuda", "f16"), "--provider", "tpu")
    assert code == 2 and "cpu, cuda, webgpu, wasm, openvino" in " ".join(said.split())


IR = """<?xml version="1.0"?>
<net name="n" version="11"><layers>
 <layer id="0" name="x" type="Parameter" version="opset1"><data shape="1" element_type="f32"/>
  <output><port id="0" precision="FP32" names="x"><dim>1</dim></port></output></layer>
 <layer id="1" name="w" type="Const" version="opset1">
  <data element_type="u4" shape="4,32" offset="0" size="64"/>
  <output><port id="0" precision="U4"><dim>4</dim><dim>32</dim></port></output></layer>
 <layer id="2" name="y" type="Result" version="opset1">
  <input><port id="0" precision="FP32"><dim>1</dim></port></input></layer>
</layers><edges><edge from-layer="0" from-port="0" to-layer="2" to-port="0"/></edges>
<rt_info><Runtime_version value="{version}-1"/></rt_info></net>"""


def test_an_ir_package_is_openvinos(tmp_path: Path) -> None:
    (tmp_path / "openvino_model.xml").write_text(IR.replace("{version}", "2026.4.1"))
    (tmp_path / "openvino_model.bin").write_bytes(bytes(64))
    found = cabochon.inspect(tmp_path)
    (component,) = found.components
    assert component.operators == {"Const": 1, "Parameter": 1, "Result": 1}
    assert [(one.type, one.bytes) for one in component.weights] == [("uint4", 64)]
    assert found.satisfies == ("openvino-ir",)
    assert asked(tmp_path, "--provider", "openvino")[0] == 0
    code, said = asked(tmp_path, "--provider", "cpu")
    assert code == 1 and "for default it would need:" in said and "an ONNX graph" in said


def test_what_stands_inside_of_a_loop_counts(packages: Packages, tmp_path: Path) -> None:
    """An operator of another domain in the body of a loop, and nowhere else, is no onnx-standard."""
    package = tmp_path / "package"
    shutil.copytree(packages("moe-full", "onnx-standard"), package)
    graph = package / "decoder" / "model.onnx"
    model = onnx.load(graph, load_external_data=False)
    body = next(
        a.g for node in model.graph.node if node.op_type == "Loop" for a in node.attribute if a.name == "body"
    )
    gelu = next(node for node in body.node if node.op_type == "Gelu")
    gelu.op_type, gelu.domain = "FastGelu", "com.microsoft"
    del gelu.attribute[:]
    graph.write_bytes(model.SerializeToString())
    assert "onnx-standard" in cabochon.inspect(packages("moe-full", "onnx-standard")).satisfies
    assert "onnx-standard" not in cabochon.inspect(package).satisfies
