"""The drafter's graph against the NumPy oracle and recorded steps: every target, every way of feeding its ports."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import checkpoints
import oracle
from drafters import KINDS, ORDERING, Drafter, Shared, Truth, random_drafter, recorded, traced
from graphs import difference
from packages import MINIATURE

EXACT, HALF = 1e-4, 5e-3
TARGETS = ("default", "onnx-standard", "cuda", "webgpu")
CHECKPOINTS = {
    "ordered": checkpoints.TINY / "assistant",
    "dense": checkpoints.TINY / "assistant-dense",
    "trained": MINIATURE / "assistant",
}
WINDOW = 8  # of the tiny checkpoints
S, F = "sliding_attention", "full_attention"

Case = tuple[Drafter, Truth]


@pytest.fixture(scope="module", params=[(t, c) for t in TARGETS for c in CHECKPOINTS], ids="-".join)
def case(request: pytest.FixtureRequest) -> Case:
    target, checkpoint = request.param
    return Drafter(CHECKPOINTS[checkpoint], target), Truth(CHECKPOINTS[checkpoint])


@pytest.fixture(scope="module", params=TARGETS)
def ordered(request: pytest.FixtureRequest) -> Case:
    return Drafter(CHECKPOINTS["ordered"], request.param), Truth(CHECKPOINTS["ordered"])


def inputs(truth: Truth, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((*shape, 2 * truth.backbone)).astype(np.float32)


def worst(found: tuple[np.ndarray, ...], expected: tuple[np.ndarray, ...]) -> float:
    return max(difference(a, b) for a, b in zip(found, expected, strict=True))


def compared(case: Case, shared: Shared, mask: Any = None, seed: int = 0, **how: Any) -> float:
    """The largest difference of one step of one row, over logits and projected state."""
    drafter, truth = case
    x = inputs(truth, 1, 1, seed=seed)
    logits, state = drafter.run(x, shared, mask)
    return worst((logits[0, 0], state[0, 0]), truth.step(x[0, 0], shared, mask, **how))


# Steps that transformers recorded

STEPS = np.load(checkpoints.TINY / "ref" / "drafter_steps.npz")


def test_all_recorded_steps(ordered: Case) -> None:
    """Four rounds of six: right after a prefill, and after drafts were accepted in part."""
    drafter, truth = ordered
    for i in range(24):
        x, shared = recorded(STEPS, i, truth)
        logits, state = drafter.run(x, shared)
        assert difference(logits, STEPS[f"{i}.logits"]) < EXACT, i
        assert difference(state, STEPS[f"{i}.projected_state"]) < EXACT, i
        assert logits.argmax() == STEPS[f"{i}.logits"].argmax()


# Windows, masks, positions


@pytest.mark.parametrize("length", [1, 2, WINDOW, WINDOW + 1, WINDOW + 2, 31, 32, 33, 34, 60])
def test_keys_at_the_edges_of_the_windows(case: Case, length: int) -> None:
    shared = case[1].keys(np.random.default_rng(length), length)
    assert compared(case, shared) < EXACT


@pytest.mark.parametrize("behind", [1, 2, 7])
def test_a_mask_longer_than_the_keys_is_cut(case: Case, behind: int) -> None:
    shared = case[1].keys(np.random.default_rng(1), 40)
    assert compared(case, shared, np.ones(40 + behind)) < EXACT
    assert compared(case, shared, np.concatenate([np.zeros(3), np.ones(37 + behind)])) < EXACT


@pytest.mark.parametrize("more", [0, 1, 5])
def test_a_sliding_cache_may_be_evicted_to_the_last_window_plus_one_keys(case: Case, more: int) -> None:
    drafter, truth = case
    window = truth.raw["text_config"]["sliding_window"]
    whole, x = truth.keys(np.random.default_rng(2), 60), inputs(truth, 1, 1)
    evicted = whole | {S: tuple(v[:, :, -(window + 1 + more) :] for v in whole[S])}
    assert compared(case, evicted) < EXACT
    assert worst(drafter.run(x, evicted), drafter.run(x, whole)) < 1e-5
    assert compared(case, evicted, np.ones(61)) < EXACT


def test_evicting_one_key_too_many_shows(case: Case) -> None:
    """Where the target keeps no more than its own window - 1 keys, a drafter sees less than it was trained with."""
    drafter, truth = case
    window = truth.raw["text_config"]["sliding_window"]
    whole, x = truth.keys(np.random.default_rng(3), 60), inputs(truth, 1, 1)
    fewer = whole | {S: tuple(v[:, :, -window:] for v in whole[S])}
    assert compared(case, fewer) < EXACT
    assert difference(drafter.run(x, fewer)[1], drafter.run(x, whole)[1]) > 100 * EXACT


HOLES = {
    "before": [0, 1, 2],
    "rejected": [37, 38, 39],
    "both, and between": [0, 1, 11, 12, 20, 37, 38, 39],
    "within the window": [31, 33, 35, 36, 38],
    "all but one": [i for i in range(40) if i != 36],
}


@pytest.mark.parametrize("sliding", [40, 38, 16])
@pytest.mark.parametrize("holes", HOLES)
def test_zeros_may_stand_anywhere(case: Case, holes: str, sliding: int) -> None:
    drafter, truth = case
    mask = np.ones(40)
    mask[HOLES[holes]] = 0
    shared = truth.keys(np.random.default_rng(4), 40, sliding)
    assert compared(case, shared, mask) < EXACT
    dirty = {kind: tuple(v.copy() for v in pair) for kind, pair in shared.items()}
    for pair in dirty.values():
        for values in pair:
            values[:, :, mask[40 - values.shape[2] :] == 0] = 1e4
    x = inputs(truth, 1, 1)
    assert worst(drafter.run(x, dirty, mask), drafter.run(x, shared, mask)) < 1e-5, "masked keys are not read"


def test_masking_rejected_keys_equals_cutting_them(case: Case) -> None:
    drafter, truth = case
    shared, x = truth.keys(np.random.default_rng(5), 44), inputs(truth, 1, 1)
    cut = {kind: tuple(v[:, :, :41] for v in pair) for kind, pair in shared.items()}
    masked = drafter.run(x, shared, np.concatenate([np.ones(41), np.zeros(3)]))
    assert worst(masked, drafter.run(x, cut)) < 1e-5


@pytest.mark.parametrize("position", [300, 4096, 131_071])
def test_far_positions(ordered: Case, position: int) -> None:
    shared = ordered[1].keys(np.random.default_rng(position), position, 2 * WINDOW)
    assert compared(ordered, shared) < EXACT


# Several rows, several queries


@pytest.mark.parametrize("behind", [False, True], ids=["padding first", "padding last"])
def test_rows_of_different_length(case: Case, behind: bool) -> None:
    """States are those of each row alone, and so are the scores of the tokens that were scored. The other tokens of all
    rows lie 1 below the least score of the whole batch."""
    drafter, truth = case
    lengths, width = [34, 9, 40], 40
    alone = [truth.keys(np.random.default_rng(n), n) for n in lengths]
    pads = [width - n for n in lengths]
    around = [(0, pad) if behind else (pad, 0) for pad in pads]
    shared = {
        kind: tuple(
            np.concatenate([
                np.pad(row[kind][part], ((0, 0), (0, 0), space, (0, 0)), constant_values=3.0)
                for row, space in zip(alone, around, strict=True)
            ])
            for part in (0, 1)
        )
        for kind in KINDS
    }  # fmt: skip
    columns = np.arange(width)[None]
    real = columns < np.array(lengths)[:, None] if behind else columns >= np.array(pads)[:, None]
    x = inputs(truth, 3, 1)
    logits, states = drafter.run(x, shared, real)
    expected = [truth.step(x[row, 0], keys) for row, keys in enumerate(alone)]
    least = min(one.min() for one, _ in expected)
    for row, (one, state) in enumerate(expected):
        scored = truth.scored(one)
        assert difference(states[row, 0], state) < EXACT
        assert difference(logits[row, 0, scored], one[scored]) < EXACT
        assert np.abs(logits[row, 0, ~scored] - least).max(initial=0.0) < EXACT * np.abs(one).max()


def test_queries_of_one_call_stand_at_one_position(case: Case) -> None:
    drafter, truth = case
    shared, x = truth.keys(np.random.default_rng(6), 40), inputs(truth, 1, 4)
    logits, states = drafter.run(x, shared)
    expected = [truth.step(row, shared) for row in x[0]]
    least = min(one.min() for one, _ in expected)
    for query, (one, state) in enumerate(expected):
        scored = truth.scored(one)
        assert difference(states[0, query], state) < EXACT
        assert difference(logits[0, query], np.where(scored, one, least)) < EXACT


# What these tests would see


class Mutated(Truth):
    """The oracle with one thing wrong."""

    def __init__(self, what: str) -> None:
        super().__init__(CHECKPOINTS["ordered"])
        self.what = what
        if what == "three centroids of four":
            self.raw["centroid_intermediate_top_k"] = 3
        elif what == "a dense head":
            self.raw["use_ordered_embeddings"] = False
        elif what.startswith("a window of"):
            self.geometry.c["sliding_window"] = WINDOW + int(what.split()[-1])
        elif what == "the ordering read backwards":
            self.weights = Backwards(str(CHECKPOINTS["ordered"]))

    def step(
        self, inputs: np.ndarray, shared: Shared, mask: Any = None, position: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        off = {"one position on": 1, "one position back": -1}.get(self.what, 0)
        if self.what == "the halves swapped":
            inputs = np.roll(inputs, self.backbone)
        elif self.what == "keys normed again":
            shared = {kind: (oracle.rms(key), value) for kind, (key, value) in shared.items()}
        logits, state = super().step(inputs, shared, mask, shared[F][0].shape[2] + off)
        if self.what == "the rest not 1 below":
            logits = np.where(self.scored(logits), logits, logits.min() + 1)
        return logits, state


class Backwards(oracle.Weights):
    """The place of each token in the ordering, instead of the token at each place."""

    def __call__(self, name: str) -> np.ndarray:
        values = super().__call__(name)
        return np.argsort(values) if name == ORDERING else values


@pytest.mark.parametrize(
    "what",
    [
        "a window of W and -1",
        "a window of W and -2",
        "a window of W and 1",
        "one position on",
        "one position back",
        "the halves swapped",
        "the ordering read backwards",
        "the rest not 1 below",
        "three centroids of four",
        "a dense head",
        "keys normed again",
    ],
)
def test_a_wrong_formula_would_show(ordered: Case, what: str) -> None:
    drafter, truth = ordered
    shared = truth.keys(np.random.default_rng(7), 20)
    assert compared((drafter, truth), shared) < EXACT
    assert compared((drafter, Mutated(what)), shared) > 100 * EXACT


# Precisions, and what lies where no token is


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_half_precision_stays_close(target: str, checkpoint: str) -> None:
    """Of an ordered head the tokens that both score: rounding may choose another of two close centroids."""
    drafter, truth = Drafter(CHECKPOINTS[checkpoint], target, "f16"), Truth(CHECKPOINTS[checkpoint])
    for length in (5, 40):
        shared, x = truth.keys(np.random.default_rng(length), length), inputs(truth, 1, 1)
        (logits, state), (one, expected) = drafter.run(x, shared), truth.step(x[0, 0], shared)
        both = truth.scored(one) & truth.scored(logits[0, 0])
        assert logits.dtype == state.dtype == np.float16
        assert both.sum() >= 0.8 * truth.scored(one).sum()
        assert difference(state[0, 0], expected) < HALF
        assert difference(logits[0, 0, both], one[both]) < HALF


@pytest.mark.parametrize("target", ["cuda", "webgpu"])
@pytest.mark.parametrize("precision", ["f32", "f16"])
def test_nothing_behind_the_last_key_of_a_row_is_read(target: str, precision: str) -> None:
    """What the target's kernel left there may be anything: here it is NaN."""
    drafter, truth = Drafter(CHECKPOINTS["ordered"], target, precision), Truth(CHECKPOINTS["ordered"])
    shared, x = truth.keys(np.random.default_rng(8), 20), inputs(truth, 2, 1)
    two = {kind: tuple(np.repeat(v, 2, 0) for v in pair) for kind, pair in shared.items()}
    for pair in two.values():
        for values in pair:
            values[1, :, 12:] = np.nan
    logits, states = drafter.run(x, two, np.arange(20)[None] < np.array([[20], [12]]))
    short = {kind: tuple(v[:, :, :12] for v in pair) for kind, pair in shared.items()}
    assert difference(states[1, 0], truth.step(x[1, 0], short)[1]) < (EXACT if precision == "f32" else HALF)
    assert np.isfinite(logits).all()


