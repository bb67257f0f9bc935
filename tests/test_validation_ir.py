"""Packages of OpenVINO's IR: what OpenVINO converted is good, and each way of breaking it is found out."""

import re
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cabochon
from broken import Break, How, check, edit_bytes, edit_json, remove, write
from cabochon.validation import validate
from cabochon.validation.layer_types import LAYER_TYPES
from cabochon.validation.net import read_net
from cabochon.validation.rules import load
from full_graphs import random_full
from irs import Recorded
from packages import TINY
from record_ir import TEXT as RECORDED

XML, BIN = "openvino_model.xml", "openvino_model.bin"
TEXT, STATEFUL, FULL, DRAFTER = (
    (name, "openvino-ir", precision)
    for name, precision in (("text", "Q4_K_M"), ("stateful", "f32"), ("full", "f32"), ("drafter", "f32"))
)
GATE = "model.layers.0.mlp.gate_proj.weight"
CONST = re.compile(r'name="(?P<name>[^"]+)" type="Const" version="opset1">\s*<data (?P<data>[^>]*)/>')
QUICK = {"quick": True}
NORM, WHEELS, LINE = "model.norm.weight", "runtime-requirements.txt", "input_ids: batch,sequence"
SUM, IDS = 'type="CumSum"', '<data shape="?,?" element_type='
ASSIGN = 'type="Assign" version="opset6">\n\t\t\t'
UNSAID = {"OVN006", "OVN007", "OVN008", "OVN014"}
SHORT = {"FIL009", "OVN002"}  # of a constant that lost its bytes: the next one begins where none ends


@pytest.fixture(scope="session")
def irs(packages: Any) -> Recorded:
    return Recorded(packages.root)


def xml(old: str, new: str, file: str = XML) -> How:
    """Replace in the IR file what is there."""
    return replaced(file, old, new, 1)


def replaced(file: str, old: str, new: str, count: int = -1) -> How:
    """Replace in a file what is there."""

    def change(text: bytes) -> bytes:
        assert old.encode() in text, old
        return text.replace(old.encode(), new.encode(), count)

    return edit_bytes(file, change)


def constant(name: str, **said: object) -> How:
    """Write other attributes into the data of a constant; None takes one away."""

    def change(text: bytes) -> bytes:
        found = next(m for m in CONST.finditer(text.decode()) if m["name"] == name)
        now: dict[str, Any] = dict(re.findall(r'(\w+)="([^"]*)"', found["data"])) | said
        data = " ".join(f'{key}="{value}"' for key, value in now.items() if value is not None)
        start, end = found.span("data")
        return (text.decode()[:start] + data + " " + text.decode()[end:]).encode()

    return edit_bytes(XML, change)


def where(name: str, folder: str = "") -> Callable[[Path], tuple[int, int]]:
    """Offset and size of a constant."""

    def find(package: Path) -> tuple[int, int]:
        found = next(c for c in read_net(package, folder + XML).constants if c.layer == name)
        return int(found.offset or 0), found.nbytes

    return find


def moved(name: str, by: int) -> How:
    """A constant that begins elsewhere."""
    return lambda package: constant(name, offset=where(name)(package)[0] + by)(package)


def said(key: str, value: str | None, file: str = XML) -> How:
    """Another value of a property; None takes it away."""

    def change(text: bytes) -> bytes:
        known, line = (
            re.compile(rf"\t*<{key} value=\"[^\"]*\" />\n".encode()),
            f'<{key} value="{value}" />\n'.encode(),
        )
        if value is not None and not known.search(text):
            return text.replace(b"<cabochon>\n", b"<cabochon>\n" + line)
        return known.sub(b"" if value is None else line, text)

    return edit_bytes(file, change)


