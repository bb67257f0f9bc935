"""Bytes a request takes, and what the system has."""

from pathlib import Path

import numpy as np
import pytest

from cabochon.errors import RequestError
from cabochon.runtime import memory
from cabochon.runtime.ports import Cache, Contract, Ports

E2B = Ports(
    Contract("default", "f16", "anywhere", 131072, 512),
    np.dtype(np.float16),
    tuple(Cache(f"past_key_values.{i}.{p}", "", 1, 512 if i in (4, 9, 14) else 256, i not in (4, 9, 14))
          for i in range(15) for p in ("key", "value")),
    262144,
    "hidden_states.34",
    True,
)  # fmt: skip


def test_available_is_the_least_of_what_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "meminfo").write_text("MemTotal: 100 kB\nMemAvailable:      50 kB\n")
    for name, text in {
        "memory.max": "40000",
        "memory.current": "10000",
        "memory.stat": "anon 1\ninactive_file 500\n",
    }.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(memory, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    assert memory.available() == 30500
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.available() == 51200


def test_available_here_is_a_number():
    assert (memory.available() or 0) > 1 << 20


def test_full_caches_grow_and_sliding_ones_do_not():
    def need(tokens: int) -> int:
        return memory.needed(E2B, rows=1, tokens=tokens, chunk=1, sliding=600, heads=8)

    full = 2 * 3 * 512 * 2
    assert (
        need(9001) - need(9000) == 2 * full + 33
    )  # past and present, and one more key in each head's scores
    assert need(32768) < 2 * full * 32768 + 2 * (2 * 12 * 256 * 2) * 601 + 33 * 32768 + 10 * 262144 + 1


def test_more_than_there_is_states_the_bytes():
    with pytest.raises(RequestError) as caught:
        memory.check_fits(5_000_000, 1_000_000, held=500_000, tokens=131072)
    text = str(caught.value)
    assert "131072 tokens of context need about 5,000,000 bytes" in text
    assert "500,000 bytes of it already held" in text
    assert "1,000,000 bytes are available" in text
    assert "prefill_chunk" in text


@pytest.mark.parametrize(("need", "have", "held"), [(10, 10, 0), (15, 10, 5), (10, None, 0)])
def test_what_fits_passes(need: int, have: int | None, held: int):
    memory.check_fits(need, have, held=held, tokens=1)