# Other members of the family

VARIANTS: dict[str, dict[str, Any]] = {
    "several kv heads, as of E4B": dict(num_attention_heads=4, num_key_value_heads=2),
    "fewer kv heads on full layers, as of 26B": dict(
        num_attention_heads=8, num_key_value_heads=4, num_global_key_value_heads=2, attention_k_eq_v=True
    ),
    "borrowers by another number": dict(num_kv_shared_layers=0),
    "other layers": dict(layer_types=[F, S, F, S, F], num_hidden_layers=5, num_kv_shared_layers=5),
    "only full attention": dict(layer_types=[F, F], num_hidden_layers=2, num_kv_shared_layers=2),
    "the heads of E2B": dict(head_dim=256, global_head_dim=512, num_attention_heads=4, sliding_window=512),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_other_geometries(tmp_path: Path, target: str, variant: str) -> None:
    folder = random_drafter(tmp_path, **VARIANTS[variant])
    case = Drafter(folder, target), Truth(folder)
    window = VARIANTS[variant].get("sliding_window", WINDOW)
    for length in (3, window + 20):
        shared = case[1].keys(np.random.default_rng(length), length)
        assert compared(case, shared) < EXACT
        assert compared(case, shared, np.ones(length + 1)) < EXACT


def test_the_drafter_of_the_unified_model(tmp_path: Path) -> None:
    """One architecture under two names."""
    folder = random_drafter(
        tmp_path,
        {"model_type": "gemma4_unified_assistant", "use_ordered_embeddings": False},
        model_type="gemma4_unified_text", attention_k_eq_v=True, num_global_key_value_heads=1,
    )  # fmt: skip
    case = Drafter(folder, "default"), Truth(folder)
    assert compared(case, case[1].keys(np.random.default_rng(9), 30)) < EXACT


def test_the_first_step_ever_published_runs_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lines of the model card that drafters in this project began with, beside a tiny model.onnx."""
    onnx.save(ir.to_proto(traced(CHECKPOINTS["ordered"], "cuda", "f16")), tmp_path / "model.onnx")
    truth, kv_len = Truth(CHECKPOINTS["ordered"]), 15
    shared, x = truth.keys(np.random.default_rng(10), kv_len), inputs(truth, 1, 1)
    halves = {kind: [v.astype(np.float16) for v in pair] for kind, pair in shared.items()}
    scope: dict[str, Any] = {"inputs_embeds": x.astype(np.float16), "kv_len": kv_len}
    scope["skv_sliding_k"], scope["skv_sliding_v"] = halves[S]
    scope["skv_full_k"], scope["skv_full_v"] = halves[F]
    monkeypatch.chdir(tmp_path)
    with pytest.warns(UserWarning, match="CUDAExecutionProvider"):
        exec(
            """
import numpy as np, onnxruntime as ort
s = ort.InferenceSession("model.onnx", providers=["CUDAExecutionProvider"])
out = s.run(["logits", "projected_state"], {
    "inputs_embeds": inputs_embeds,                          # f16 [1,q,3072]
    "attention_mask": np.ones((1, kv_len), np.int64),
    "shared_kv.sliding_attention.key":   skv_sliding_k,      # f16 [1,1,kv,256]
    "shared_kv.sliding_attention.value": skv_sliding_v,
    "shared_kv.full_attention.key":      skv_full_k,         # f16 [1,1,kv,512]
    "shared_kv.full_attention.value":    skv_full_v,
})
""",
            scope,
        )
    logits, state = scope["out"]
    assert logits.shape == (1, 1, 512)
    assert worst((logits[0, 0], state[0, 0]), truth.step(x[0, 0], shared)) < HALF