def value(key: str) -> How:
    """A weight holds one number that is none."""

    def how(package: Path) -> None:
        start, size = where(key)(package)
        with (package / BIN).open("r+b") as file:
            file.seek(start)
            file.write(np.full(size // 4, np.nan, np.float32).tobytes())

    return how


def required_again(text: bytes) -> bytes:
    """logits_to_keep frozen, as OpenVINO does with an input that may be left out."""
    start = text.index(b'name="logits_to_keep" type="Parameter"')
    return text[:start] + text[start:].replace(b'type="Parameter"', b'type="Const"', 1)


def axes(old: str, new: str) -> How:
    """Another line of the property that names dimensions."""
    return xml(old + "&#10;", new + "&#10;" if new else "")


def record(*path: str, to: object) -> How:
    """Another value in provenance.json."""

    def change(data: dict[str, Any]) -> None:
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = to

    return edit_json("provenance.json", change)


def quick(name: str, how: How, found: set[str], package: tuple[str, str, str] = TEXT) -> Break:
    return Break(name, how, found, package, options=QUICK)


BREAKS = (
    quick("a file that was cut off", edit_bytes(XML, lambda b: b[: len(b) // 2]), {"FIL020"}),
    quick("a document type", xml("<net ", "<!DOCTYPE net [<!ENTITY a 'b'>]><net "), {"FIL020"}),
    quick("two layers of one number", xml('<layer id="1"', '<layer id="0"'), {"FIL020"}),
    quick("no IR at all", write(XML, "<html/>"), {"FIL020"}),
    quick("an empty file", write(XML, ""), {"FIL002", "FIL020"}),
    quick("elements inside of each other", write(XML, f"<net>{'<a>' * 200}{'</a>' * 200}</net>"), {"FIL020"}),
    quick("the weights are gone", remove(BIN), {"FIL001"}),
    quick("empty weights", write(BIN, b""), {"FIL002", "FIL007"}),
    quick("weights of another conversion", edit_bytes(BIN, lambda b: b[:-4]), {"FIL007"}),
    quick("weights that a link leads out to", lambda p: linked_out(p), {"FIL004"}),
    quick("a negative offset", constant(GATE, offset=-4), {"FIL007", "FIL009", "OVN002"}),
    quick("an offset past the end", constant(GATE, offset=1 << 40), {"FIL007", "FIL009", "OVN002"}),
    quick("an offset that is no number", constant(GATE, offset="0x10"), {"FIL006", "FIL009", "OVN002"}),
    quick("no offset", constant(GATE, offset=None), {"FIL006", "FIL009", "FIL010", "OVN002"}),
    quick("a length too short for the shape", constant(GATE, size=4), {"FIL008"}),
    quick("no length", constant(GATE, size=None), {"FIL008"}),
    quick("a shape that is none", constant(GATE, shape="64, -96"), {*SHORT, "FIL008", "OVN014"}),
    quick("an element type that is none", constant(GATE, element_type="u5"), {*SHORT, "FIL008", "OVN013", "OVN014"}),
    quick("a weight in the middle of others", moved(GATE, 31), {"FIL009", "FIL010", "OVN002"}),
    quick("an unaligned offset", moved(NORM, -2), {"FIL009", "FIL010", "OVN002"}),
    quick("bytes that nobody reads", edit_bytes(BIN, lambda b: b + b"more"), {"OVN002"}),
    Break("a number that is none", value(NORM), {"HYG001"}, TEXT),
    quick("a document for ONNX graphs", write("genai_config.json", "{}"), {"OVN001"}),
    quick("a contract for ONNX graphs", write("inference_metadata.yaml", "{}"), {"OVN001", "SCH007"}),
    quick("an ONNX graph beside it", write("policies/a.onnx", b"x"), {"FIL005", "FIL011", "OVN001"}),
    quick("an encoder is gone", remove(f"vision_encoder/{XML}", f"vision_encoder/{BIN}"), {"FIL001", "OVN003"}, FULL),
    quick("the embedding is gone", remove(f"embedding/{XML}", f"embedding/{BIN}"), {"FIL001", "OVN003"}, FULL),
    quick(
        "an embedding of another OpenVINO",
        xml('value="2026.4.1-', 'value="2026.3.0-', file=f"embedding/{XML}"),
        {"OVN004", "OVN015"},
        FULL,
    ),
    quick(
        "an embedding of another precision",
        said("precision", "bf16", file=f"embedding/{XML}"),
        {"OVN004", "OVN008", "OVN012", "OVN013"},
        FULL,
    ),
    quick("an extension", xml(f'{SUM} version="opset3"', 'type="Mine" version="extension"'), {"OVN005", "OVN014"}),
    quick("an opset of the future", xml('version="opset3"', 'version="opset99"'), {"OVN005"}),
    quick("a layer of no type", xml(f"{SUM} ", ""), {"OVN005", "OVN014"}),
    quick("states that are not said", said("stateful", None), {*UNSAID, "OVN009"}, STATEFUL),
    quick("states that are not there", said("stateful", "true"), UNSAID),
    quick(
        "a state that nobody writes",
        xml(f'{ASSIGN}<data variable_id="past', f'{ASSIGN}<data variable_id="other'),
        {"OVN006"},
        STATEFUL,
    ),
    quick(
        "a frozen input",
        edit_bytes(XML, required_again),
        {"FIL006", "FIL007", "FIL008", "OVN007", "OVN009", "OVN010", "OVN014"},
    ),
    quick("another name of a port", xml('names="input_ids"', 'names="ids"'), {"OVN007", "OVN009", "OVN010"}),
    quick("a config of other head sizes", lambda p: reconfigured(p, head_dim=32), {"OVN008"}),
    quick("a config of another vocabulary", lambda p: reconfigured(p, vocab_size=256), {"OVN008"}),
    quick("a config with more layers", lambda p: deeper(p), {"OVN007", "OVN014"}),
    quick("ids of another type", xml(f'{IDS}"i64"', f'{IDS}"i32"'), {"OVN008", "OVN010"}),
    quick("no names of dimensions", said("axes", None), {"OVN010", "OVN011"}),
    quick("a port without names", axes(LINE, ""), {"OVN009", "OVN010"}),
    quick("names for a port that is not there", axes(LINE, f"{LINE}&#10;a: b"), {"OVN009"}),
    quick("two names for three dimensions", axes("logits: batch,kept,512", "logits: kept"), {"OVN009", "OVN010"}),
    quick("a number where any size is right", axes(LINE, "input_ids: batch,7"), {"OVN009", "OVN010"}),
    quick("a name where there is a number", axes("logits: batch,kept,512", "logits: batch,kept,words"), {"OVN009"}),
    quick("axes that were swapped", axes(LINE, "input_ids: sequence,batch"), {"OVN009", "OVN010"}),
    quick("no contract", remove("component_contract.yaml"), {"OVN010"}),
    quick("a contract of other ports", replaced("component_contract.yaml", "input_ids", "ids"), {"OVN010"}),
    quick("no window", said("sliding_window", None), {"OVN011"}),
    quick("a property that nobody knows", said("mood", "good"), {"OVN011"}),
    quick("a drafter without its width", said("backbone_hidden_size", None), {"OVN011"}, DRAFTER),
    quick("another window", said("sliding_window", "9"), {"OVN012"}),
    quick("another target", said("target", "onnx-standard"), {"OVN012"}),
    quick("a mask that the graph does not keep to", said("mask", "left-justified"), {"OVN012"}),
    quick("another scale of embeddings", said("embed_scale", "7.5"), {"OVN012"}),
    quick("activations that no port has", said("activations", "f16"), {"OVN008", "OVN012", "OVN013", "OVN014"}),
    quick("activations that do not exist", said("activations", "f8"), {"OVN012", "OVN014"}),
    quick("a precision that does not exist", said("precision", "Q5_K_M"), {"OVN012", "OVN014"}, STATEFUL),
    quick("weights that were expanded", lambda p: expanded(p, "f32"), {"FIL009", "FIL010", "OVN013", "OVN014"}),
    quick("compressed weights", constant(NORM, element_type="f16", size=128), {*SHORT, "OVN013", "OVN014"}),
    quick("weights in eight bits", lambda p: expanded(p, "u8"), {"FIL009", "FIL010", "OVN013", "OVN014"}),
    quick("a record of another target", record("build", "target", to="onnx-standard"), {"OVN014"}),
    quick("a record of other layers", record("architecture_contracts", "num_hidden_layers", to=35), {"OVN014"}),
    quick("a record of other operators", record("build", "operators", to={"MatMul": 1}), {"OVN014"}),
    quick("another OpenVINO", replaced(WHEELS, "2026.4.1", "2025.4.1"), {"OVN015"}),
    quick("no OpenVINO", replaced(WHEELS, "openvino==", "# "), {"OVN015"}),
    quick("a file that nothing names", write("other.xml", "<net/>"), {"FIL001", "FIL005"}),
)  # fmt: skip


def linked_out(package: Path) -> None:
    outside = package.parent / "outside.bin"
    (package / BIN).rename(outside)
    (package / BIN).symlink_to(outside)


def reconfigured(package: Path, **text: object) -> None:
    """Other numbers in the text model of config.json."""
    edit_json("config.json", lambda data: data.get("text_config", data).update(text))(package)


def deeper(package: Path) -> None:
    kinds = ["sliding_attention", "full_attention", "full_attention"]
    reconfigured(package, num_hidden_layers=3, layer_types=kinds)


def expanded(package: Path, dtype: str) -> None:
    """A weight in blocks of four bits that takes the place of floats, or of bytes."""
    start, size = where(GATE)(package)
    numbers = 2 * size
    constant(GATE, element_type=dtype, offset=start, size=numbers * {"f32": 4, "u8": 1}[dtype])(package)


@pytest.mark.parametrize("broken", BREAKS, ids=str)
def test_a_broken_package_is_found_out(broken: Break, irs: Any, tmp_path: Path) -> None:
    check(broken, irs, tmp_path)


WITH = pytest.mark.skipif(
    find_spec("openvino") is None, reason="openvino is not installed: make parity runs it"
)
EXECUTED = (  # what is in the recorded weights are no shapes either
    Break("weights of nobody", lambda p: None, {"OVN020"}, TEXT, options=QUICK | {"execute": True}),
)


@WITH
@pytest.mark.parametrize("broken", EXECUTED, ids=str)
def test_a_package_that_does_not_run_is_found_out(broken: Break, irs: Any, tmp_path: Path) -> None:
    check(broken, irs, tmp_path)


@WITH
@pytest.mark.parametrize("stateful", [False, True])
def test_what_was_just_converted_is_good_and_runs(stateful: bool, tmp_path: Path) -> None:
    """And the types of layers are those of the release that is installed, where it is the one of the table."""
    from cabochon.openvino import convert

    source = random_full(
        tmp_path / "source", text=RECORDED, vision={"num_hidden_layers": 1}, without=["audio_config"]
    )
    standard = cabochon.build(source, tmp_path / "standard", target="onnx-standard", precision="f32").path
    package = convert(standard, tmp_path / "package", stateful=stateful).path
    verdict = validate(package, execute=True, source=source)
    assert verdict.findings == () and {"OVN020", "HYG001", "FIL017"} <= {*verdict.rules}


@WITH
@pytest.mark.parametrize("assistant", [None, TINY / "assistant-dense"], ids=["alone", "pair"])
def test_what_ends_a_text_may_be_a_list(assistant: Path | None, tmp_path: Path) -> None:
    source = shutil.copytree(TINY / "text", tmp_path / "source")
    edit_json("config.json", lambda data: data.update(eos_token_id=[1, 6], bos_token_id=None))(source)
    said: dict[str, Any] = {"target": "openvino-ir", "precision": "f32", "assistant": assistant}
    verdict = validate(cabochon.build(source, tmp_path / "package", **said).path, execute=True)
    assert verdict.findings == () and "OVN020" in verdict.rules


@WITH
def test_the_table_of_layers_is_that_of_the_headers() -> None:
    import openvino

    folder = Path(openvino.__file__).parent / "include" / "openvino" / "opsets"
    found = dict[str, set[int]]()
    for number in range(1, 1 + len([*folder.glob("opset*_tbl.hpp")])):
        text = (folder / f"opset{number}_tbl.hpp").read_text()
        for name in re.findall(r"^_OPENVINO_OP_REG\((\w+),", text, re.MULTILINE):
            found.setdefault(name, set()).add(number)
    assert found == LAYER_TYPES


@pytest.mark.parametrize("name", ["text", "stateful", "wrapped", "full", "drafter"])
def test_what_openvino_converted_is_good(name: str, irs: Recorded) -> None:
    verdict = validate(irs(name))
    assert verdict.findings == ()
    assert {code for code in load() if code.startswith("OVN")} - {*verdict.rules} == {"OVN020"}
