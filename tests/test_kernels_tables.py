"""The tables of kernels: what they hold, and that the CPU's is what the installed onnxruntime registers."""

import json
from pathlib import Path

import onnxruntime
import pytest

import cabochon
from cabochon.dialects import TARGETS
from cabochon.kernels import PROVIDERS, QUIRKS
from cabochon.kernels.generate import installed, merged, spelled
from cabochon.kernels.tables import read

CPU = "CPUExecutionProvider"
FOLDER = Path(cabochon.__file__).parent / "kernels"


def types(*words: str) -> dict[str, frozenset[str]]:
    return {"T": frozenset(words)}


def test_the_cpu_table_is_what_the_installed_onnxruntime_registers() -> None:
    table, found = PROVIDERS[CPU], installed()
    if table.version != onnxruntime.__version__:
        pytest.skip(f"the table is of onnxruntime {table.version}; {onnxruntime.__version__} is installed")
    assert table.kernels == found.kernels
    assert table.opset == found.opset


def test_every_provider_of_a_target_has_a_table_that_says_how_it_was_got() -> None:
    assert {target.provider for target in TARGETS.values()} <= PROVIDERS.keys()
    for name, table in PROVIDERS.items():
        assert table.name == name
        assert table.version and table.source and table.date >= "2026-11-30"
        assert not table.beside or table.beside in PROVIDERS
        assert not table.unknown & table.kernels.keys()


@pytest.mark.parametrize("file", sorted(path.name for path in FOLDER.glob("*.json")))
def test_files_of_tables_are_written_as_they_are_read(file: str) -> None:
    said = json.loads((FOLDER / file).read_text())
    if file != "quirks.json":
        assert spelled(said) == (FOLDER / file).read_text()
        assert read(said) == PROVIDERS[said["name"]]


@pytest.mark.parametrize(
    ("provider", "operator", "since", "given", "there"),
    [
        (CPU, ("", "MatMul"), 13, "float", True),
        (CPU, ("", "MatMul"), 13, "float16", False),
        ("CUDAExecutionProvider", ("", "MatMul"), 13, "bfloat16", True),
        ("CUDAExecutionProvider", ("com.microsoft", "GroupQueryAttention"), 1, "float", False),
        ("CUDAExecutionProvider", ("com.microsoft", "GroupQueryAttention"), 1, "float16", True),
        ("WebGpuExecutionProvider", ("com.microsoft", "GroupQueryAttention"), 1, "float", True),
        ("WebGpuExecutionProvider", ("com.microsoft", "FusedMatMul"), 1, "float", False),
        ("WebGpuExecutionProvider", ("", "Cos"), 7, "float", True),
        ("WebGpuExecutionProvider", ("", "Cos"), 22, "float", False),
        ("WebGpuExecutionProvider", ("", "Loop"), 23, "float", False),
        ("wasm", ("", "Cos"), 22, "float", True),
        ("OpenVINO", ("com.microsoft", "MatMulBnb4"), 1, "float", False),
        ("OpenVINO", ("", "TensorScatter"), 24, "float", False),
        ("OpenVINO", ("", "Attention"), 23, "float", True),
    ],
)
def test_what_was_measured_stands_in_the_tables(
    provider: str, operator: tuple[str, str], since: int, given: str, there: bool
) -> None:
    assert PROVIDERS[provider].has(operator, since, types(given)) is there


def test_versions_match_as_onnxruntime_matches_them() -> None:
    """A kernel without an end is of one version alone: a newer operator needs one of its own."""
    listed = [
        ("", "A", 1, 6, {"T": ["tensor(float)"]}),
        ("", "A", 7, 2**31 - 1, {"T": ["tensor(float)"]}),
        ("", "A", 7, 2**31 - 1, {"T": ["tensor(float16)", "seq(tensor(float))"]}),
    ]
    rows = merged(listed)
    assert rows == {"": {"A": [(1, 6, {"T": "float"}), (7, None, {"T": "float float16"})]}}
    head = dict(name="x", runtime="r", version="1", date="", source="", measured=True, opset=9, beside="")
    table = read({**head, "typed": True, "unknown": {}, "kernels": rows})
    found = [table.has(("", "A"), since, types("float")) for since in (1, 3, 6, 7, 8)]
    assert found == [True, True, True, True, False]


def test_kernels_that_differ_in_two_types_stay_apart() -> None:
    listed = [
        ("", "A", 1, 1, {"S": ["tensor(float)"], "T": ["tensor(float)"]}),
        ("", "A", 1, 1, {"S": ["tensor(bool)"], "T": ["tensor(int64)"]}),
    ]
    assert len(merged(listed)[""]["A"]) == 2


def test_every_quirk_says_whose_it_is_and_where_it_is_from() -> None:
    found = list(QUIRKS)
    assert len({quirk.name for quirk in found}) == len(found)
    for quirk in found:
        assert quirk.kind in ("wrong", "slow", "refused", "differs")
        assert set(quirk.providers) <= PROVIDERS.keys()
        assert quirk.source and quirk.found and quirk.expected
        assert all((quirk.operator, quirk.of(name)) for name in PROVIDERS)


def test_a_fact_that_is_not_known_is_no_quirk() -> None:
    quirk = next(quirk for quirk in QUIRKS if quirk.name == "head-size")
    for size, held in ((None, False), (64, False), (12, True)):
        assert quirk.holds("com.microsoft.GroupQueryAttention", {"head_size": size}) is held
    assert not quirk.holds("com.microsoft.MultiHeadAttention", {"head_size": 12})
