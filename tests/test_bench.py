"""The benchmark's parts on small things: what they write, watch and print."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cabochon
import checkpoints as tiny
from cabochon.checkpoint import open_checkpoint
from cabochon.gemma4.layout import layout
from cabochon.runtime import Generation
from cabochon.runtime.draft_length import Round
from cabochon.runtime.generation import Timings
from cabochon.runtime.tally import Tally
from packages import SOURCES, Packages
from pairs import Pairs

sys.path.insert(0, str(Path(__file__).parents[1]))
from bench import __main__ as bench_main
from bench import building, checkpoints, experts, installing, running, speculation, validation, watch
from bench.table import END, START, Row, markdown, write_into


def test_geometries_have_the_sizes_their_names_promise() -> None:
    def gigabytes(config: dict) -> float:
        return sum(2 * slot.elements for slot in layout(config)) / 1e9

    assert gigabytes(checkpoints.e2b()) == pytest.approx(10.2, abs=0.05)
    assert gigabytes(checkpoints.medium()) == pytest.approx(1.75, abs=0.005)
    assert checkpoints.medium()["num_hidden_layers"] == 35
    layers = checkpoints.e2b_layers()
    kept = (
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "head_dim",
        "global_head_dim",
        "sliding_window",
    )
    assert {k: layers[k] for k in kept} == {k: checkpoints.e2b()["text_config"][k] for k in kept}
    assert gigabytes(checkpoints.medium(0.1)) < 0.4


def test_a_mixture_of_two_fifths_of_its_layers() -> None:
    text = experts.a4b()
    assert (text["num_hidden_layers"], text["num_experts"], text["top_k_experts"]) == (12, 128, 8)
    assert sum(2 * slot.elements for slot in layout(text)) / 1e9 == pytest.approx(21.1, abs=0.05)
    assert experts.a4b(0.01)["num_experts"] == 8


def test_look_ups_in_experts_are_counted() -> None:
    """Not those in the table of tokens, and each once, though two events speak of it."""
    codes = "GatherBlockQuantized"
    names = (
        "layers.3.n7_kernel_time",
        "layers.3.n7_fence_before",
        "n1_kernel_time",
        "layers.4.n2_kernel_time",
    )
    events = [{"name": name, "args": {"op_name": codes}} for name in names]
    events += [{"name": "layers.3.n9_kernel_time", "args": {"op_name": "MatMulNBits"}}, {"name": "model_run"}]
    assert experts.looked_up(events) == 2


def speaking(name: str) -> dict[str, Any]:
    """A tiny config with room for every token of the tokenizer that travels along."""
    config = tiny.published(tiny.tiny_config(name))
    text = config.get("text_config", config)
    text["vocab_size"] = text["vocab_size_per_layer_input"] = checkpoints.SMALLEST
    return config


@pytest.mark.parametrize("name", ["text", "target"])
def test_a_random_checkpoint_can_be_read_and_built(tmp_path: Path, name: str) -> None:
    config = speaking(name)
    nbytes = checkpoints.write(config, tmp_path / "source")
    read = open_checkpoint(tmp_path / "source")
    assert sum(tensor.nbytes for tensor in read.tensors.values()) == nbytes
    prefix = "model.language_model." if name == "target" else "model."
    weight = read.tensors[prefix + "layers.0.mlp.up_proj.weight"].array().astype(np.float32)
    assert weight.std() == pytest.approx(weight.shape[1] ** -0.5, rel=0.1)
    assert (read.tensors[prefix + "norm.weight"].array() == 1).all()
    assert any("vision_tower" in key for key in read.tensors) is (name == "target")
    built = cabochon.build(tmp_path / "source", tmp_path / "package", precision="bf16", license="apache-2.0")
    assert (built.path / "model.onnx.data").stat().st_size >= 2 * weight.size


def test_large_tensors_repeat_one_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "BLOCK", 1000)
    config = tiny.published(tiny.tiny_config("text"))
    checkpoints.write(config, tmp_path / "source")
    table = open_checkpoint(tmp_path / "source").tensors["model.embed_tokens.weight"]
    flat = table.array().reshape(-1)
    assert prod(table.shape) == len(flat) == 512 * 64
    assert (flat[:1000] == flat[1000:2000]).all()
    assert (flat[32000:] == flat[:768]).all()


def test_anonymous_memory_of_a_child_is_seen() -> None:
    run = watch.python("import time; x = bytearray(150_000_000); time.sleep(0.3); print(len(x))")
    assert run.said == 150_000_000
    assert 150e6 < run.anonymous <= run.resident < 250e6
    assert run.seconds > 0.3
    with pytest.raises(RuntimeError, match="ended with 3: so far"):
        watch.python("print('so far'); raise SystemExit(3)")


def test_builds_are_measured_against_copies(tmp_path: Path) -> None:
    source = building.checkpoint(speaking("text"), tmp_path / "source")
    rows = list(building.against_copy("tiny", source, tmp_path, rounds=1))
    assert [row.what for row in rows] == [
        "build tiny, default f16 (cast)",
        "build tiny, default bf16 (same dtype)",
        "build tiny, cuda f16 (cast, per-layer table split by layers)",
    ]
    for row, limit in zip(rows, (1.5, 1.1, 1.5), strict=True):
        assert row.aim == f"≤ {limit} ×, < 300 MB"
        assert row.met is (float(row.ratio) <= limit)
        assert "inside `build`" in row.ours
    assert sorted(p.name for p in tmp_path.iterdir()) == ["source"]


def test_validation_is_measured(tmp_path: Path) -> None:
    package = validation.hollow(speaking("text"), tmp_path)
    data = package / "model.onnx.data"
    assert data.stat().st_size > 0 and not any(data.read_bytes()), "holes"
    quick = validation.quick(package, rounds=1)
    assert quick.aim == "< 3 s, < 500 MB" and "MB resident" in quick.ours
    (full,) = validation.full(
        "tiny", building.checkpoint(speaking("text"), tmp_path / "source"), tmp_path, rounds=1
    )
    assert full.what.startswith("validate tiny in full (") and full.met is (float(full.ratio) <= 1.25)
    rules = [int(row.what.split(" rules")[0].split()[-1].strip("(")) for row in (quick, full)]
    assert 100 < rules[0] < rules[1], "weights are read by the second alone"


def test_running_is_measured(packages: Packages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "DEPTHS", (16, 200))
    package = packages("miniature", precision="f16")
    decoder = running.Decoder(package)
    row = running.prefill(package, repeats=1)
    assert row.aim == "≥ 3.5 ×"
    rows = list(running.decoding(decoder, repeats=1))
    assert [r.what.split(",")[0] for r in rows] == [
        "decode one token after 16",
        "decode one token after 200",
    ]
    assert rows[0].ratio == "1.00 of 16"
    plan = running.planned(SOURCES["miniature"])
    assert running.disk(package, plan).met
    run, memory = running.load_and_run(package, plan)
    assert "first token" in run.ours
    assert memory.against == run.against
    assert memory.ratio.endswith("of anonymous")


def test_memory_of_a_session_is_compared_with_the_weights_that_are_multiplied(packages: Packages) -> None:
    package = packages("miniature")
    tables = ("model.embed_tokens_per_layer.weight",)
    import onnx

    graph = onnx.load_model(str(package / "model.onnx"), load_external_data=False).graph
    sizes = {t.name: 4 * prod(t.dims) for t in graph.initializer if t.external_data}
    assert running.multiplied(package / "model.onnx") == sum(sizes.values()) - sum(sizes[t] for t in tables)
    row = running.memory(package)
    assert row.met is (float(row.ratio) <= 1.25)
    assert "GB anonymous" in row.ours


def test_spellings_of_one_checkpoint_are_measured_in_turns(
    packages: Packages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "DEEP", 100)
    found = {target: packages("miniature", target) for target in running.SPELLINGS}
    rows = list(running.spellings(found, "f32", repeats=1))
    assert [row.against.split(",")[0] for row in rows] == ["graph of `onnx-standard`", "graph of `cuda`"]
    calls: list[str] = []
    assert running.interleaved([lambda: calls.append("a") or 1.0, lambda: calls.append("b") or 2.0], 3) == [
        1,
        2,
    ]
    assert "".join(calls) == "ababab"


def test_speculation_is_measured_against_plain_decoding(
    pairs: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speculation, "PROMPTS", 2)
    monkeypatch.setattr(speculation, "NEW", 12)
    rows = list(speculation.speculation(pairs("miniature"), "f32", repeats=1))
    assert [row.what.split(", ", 2)[2] for row in rows] == [
        f"{way.what}: 2 answers of 12 tokens" for way in speculation.WAYS
    ]
    for row in rows:
        assert (row.aim, row.met) == ("the same tokens", True)
        tokens, rounds = float(row.ours.split()[0]), row.ours.partition("1 …: ")[2].partition(")")[0]
        assert 0.5 < tokens <= 7 and 2 <= sum(map(int, rounds.split())) <= 2 * 11
        assert float(row.ratio.removesuffix(" × the speed")) > 0


def test_speculation_is_summed_over_answers() -> None:
    rounds = [Round(4, 4, 4, 0.1, 0.1), Round(4, 0, 1, 0.1, 0.1), Round(4, 1, 2, 0.1, 0.1)]
    figures = Tally("drafter", rounds, read_again=1).figures(9)
    said = Generation("", [*range(9)], "length", [2], Timings(1, 0, 9, 0.1, 0.9), figures)
    found = speculation.Sums()
    found.add(said, 3.0, said, 2.0)
    found.add(said, 3.0, replace(said, ids=[*range(1, 10)]), 1.0)
    row = speculation._row(speculation.WAYS[0], "f32", found)
    assert row.what.endswith("f32, greedy, 4 proposals: 2 answers of 96 tokens")
    assert row.ours == (
        "2.00 tokens a target call, 1.67 kept in a round (rounds that kept 0, 1 …: 2 2 0 0 2), 3.00 s"
    )
    assert (row.against, row.ratio) == ("plain decoding by turns: 6.00 s", "2.00 × the speed")
    assert row.met is False, "one answer has other tokens"


def test_beginnings_are_pieces_of_the_held_out_text(pairs: Pairs) -> None:
    model = pairs.model("miniature")
    found = speculation.beginnings(model)
    assert len({tuple(ids) for ids in found}) == 16
    assert all(len(ids) == 64 and ids[0] == 2 and 2 not in ids[1:] for ids in found)


def test_a_part_that_fails_is_a_missed_row_and_the_next_one_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(work: Path, *_: object) -> Iterator[Row]:
        (work / "left").write_text("x")
        yield Row("first", "1 s")
        raise RuntimeError("no | space")

    monkeypatch.setattr(bench_main, "PARTS", {"a": breaks, "b": lambda *_: [Row("second", "2 s")]})
    rows = list(bench_main.measured(["a", "b"], tmp_path, 1, 1))
    assert [row.what for row in rows] == ["first", "a", "second"]
    assert rows[1] == Row("a", "not measured: RuntimeError: no / space", met=False)
    assert list(tmp_path.iterdir()) == []


def test_caches_are_fed_at_the_depth_asked_for_and_sliding_ones_cut(packages: Packages) -> None:
    decoder = running.Decoder(packages("miniature"))
    fed = dict(decoder._feeds(1, 200, 1))
    assert fed["attention_mask"].shape == (1, 201)
    assert fed["past_key_values.0.key"].shape == (1, 1, 31, 32)
    assert fed["past_key_values.4.key"].shape == (1, 1, 200, 64)
    assert fed["past_key_values.4.key"].std() == pytest.approx(1, abs=0.05)


def test_import_time_is_a_row() -> None:
    row = installing.import_time()
    assert row.aim == "< 0.3 s"
    assert 0 < float(row.ours.removesuffix(" s")) < 5


def test_the_table_says_when_where_and_what_was_missed(tmp_path: Path) -> None:
    rows = [Row("a", "1 s", "b: 2 s", "0.50", "≤ 1 ×", True), Row("c", "3 s", aim="< 1 s", met=False)]
    table = markdown(rows, scale=1.0)
    assert "| a | 1 s | b: 2 s | 0.50 | ≤ 1 × | yes |" in table
    assert "| c | 3 s |  |  | < 1 s | **no: missed** |" in table
    assert "**1 of 2 aims are missed: c.**" in table
    assert "All 1 aims are met." in markdown(rows[:1], scale=1.0)
    assert table.startswith("Measured on 20")
    assert "cores of" in table
    assert "no figures to quote" not in table
    assert "no figures to quote" in markdown(rows, scale=0.1)
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{START}\nold\n{END}\nafter\n")
    write_into(readme, table)
    write_into(readme, table)
    assert readme.read_text() == f"before\n{START}\n{table}{END}\nafter\n"
    readme.write_text("nothing")
    with pytest.raises(SystemExit, match="lacks the markers"):
        write_into(readme, table)


def test_installed_files_are_counted_without_pip_and_bytecode(tmp_path: Path) -> None:
    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    for name in (
        "numpy/a.so",
        "numpy/__pycache__/a.cpython-311.pyc",
        "pip/b.py",
        "pip-1.dist-info/c",
        "d.pyc",
    ):
        (packages / name).parent.mkdir(parents=True, exist_ok=True)
        (packages / name).write_text("x")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").write_text("x")
    assert [path.name for path in installing._counted(tmp_path)] == ["a.so"]
