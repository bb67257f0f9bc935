"""Files, external data, graph files: every rule has packages that it refuses, what onnx.checker lets pass included."""

import json
import os
import shutil
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from broken import (
    Break,
    all_of,
    check,
    edit_bytes,
    edit_graph,
    edit_json,
    edit_weight,
    link,
    place,
    refer,
    remove,
    write,
)
from cabochon import sums
from cabochon.dialects import TARGETS
from cabochon.validation import validate
from cabochon.validation.opened import open_package
from cabochon.validation.weight_index import index_of
from packages import Packages

WEIGHT, OTHER = "model.norm.weight", "model.layers.1.mlp.down_proj.weight"
DATA, INDEX = "model.onnx.data", "model.onnx.data.index.json"
WEB = ("tiny", "webgpu", "f32")  # whose graphs have an index


def context(name: str, mode: int = 0):
    """Another graph with a node that refers to a compiled blob."""

    def how(package: Path) -> None:
        node = onnx.helper.make_node(
            "EPContext", ["x"], ["y"], "blob", domain="com.microsoft", embed_mode=mode, ep_cache_context=name
        )
        ends = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [1]) for n in "xy"]
        graph = onnx.helper.make_graph([node], "compiled", ends[:1], ends[1:])
        opsets = [onnx.helper.make_opsetid(d, v) for d, v in (("", 21), ("com.microsoft", 1))]
        onnx.save(
            onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10), package / "policies.onnx"
        )

    return how


def ir(offset: str = "0", size: str = "8", top: str = "net", head: str = ""):
    """An OpenVINO IR of one constant [2, 2] in f16, and its 8 bytes."""
    data = f'<data element_type="f16" shape="2,2" offset="{offset}" size="{size}"/>'
    layer = f'<layer name="w" type="Const" version="opset1">{data}</layer>'
    text = f'<?xml version="1.0"?>{head}<{top}><layers>{layer}</layers></{top}>'
    return all_of(write("decoder.xml", text), write("decoder.bin", b"\x3c" * 8))


def pipe(package: Path) -> None:
    os.mkfifo(package / "pipe")


def unix_socket(package: Path) -> None:
    with socket.socket(socket.AF_UNIX) as opened:
        here = Path.cwd()
        os.chdir(package)  # a socket's address is short
        try:
            opened.bind("socket")
        finally:
            os.chdir(here)


def shifted(package: Path) -> None:
    """Two weights that overlap."""
    _, offset, length = place(package, OTHER)
    refer(OTHER, offset=offset + length // 2)(package)


def inline(proto: onnx.ModelProto) -> None:
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(100_000, np.float32), "table"))


def wrong_type(proto: onnx.ModelProto) -> None:
    """A Reshape to a shape of f64."""
    node = next(n for n in proto.graph.node if n.op_type == "Reshape")
    tensor = next(t for t in proto.graph.initializer if t.name == node.input[1])
    tensor.data_type = onnx.TensorProto.DOUBLE


def out_of_order(proto: onnx.ModelProto) -> None:
    proto.graph.node.insert(0, proto.graph.node.pop())


def edit_index(change: Callable[[Any], object]):
    """Another index of the weights."""
    return edit_json(INDEX, change)


def renamed(proto: onnx.ModelProto) -> None:
    """A weight by another name."""
    next(t for t in proto.graph.initializer if t.name == WEIGHT).name = "w"
    for node in proto.graph.node:
        node.input[:] = ["w" if name == WEIGHT else name for name in node.input]


def index_text(package: Path) -> str:
    """What the index says of a package that need not have one."""
    opened = open_package(package)
    return json.dumps(index_of(opened.graphs["model.onnx"], opened.files, sums.read(package)))


