"""The comparison with llama.cpp: the file that is written for it, and what is made of two sides' figures."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cabochon.checkpoint import open_checkpoint
from cabochon.demo import MINIATURE

sys.path.insert(0, str(Path(__file__).parents[1]))
from bench import beside, gguf, operators, quantized
from bench.beside import Figures
from bench.quantized import Given
from bench.table import markdown

SOURCE = MINIATURE / "target"
FIGURES = Figures("about", 1.0, 10**9, 2 * 10**9, 0.5, 0.03, 9.0, 0.06)


@pytest.mark.parametrize("f32", [False, True])
def test_a_gguf_file_holds_every_tensor_under_llama_cpps_names(tmp_path: Path, f32: bool) -> None:
    file = gguf.write(SOURCE, tmp_path / "a.gguf", f32=f32)
    held, tensors = gguf.read(file), open_checkpoint(SOURCE).tensors
    assert len(held) == len(tensors) + 1
    assert held["blk.9.ffn_gate.weight"] == gguf.Held(
        "F32" if f32 else "BF16", 512 * 128, (4 if f32 else 2) * 512 * 128
    )
    assert held["output_norm.weight"].type == "F32"
    assert {name.split(".")[2] for name in held if name.startswith("blk.9.")} == {*gguf.LAYER.values()} - {
        "attn_k",
        "attn_k_norm",
        "attn_v",
    }
    data = file.read_bytes()
    assert np.frombuffer(data[-128:], np.float32).tolist() == [1.0] * 8 + [np.float32(1e30)] * 24
    table = tensors["model.embed_tokens.weight"].array()
    assert (table.astype(np.float32) if f32 else table).tobytes() in data
    sizes = sum(-(-its.nbytes // 32) * 32 for its in held.values())
    assert 0 < len(data) - sizes < 20_000


def test_rows_of_two_sides_have_aims_on_two_threads_only() -> None:
    theirs = Figures("llama", 2.0, 10**9, 10**9, 1.75, 0.06, 9.0, 0.06)
    load, prefill, decode, _, deep = beside.rows("it", {"ours": FIGURES, "llama.cpp": theirs}, 2, 4096)
    assert load.against == "llama: 2.0 s, 1.00 GB anonymous, 1.00 GB file-backed"
    assert (prefill.ratio, prefill.aim, prefill.met) == ("3.50 × faster", "≥ 4.0 × (gate 3.0 ×)", False)
    assert "prefill of 256 tokens, last logits, it, 2 threads (the gate of 3.0 × is met)" in markdown(
        [prefill], 1
    )
    slow = {"ours": FIGURES, "llama.cpp": replace(theirs, decode=0.036)}
    assert "(the gate of 1.3 × is missed too)" in markdown(list(beside.rows("it", slow, 2, 4096)), 1)
    assert (decode.ours, decode.against, decode.met) == ("30.0 ms", "llama.cpp: 60.0 ms", True)
    assert (deep.ratio, deep.met) == ("1.00 × faster", None)
    assert all(row.met is None for row in beside.rows("it", {"ours": FIGURES, "llama.cpp": theirs}, 1, 4096))


def test_without_llama_cpp_rows_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = list(beside.rows("it", {"ours": FIGURES}, 2, 4096))
    assert all(beside.VARIABLE in row.against and row.met is None for row in rows)
    assert rows[1].ours == "500.0 ms"
    with pytest.raises(RuntimeError, match=r"pip install llama-cpp-python==0\.3\.36"):
        quantized.llama_python("/bin/false")


def test_operators_are_summed_after_the_first_run() -> None:
    def kernel(name: str, ts: int, dur: int) -> dict:
        return {"cat": "Node", "name": f"{name}_kernel_time", "ts": ts, "dur": dur, "args": {"op_name": name}}

    def run(ts: int, dur: int) -> dict:
        return {"cat": "Session", "name": "model_run", "ts": ts, "dur": dur}

    events = [
        kernel("Add", 0, 50),
        run(0, 60),
        kernel("Add", 70, 3),
        kernel("MatMulNBits", 80, 9),
        run(65, 40),
    ]
    assert operators.by_operator(events) == {"Add": 3, "MatMulNBits": 9}


def test_a_checkpoint_is_made_only_where_it_is_needed() -> None:
    here = Path()
    assert quantized._needs_source(Given(), None)
    assert not quantized._needs_source(Given(package=here), None)
    assert quantized._needs_source(Given(package=here), "python")
    assert not quantized._needs_source(Given(package=here, gguf=here), "python")
