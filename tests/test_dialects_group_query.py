"""Caches that the graph updates in place: the past and the present are one buffer with room for more tokens."""

from collections.abc import Sequence

import numpy as np
import onnxruntime as ort
import pytest

import checkpoints
from graphs import NUMPY, Graph, difference

TINY = checkpoints.TINY / "text"
TARGETS = ("cuda", "webgpu")
EXACT = 1e-4


class InPlace:
    """A graph whose caches are buffers of `capacity` columns, bound as past and as present. They begin as NaN."""

    def __init__(self, graph: Graph, capacity: int, rows: int = 1) -> None:
        self.graph, self.buffers = graph, {}
        for i in graph.config.owners:
            layer = graph.config.layers[i]
            shape = (rows, layer.kv_heads, capacity, layer.head_dim)
            for part in ("key", "value"):  # each an array of its own: an OrtValue is a view of it
                empty = np.full(shape, np.nan, graph.dtype)
                self.buffers[f"{i}.{part}"] = ort.OrtValue.ortvalue_from_numpy(empty)

    def run(self, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Logits [B, S, V]."""
        binding = self.graph.session.io_binding()
        binding.bind_cpu_input("input_ids", np.atleast_2d(ids))
        binding.bind_cpu_input("attention_mask", np.atleast_2d(mask).astype(np.int64))
        for name, buffer in self.buffers.items():
            binding.bind_ortvalue_input(f"past_key_values.{name}", buffer)
            binding.bind_ortvalue_output(f"present.{name}", buffer)
        binding.bind_output("logits")
        self.graph.session.run_with_iobinding(binding)
        return binding.get_outputs()[len(self.buffers)].numpy()


def ids(length: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(24, 512, length)


def fed(in_place: InPlace, tokens: np.ndarray, ends: Sequence[int]) -> np.ndarray:
    """The logits of all tokens, fed in pieces that end at `ends`."""
    starts = [0, *ends[:-1]]
    return np.concatenate(
        [in_place.run(tokens[a:b], np.ones(b))[0] for a, b in zip(starts, ends, strict=True)]
    )


@pytest.fixture(scope="module", params=[(t, p) for t in TARGETS for p in ("f32", "f16")], ids="-".join)
def graph(request: pytest.FixtureRequest) -> Graph:
    return Graph(TINY, *request.param)


@pytest.mark.parametrize(
    "ends",
    [[29], [20, *range(21, 30)], [7, 16, 29], [*range(1, 30)], [8, 9, 28, 29]],
    ids=["prefill", "steps", "chunks", "all steps", "mixed"],
)
@pytest.mark.parametrize("capacity", [29, 30, 64])
def test_one_buffer_equals_grown_caches(graph: Graph, ends: list[int], capacity: int) -> None:
    tokens, past, expected = ids(29), None, []
    for start, end in zip([0, *ends[:-1]], ends, strict=True):
        found = graph.run(tokens[start:end], past=past)
        past, expected = graph.past(found), [*expected, found["logits"][0]]
    found = fed(InPlace(graph, capacity), tokens, ends)
    exact = EXACT if graph.dtype == NUMPY["f32"] else 1e-2
    assert difference(found, np.concatenate(expected)) < exact


def test_what_was_taken_back_is_written_over(graph: Graph) -> None:
    """Rewinding a buffer is only a shorter mask: what lies behind it is not read."""
    kept, dropped, other = ids(20), ids(9, seed=1), ids(6, seed=2)
    in_place = InPlace(graph, 40)
    fed(in_place, np.concatenate([kept, dropped]), [20, 26, 29])
    found = in_place.run(other, np.ones(26))[0]
    expected = fed(InPlace(graph, 40), np.concatenate([kept, other]), [20, 26])[20:]
    assert difference(found, expected) < 1e-6


def test_rows_of_different_length(graph: Graph) -> None:
    lengths, tokens = [12, 7], [ids(20, seed) for seed in (3, 4)]
    in_place = InPlace(graph, 32, rows=2)
    mask = (np.arange(12)[None] < np.array(lengths)[:, None]).astype(np.int64)
    rows = np.stack([np.where(m == 1, t[:12], 7) for t, m in zip(tokens, mask, strict=True)])
    first = in_place.run(rows, mask)
    found = [first[np.arange(2), np.array(lengths) - 1][:, None]]
    for step in range(6):
        mask = (np.arange(13 + step)[None] < np.array(lengths)[:, None] + step + 1).astype(np.int64)
        found.append(
            in_place.run(np.array([[t[n + step]] for t, n in zip(tokens, lengths, strict=True)]), mask)
        )
    exact = EXACT if graph.dtype == NUMPY["f32"] else 1e-2
    for row, (t, n) in enumerate(zip(tokens, lengths, strict=True)):
        expected = graph.run(t[: n + 6])["logits"][0][n - 1 :].astype(np.float32)
        assert difference(np.concatenate([f[row] for f in found]), expected) < exact
