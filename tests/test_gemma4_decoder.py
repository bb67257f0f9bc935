"""The decoder graph against the NumPy oracle: every target, every way of feeding it that the ports allow."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import checkpoints
from graphs import Graph, Oracle, Past, difference, random_checkpoint

EXACT = 1e-4
TINY = checkpoints.TINY / "text"
WINDOW = 8  # of the tiny checkpoint
ANYWHERE, LEFT_JUSTIFIED = ("default", "onnx-standard"), ("cuda", "webgpu")
S, F = "sliding_attention", "full_attention"
VARIANTS = {
    "no per-layer inputs, nothing shared, values from keys, untied, no soft cap": dict(
        hidden_size_per_layer_input=0,
        num_kv_shared_layers=0,
        attention_k_eq_v=True,
        num_key_value_heads=2,
        num_global_key_value_heads=1,
        use_double_wide_mlp=False,
        tie_word_embeddings=False,
        final_logit_softcapping=None,
        layer_types=[S, F, S, S, F, F],
        num_hidden_layers=6,
    ),
    "several kv heads, a borrower far from its owner": dict(
        num_key_value_heads=2,
        layer_types=[F, S, S, F, S, F, F, S, F],
        num_hidden_layers=9,
        num_kv_shared_layers=6,
        sliding_window=5,
    ),
    "only full attention": dict(
        layer_types=[F] * 4, num_hidden_layers=4, num_kv_shared_layers=2, use_double_wide_mlp=False
    ),
}


def ids(length: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(24, 512, length)


@pytest.fixture(scope="module")
def truth() -> Oracle:
    return Oracle(TINY)


@pytest.fixture(scope="module", params=ANYWHERE + LEFT_JUSTIFIED)
def graph(request: pytest.FixtureRequest) -> Graph:
    return Graph(TINY, request.param)


@pytest.fixture(scope="module", params=ANYWHERE)
def anywhere(request: pytest.FixtureRequest) -> Graph:
    return Graph(TINY, request.param)


@pytest.fixture(scope="module", params=LEFT_JUSTIFIED)
def left_justified(request: pytest.FixtureRequest) -> Graph:
    return Graph(TINY, request.param)


@pytest.mark.parametrize("length", [1, WINDOW - 1, WINDOW, WINDOW + 1, 2 * WINDOW + 3, 60])
def test_one_pass_at_the_edges_of_the_window(graph: Graph, truth: Oracle, length: int) -> None:
    found, (logits, hidden) = graph.run(ids(length)), truth.run(ids(length))
    assert difference(found["logits"][0], logits) < EXACT
    assert difference(found["hidden_states.9"][0], hidden) < EXACT


@pytest.mark.parametrize("chunk", [1, 3, WINDOW, WINDOW + 1])
def test_chunks_equal_one_pass(graph: Graph, truth: Oracle, chunk: int) -> None:
    tokens, past, logits = ids(29), None, []
    for start in range(0, len(tokens), chunk):
        found = graph.run(tokens[start : start + chunk], past=past)
        past = graph.past(found)
        logits.append(found["logits"][0])
    assert difference(np.concatenate(logits), truth.run(tokens)[0]) < EXACT


@pytest.mark.parametrize("keep, kept", [(1, 1), (5, 5), (29, 29), (100, 29), (0, 29)])
def test_kept_positions_are_those_of_a_full_pass(graph: Graph, truth: Oracle, keep: int, kept: int) -> None:
    found, (logits, hidden) = graph.run(ids(29), keep=keep), truth.run(ids(29))
    assert difference(found["logits"][0], logits[-kept:]) < EXACT
    assert difference(found["hidden_states.9"][0], hidden[-kept:]) < EXACT
    assert found["present.4.key"].shape[2] == 29, "keys and values are those of every token"


def test_the_default_number_of_kept_positions_is_stored_in_the_graph() -> None:
    graph = Graph(TINY, "default", keep=2)
    assert graph.run(ids(9))["logits"].shape[1] == 2
    assert graph.run(ids(9), keep=0)["logits"].shape[1] == 9


@pytest.mark.parametrize("target", ANYWHERE + LEFT_JUSTIFIED)
def test_a_graph_that_keeps_the_last_position_says_so(target: str, truth: Oracle) -> None:
    graph = Graph(TINY, target, keep=1)
    shapes = {output.name: output.shape for output in graph.session.get_outputs()}
    assert (shapes["logits"][1], shapes["hidden_states.9"][1]) == (1, 1)
    optional = [value.name for value in graph.session.get_overridable_initializers()]
    assert "logits_to_keep" not in optional
    logits, hidden = truth.run(ids(29))
    found = graph.run(ids(29))
    assert difference(found["logits"][0], logits[-1:]) < EXACT
    assert difference(found["hidden_states.9"][0], hidden[-1:]) < EXACT


@pytest.mark.parametrize("chunk", [1, 4, WINDOW + 2])
def test_sliding_caches_may_be_evicted_to_the_window(graph: Graph, truth: Oracle, chunk: int) -> None:
    tokens, start = ids(40), 21
    past = graph.past(graph.run(tokens[:start]), evict=start - (WINDOW - 1))
    logits, evicted = [], start - (WINDOW - 1)
    for begin in range(start, len(tokens), chunk):
        new = tokens[begin : begin + chunk]
        found = graph.run(new, mask=np.ones(begin + len(new)), past=past)
        drop = found["present.0.key"].shape[2] - (WINDOW - 1)
        past, evicted = graph.past(found, evict=drop), evicted + drop
        logits.append(found["logits"][0])
    assert past[0][0].shape[2] == WINDOW - 1 and past[4][0].shape[2] == len(tokens)
    assert difference(np.concatenate(logits), truth.run(tokens)[0][start:]) < EXACT


def test_evicting_one_entry_too_many_shows(anywhere: Graph, truth: Oracle) -> None:
    tokens = ids(30)
    past = anywhere.past(anywhere.run(tokens[:20]), evict=20 - (WINDOW - 2))
    found = anywhere.run(tokens[20:21], mask=np.ones(21), past=past)
    assert difference(found["logits"][0], truth.run(tokens[:21])[0][-1:]) > 100 * EXACT


# Zeros in the mask


def spread(tokens: np.ndarray, zeros: list[int], length: int) -> tuple[np.ndarray, np.ndarray]:
    """The tokens in a row of `length` columns that leaves out the columns `zeros`, and its mask."""
    mask = np.ones(length, np.int64)
    mask[zeros] = 0
    row = np.full(length, 7)
    row[mask == 1] = tokens
    return row, mask


@pytest.mark.parametrize("keep", [0, 1, 4])
def test_padding_may_stand_anywhere(anywhere: Graph, truth: Oracle, keep: int) -> None:
    places = [[], [0, 1, 2, 3, 4, 5], [17, 18, 19], [0, 6, 7, 8, 13, 19], list(range(1, 20))]
    rows = [spread(ids(20 - len(zeros), seed), zeros, 20) for seed, zeros in enumerate(places)]
    mask = np.stack([m for _, m in rows])
    found = anywhere.run(np.stack([r for r, _ in rows]), mask=mask, keep=keep)["logits"]
    for row, (tokens, real) in enumerate(rows):
        expected = truth.run(tokens[real == 1])[0]
        if keep == 0:
            assert difference(found[row][real == 1], expected) < EXACT
        else:
            kept = min(keep, len(expected))
            assert difference(found[row][-kept:], expected[-kept:]) < EXACT
    assert np.isfinite(found).all()


def test_rejected_drafts_may_stay_in_the_cache(anywhere: Graph, truth: Oracle) -> None:
    """Three tokens that were rejected change nothing: a window counted in columns is wrong by 0.8 here."""
    tokens = ids(30)
    past = anywhere.past(anywhere.run(np.concatenate([tokens[:20], [91, 92, 93]])))
    mask = np.concatenate([np.ones(20), np.zeros(3), np.ones(10)])
    found = anywhere.run(tokens[20:], mask=mask, past=past)
    assert difference(found["logits"][0], truth.run(tokens)[0][20:]) < EXACT


def test_ragged_batches_decode_with_the_mask(anywhere: Graph, truth: Oracle) -> None:
    lengths, steps = [3, 11, 20], 12
    tokens = [ids(length + steps, seed) for seed, length in enumerate(lengths)]
    rows = [
        spread(t[:length], list(range(20 - length)), 20) for t, length in zip(tokens, lengths, strict=True)
    ]
    mask = np.stack([m for _, m in rows])
    found = anywhere.run(np.stack([r for r, _ in rows]), mask=mask, keep=1)
    for step in range(steps):
        new = np.array([[t[length + step]] for t, length in zip(tokens, lengths, strict=True)])
        mask = np.concatenate([mask, np.ones((3, 1), np.int64)], axis=1)
        found = anywhere.run(new, mask=mask, past=anywhere.past(found))
    for row, t in enumerate(tokens):
        assert difference(found["logits"][row], truth.run(t)[0][-1:]) < EXACT


# Left-justified rows


def justified(lengths: list[int], width: int) -> np.ndarray:
    return (np.arange(width)[None] < np.array(lengths)[:, None]).astype(np.int64)


@pytest.mark.parametrize("keep", [0, 1, 20, 100])
def test_left_justified_prefill(left_justified: Graph, truth: Oracle, keep: int) -> None:
    lengths = [20, 3, 11]
    rows = np.stack([np.pad(ids(n, seed), (0, 20 - n), constant_values=7) for seed, n in enumerate(lengths)])
    found = left_justified.run(rows, mask=justified(lengths, 20), keep=keep)["logits"]
    for row, length in enumerate(lengths):
        expected = truth.run(ids(length, row))[0]
        real = found[row] if keep == 1 else found[row][:length]
        assert difference(real, expected[-1:] if keep == 1 else expected) < EXACT


@pytest.mark.parametrize("evict", [0, 1, 3])
def test_left_justified_steps(left_justified: Graph, truth: Oracle, evict: int) -> None:
    lengths, steps = [20, 12, 15], 14
    tokens = [ids(n + steps, seed) for seed, n in enumerate(lengths)]
    rows = np.stack([np.pad(t[:n], (0, 20 - n)) for t, n in zip(tokens, lengths, strict=True)])
    found = left_justified.run(rows, mask=justified(lengths, 20), keep=1)
    for step in range(steps):
        lengths = [n + 1 for n in lengths]
        new = np.array([[t[n - 1]] for t, n in zip(tokens, lengths, strict=True)])
        past = left_justified.past(found, evict=evict if step == 0 else 0)
        found = left_justified.run(new, mask=justified(lengths, 21 + step), past=past)
        for row, (t, n) in enumerate(zip(tokens, lengths, strict=True)):
            assert difference(found["logits"][row], truth.run(t[:n])[0][-1:]) < EXACT


# Other members of the family


@pytest.mark.parametrize("target", ANYWHERE + LEFT_JUSTIFIED)
@pytest.mark.parametrize("variant", VARIANTS)
def test_other_geometries(tmp_path: Path, target: str, variant: str) -> None:
    folder = random_checkpoint(tmp_path, **VARIANTS[variant])
    graph, truth = Graph(folder, target), Oracle(folder)
    tokens = ids(23)
    logits, hidden = truth.run(tokens)
    found = graph.run(tokens)
    assert difference(found["logits"][0], logits) < EXACT
    assert difference(found[f"hidden_states.{len(graph.config.layers) - 1}"][0], hidden) < EXACT
    assert difference(graph.run(tokens, keep=2)["logits"][0], logits[-2:]) < EXACT
    past = graph.past(graph.run(tokens[:17]))
    assert difference(graph.run(tokens[17:], past=past)["logits"][0], logits[17:]) < EXACT


Far = Callable[[Graph, int], tuple[Past, np.ndarray]]


@pytest.fixture(scope="module")
def far(truth: Oracle) -> Far:
    """Keys and values of so many tokens, and the logits of token 55 behind them: the same for every target."""
    made: dict[int, tuple[Past, np.ndarray]] = {}

    def make(graph: Graph, position: int) -> tuple[Past, np.ndarray]:
        if position not in made:
            rng = np.random.default_rng(position)
            past = {
                i: tuple(
                    rng.standard_normal((1, layer.kv_heads, position, layer.head_dim), np.float32) * 0.3
                    for _ in range(2)
                )
                for i, layer in enumerate(graph.config.layers[: graph.config.first_shared])
            }
            made[position] = past, truth.run([55], past=past, start=position)[0]
        return made[position]

    return make


@pytest.mark.parametrize("position", [300, 4096, 131_071])
def test_far_positions(graph: Graph, far: Far, position: int) -> None:
    """Angles are computed in f32 from the position itself: there is no table to run out of."""
    past, expected = far(graph, position)
    assert difference(graph.run([55], past=past)["logits"][0], expected) < EXACT


def test_half_precision_stays_close(truth: Oracle) -> None:
    for target in ANYWHERE + LEFT_JUSTIFIED:
        found = Graph(TINY, target, "f16").run(ids(40))["logits"][0]
        assert found.dtype == np.float16
        assert difference(found, truth.run(ids(40))[0]) < 2e-2


def test_nothing_behind_the_last_key_of_a_row_is_read(left_justified: Graph, truth: Oracle) -> None:
    """What the kernel left behind the last key may be anything: here it is NaN."""
    lengths = [20, 12]
    tokens = [ids(n + 1, seed) for seed, n in enumerate(lengths)]
    rows = np.stack([np.pad(t[:n], (0, 20 - n)) for t, n in zip(tokens, lengths, strict=True)])
    past = left_justified.past(left_justified.run(rows, mask=justified(lengths, 20), keep=1))
    for key, value in past.values():
        key[1, :, 12:], value[1, :, 12:] = np.nan, np.nan
    new = np.array([[t[n]] for t, n in zip(tokens, lengths, strict=True)])
    found = left_justified.run(new, mask=justified([21, 13], 21), past=past)["logits"]
    for row, t in enumerate(tokens):
        assert difference(found[row], truth.run(t)[0][-1:]) < EXACT


# The attention of the published E2B, narrow in all the rest

E2B_ATTENTION = dict(
    layer_types=([S] * 4 + [F]) * 7,
    num_hidden_layers=35,
    num_kv_shared_layers=20,
    num_attention_heads=8,
    head_dim=256,
    global_head_dim=512,
    sliding_window=512,
    hidden_size=96,
    max_position_embeddings=131_072,
)


@pytest.fixture(scope="module")
def narrow_e2b(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_checkpoint(tmp_path_factory.mktemp("e2b"), **E2B_ATTENTION)


@pytest.fixture(scope="module")
def narrow_truth(narrow_e2b: Path) -> Oracle:
    return Oracle(narrow_e2b)


@pytest.mark.parametrize("target", ANYWHERE + LEFT_JUSTIFIED)
def test_the_attention_of_e2b(narrow_e2b: Path, narrow_truth: Oracle, target: str) -> None:
    graph, tokens = Graph(narrow_e2b, target), ids(524)
    logits, _ = narrow_truth.run(tokens)
    first = graph.run(tokens[:520], keep=3)
    assert difference(first["logits"][0], logits[517:520]) < EXACT
    second = graph.run(tokens[520:], mask=np.ones(524), past=graph.past(first, evict=520 - 511))
    assert difference(second["logits"][0], logits[520:]) < EXACT


def test_the_first_feeds_ever_published_for_it_run_as_written(narrow_e2b: Path) -> None:
    """The lines of the model card that this project began with; only the session is made beforehand."""
    s = Graph(narrow_e2b, "cuda", "f16").session
    ids_ = np.array([[2, 105, 236, 107]])
    scope = {"np": np, "s": s, "ids": ids_}
    exec(
        """
S = ids.shape[1]                          # int64 [1, S] prompt token ids
feeds = {"input_ids": ids, "attention_mask": np.ones((1, S), np.int64)}
head = {4:512,9:512,14:512}               # full layers use head_dim 512, else 256
for i in range(15):
    hd = head.get(i, 256)
    feeds[f"past_key_values.{i}.key"]   = np.zeros((1,1,0,hd), np.float16)
    feeds[f"past_key_values.{i}.value"] = np.zeros((1,1,0,hd), np.float16)
logits = s.run(["logits"], feeds)[0]       # [1, S, 262144]
""",
        scope,
    )
    assert scope["logits"].shape == (1, 4, 512)
    assert difference(scope["logits"][0], Oracle(narrow_e2b).run(ids_[0])[0]) < 2e-2