BREAKS = (
    Break("the weights are gone", remove("model.onnx.data"), {"FIL001"}),
    Break("a tokenizer file is gone", remove("tokenizer.json"), {"FIL001"}),
    Break(
        "genai_config names another graph", lambda p: rename_in_genai(p, "decoder.onnx"), {"FIL001", "HON016"}
    ),
    Break("a compiled blob that is not there", context("blob.bin"), {"FIL001", "FIL005", "RUN001"}),
    Break("a compiled blob in the node", context("\\x00blob", mode=1), {"FIL005", "RUN001"}),
    Break("an IR without its weights", all_of(ir(), remove("decoder.bin")), {"FIL001", "FIL005"}),
    Break("an empty data file", write("model.onnx.data", b""), {"FIL002", "FIL007", "HON032"}),
    Break("an absolute location", refer(WEIGHT, location="/etc/hostname"), {"FIL003"}),
    Break("a location outside", refer(WEIGHT, location="../outside"), {"FIL003"}),
    Break("a location with a backslash", refer(WEIGHT, location="sub\\model.onnx.data"), {"FIL003"}),
    Break("a location on a drive", refer(WEIGHT, location="C:model.onnx.data"), {"FIL003"}),
    Break("the folder as a location", refer(WEIGHT, location="."), {"FIL003"}),
    Break("no location's name", refer(WEIGHT, location=""), {"FIL003"}),
    Break("a location in a folder that is not there", refer(WEIGHT, location="sub/data"), {"FIL001"}),
    Break("a compiled blob outside", context("../../blob.bin"), {"FIL003", "FIL005", "RUN001"}),
    Break("a compiled blob anywhere", context("/etc/passwd"), {"FIL003", "FIL005", "RUN001"}),
    Break("genai_config leads outside", lambda p: rename_in_genai(p, "../model.onnx"), {"FIL003", "HON016"}),
    Break("a link out of the package", all_of(link("more.json", "/etc/hostname")), {"FIL004"}),
    Break(
        "the weights are a link out of the package",
        lambda p: move_out(p, "model.onnx.data"),
        {"FIL004"},
    ),
    Break("a link to nothing", link("more.json", "nowhere"), {"FIL004"}),
    Break("a link in a circle", link("more.json", "more.json"), {"FIL004"}),
    Break("a link to a folder", link("more", "/etc"), {"FIL004"}),
    Break("a pipe", pipe, {"FIL004"}),
    Break("a socket", unix_socket, {"FIL004"}),
    Break("a file that nothing names", write("notes.txt", "hello"), {"FIL005"}),
    Break("an offset that is no number", refer(WEIGHT, offset="four"), {"FIL006"}),
    Break("a length that is no number", refer(WEIGHT, length="4e3"), {"FIL006"}),
    Break("no location at all", refer(WEIGHT, location=None), {"FIL006"}),
    Break("an IR whose offset is no number", ir(offset="x"), {"FIL005", "FIL006"}),
    Break("a negative offset", refer(WEIGHT, offset=-4), {"FIL007"}),
    Break("an offset past the end", refer(WEIGHT, offset=1 << 40), {"FIL007"}),
    Break("an offset past all numbers", refer(WEIGHT, offset=1 << 70), {"FIL006"}),
    Break(
        "a data file that was cut off",
        edit_bytes("model.onnx.data", lambda b: b[: len(b) // 2]),
        {"FIL007", "HON032"},
    ),
    Break("an IR past the end of its weights", ir(offset="2"), {"FIL005", "FIL007", "OVN002"}),
    Break("a length too short for the shape", refer(WEIGHT, length=4), {"FIL008"}),
    Break("no length", refer(WEIGHT, length=None), {"FIL008"}),
    Break("an IR whose size does not fit its shape", ir(size="6"), {"FIL005", "FIL008"}),
    Break("an unaligned offset", refer(WEIGHT, offset=2), {"FIL009"}),
    Break(
        "an unaligned IR",
        all_of(ir(offset="1"), write("decoder.bin", b"\x3c" * 9)),
        {"FIL005", "FIL009", "OVN002"},
    ),
    Break("two weights overlap", shifted, {"FIL010"}),
    Break("a truncated graph", edit_bytes("model.onnx", lambda b: b[:-3]), {"FIL011"}),
    Break("a pointer instead of the graph", write("model.onnx", "version https://git-lfs"), {"FIL011"}),
    Break("an empty graph", write("model.onnx", b""), {"FIL002", "FIL011"}),
    Break("nodes out of order", edit_graph(out_of_order), {"FIL012"}),
    Break("a weight inside the graph", edit_graph(inline), {"FIL013"}),
    Break("no checksums", remove("SHA256SUMS"), {"FIL014"}),
    Break("checksums that are none", write("SHA256SUMS", "hello\n"), {"FIL015"}, sums=False),
    Break(
        "a line too many",
        edit_bytes("SHA256SUMS", lambda b: b + b"0" * 64 + b"  x\n"),
        {"FIL016"},
        sums=False,
    ),
    Break(
        "a line missing", edit_bytes("SHA256SUMS", lambda b: b.partition(b"\n")[2]), {"FIL016"}, sums=False
    ),
    Break("a flipped bit", edit_weight(OTHER, lambda b: b.__setitem__(0, b[0] ^ 1)), {"FIL017"}, sums=False),
    Break("JSON that is none", write("generation_config.json", "{"), {"FIL018"}),
    Break("a key given twice", write("generation_config.json", '{"a": 1, "a": 2}'), {"FIL018"}),
    Break(
        "another model's config", edit_json("config.json", lambda c: c.update(model_type="llama")), {"FIL019"}
    ),
    Break("XML that is none", all_of(ir(), write("decoder.xml", "<net>")), {"FIL005", "FIL020"}),
    Break("XML of something else", ir(top="html"), {"FIL005", "FIL020"}),
    Break("XML with entities", ir(head='<!DOCTYPE net [<!ENTITY a "b">]>'), {"FIL005", "FIL020"}),
    Break("a constant of a type that its node does not take", edit_graph(wrong_type), {"FIL021", "RUN001"}),
    Break("an index that lacks a weight", edit_index(lambda i: i["weight_map"].pop(WEIGHT)), {"FIL022"}, WEB),
    Break(
        "an index with a weight too many",
        edit_index(lambda i: i["weight_map"].update(w=DATA)),
        {"FIL022"},
        WEB,
    ),
    Break(
        "an index that names another file for a weight",
        edit_index(lambda i: i["weight_map"].update({WEIGHT: f"{DATA}_1"})),
        {"FIL022"},
        WEB,
    ),
    Break(
        "an index of files that are not there",
        edit_index(lambda i: i["files"].update({f"{DATA}_1": i["files"][DATA]})),
        {"FIL001", "FIL022"},
        WEB,
    ),
    Break(
        "an index that leads outside",
        edit_index(lambda i: i["files"].update({"../x": {}})),
        {"FIL003", "FIL022"},
        WEB,
    ),
    Break("an index without files", edit_index(lambda i: i.update(files=[DATA])), {"FIL022"}, WEB),
    Break("an index of other sizes", edit_index(lambda i: i["files"][DATA].update(bytes=1)), {"FIL022"}, WEB),
    Break(
        "an index of other bytes",
        edit_index(lambda i: i["files"][DATA].update(sha256="0" * 64)),
        {"FIL022"},
        WEB,
    ),
    Break("an index that adds up wrongly", edit_index(lambda i: i["metadata"].clear()), {"FIL022"}, WEB),
    Break("an index of another graph", edit_graph(renamed), {"FIL022", "HON006", "HON032"}, WEB),
    Break("no index", remove(INDEX), {"FIL023"}, WEB),
    Break("an index that nobody asks for", lambda p: (p / INDEX).write_text(index_text(p)), set()),
)


def rename_in_genai(package: Path, name: str) -> None:
    edit_json("genai_config.json", lambda data: data["model"]["decoder"].update(filename=name))(package)


def move_out(package: Path, name: str) -> None:
    shutil.move(package / name, package.parent / "outside")
    (package / name).symlink_to("../outside")


@pytest.mark.parametrize("broken", BREAKS, ids=str)
def test_a_broken_package_is_found_out(broken: Break, packages: Packages, tmp_path: Path) -> None:
    check(broken, packages, tmp_path)


def test_files_beyond_the_limit_of_the_target_are_found(
    packages: Packages, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = packages(*WEB)
    size = (package / DATA).stat().st_size
    for limit, found in ((size, []), (size - 1, [(DATA, f"{size:,} bytes, for model.onnx")])):
        monkeypatch.setitem(TARGETS, "webgpu", replace(TARGETS["webgpu"], file_bytes=limit))
        verdict = validate(package, quick=True)
        assert [(f.at, f.found) for f in verdict.findings if f.code == "FIL024"] == found
