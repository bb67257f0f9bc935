"""The audio encoder's graph against the NumPy oracle and a recorded clip: every target, every window, every mask."""

import inspect
import json
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import audio_encoders
import checkpoints
from audio_encoders import Encoder, Truth, random_encoder, session, sound, together, traced_tower
from cabochon.checkpoint import open_checkpoint
from cabochon.dialects import TARGETS as TABLE
from cabochon.gemma4 import audio
from cabochon.gemma4.audio_config import read_audio_config
from cabochon.graph import Stored
from cabochon.kernels import PROVIDERS
from cabochon.recipes.cast import TYPES
from graphs import difference

EXACT, ALONE, HALF = 1e-4, 1e-5, 4e-3
TARGETS = ("default", "onnx-standard", "cuda", "webgpu")
TINY = checkpoints.TINY / "target"
REF = checkpoints.TINY / "ref"
LENGTHS = (99, 1, 40, 17, 3, 64, 66)

Case = tuple[Encoder, Truth]


@pytest.fixture(scope="module", params=TARGETS)
def case(request: pytest.FixtureRequest) -> Case:
    """The tiny encoder: blocks of four, a window of four, two layers, clipped."""
    return Encoder(TINY, request.param), Truth(TINY)


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., Case]:
    def make(target: str = "default", **how: Any) -> Case:
        folder = random_encoder(tmp_path / "checkpoint", **how)
        return Encoder(folder, target), Truth(folder)

    return make


def whole(clip: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return clip[None], np.ones((1, len(clip)), bool)


def compared(case: Case, features: np.ndarray, mask: np.ndarray) -> float:
    """The largest difference of the tower's rows, and of the encoder's, over clips of one call."""
    encoder, truth = case
    hidden, real = encoder.hidden(features, mask)
    expected = [truth.hidden(*clip) for clip in zip(features, mask, strict=True)]
    assert np.array_equal(real, [found for _, found in expected])
    rows = np.concatenate([truth.run(*clip) for clip in zip(features, mask, strict=True)])
    return max(
        difference(hidden, np.stack([found for found, _ in expected])),
        difference(encoder.run(features, mask), rows),
    )


# A clip that transformers recorded


def test_the_recorded_clip(case: Case) -> None:
    fed, made = np.load(REF / "inputs_audio.npz"), np.load(REF / "prefill_target_audio.npz")
    features, mask = fed["input_features"], fed["input_features_mask"]
    hidden, real = case[0].hidden(features, mask)
    assert np.array_equal(real, made["audio_mask"])
    assert difference(hidden[real], made["audio_last"][made["audio_mask"]]) < EXACT
    assert difference(case[0].run(features, mask), made["audio_features"].reshape(-1, 64)) < EXACT
    assert compared(case, features, mask) < EXACT


# Lengths


@pytest.mark.parametrize("time", [1, 2, 3, 4, 5, 8, 13, 15, 16, 17, 31, 32, 33, 47, 48, 49, 99, 127, 260])
def test_any_number_of_frames(case: Case, time: int) -> None:
    """Shorter than a block, as long, longer; a multiple of four frames and none; odd and even."""
    features, mask = whole(sound(time, seed=time))
    assert case[0].run(features, mask).shape == (-(-time // 4), 64)
    assert compared(case, features, mask) < EXACT


@pytest.mark.parametrize("more", [0, 1, 6, 200])
@pytest.mark.parametrize("fill", [0.0, 1e4, np.nan, np.inf])
def test_clips_of_different_lengths_are_what_they_are_alone(case: Case, fill: float, more: int) -> None:
    """However far they are padded, and with whatever."""
    encoder, truth = case
    clips = [sound(n, seed=n) for n in LENGTHS]
    found = encoder.run(*together(clips, more, fill))
    assert difference(found, np.concatenate([encoder.run(*whole(clip)) for clip in clips])) < ALONE
    assert (
        difference(found, np.concatenate([truth.run(*(v[0] for v in whole(clip))) for clip in clips])) < EXACT
    )


@pytest.mark.parametrize("time", [1, 3, 16, 50])
def test_no_clip_gives_no_row(case: Case, time: int) -> None:
    found = case[0].run(sound(0, time), np.ones((0, time), bool))
    assert (found.shape, found.dtype) == ((0, 64), np.float32)
    assert case[0].hidden(sound(0, time), np.ones((0, time), bool))[0].shape == (0, -(-time // 4), 48)


@pytest.mark.parametrize("fill", [0.0, np.nan])
def test_clips_of_nothing_but_padding_give_no_row(case: Case, fill: float) -> None:
    encoder, _ = case
    silent = np.full((2, 50, 16), fill, np.float32), np.zeros((2, 50), bool)
    assert encoder.run(*silent).shape == (0, 64)
    assert np.isfinite(encoder.hidden(*silent)[0]).all()
    clips = [sound(30), sound(0), sound(50, seed=1)]
    found = encoder.run(*together(clips, fill=fill))
    assert difference(found, np.concatenate([encoder.run(*whole(clips[i])) for i in (0, 2)])) < ALONE


# Masks whose zeros do not stand at the end: as in transformers, which the oracle is

HOLES = {
    "before": slice(0, 23),
    "between": slice(30, 61),
    "a frame": slice(40, 41),
    "every other frame": slice(1, 99, 2),
    "all but the last": slice(0, 96),
}


@pytest.mark.parametrize("holes", HOLES)
def test_zeros_elsewhere_in_the_mask(case: Case, holes: str) -> None:
    features, mask = whole(sound(99))
    mask[:, HOLES[holes]] = False
    assert compared(case, features, mask) < EXACT


def test_a_clip_with_a_pause_masked_out_is_not_the_clip_without_it(case: Case) -> None:
    features, mask = whole(sound(96))
    mask[:, 32:64] = False
    shorter = features[:, mask[0]]
    assert difference(case[0].run(features, mask), case[0].run(*whole(shorter[0]))) > 100 * EXACT


# What the config says is what the graph does

WINDOWS = [
    (12, 13, 0), (4, 5, 3), (4, 5, 1), (3, 2, 0), (8, 3, 0), (8, 2, 2), (2, 9, 5), (1, 2, 0), (1, 2, 7), (5, 12, 12)
]  # fmt: skip


@pytest.mark.parametrize(
    ("target", "window"),
    [("default", window) for window in WINDOWS] + [(t, w) for t in TARGETS[1:] for w in WINDOWS[:2]],
)
def test_windows(made: Callable[..., Case], target: str, window: tuple[int, int, int]) -> None:
    """Blocks longer and shorter than their windows, windows of a frame alone, windows that look ahead."""
    keys = ("attention_chunk_size", "attention_context_left", "attention_context_right")
    case = made(target, loud=3.0, **dict(zip(keys, window, strict=True)))
    features, mask = together([sound(n, seed=n) for n in LENGTHS])
    assert compared(case, features, mask) < EXACT
    alone = [case[0].run(*whole(sound(n, seed=n))) for n in LENGTHS]
    assert difference(case[0].run(features, mask), np.concatenate(alone)) < ALONE


CONFIGS: dict[str, dict[str, Any]] = {
    "a wide kernel": dict(conv_kernel_size=9),
    "no kernel to speak of": dict(conv_kernel_size=1),
    "another residual weight": dict(residual_weight=0.75),
    "a low cap": dict(attention_logit_cap=2.5),
    "another invalid value": dict(attention_invalid_logits_value=-1e4),
    "a tight clipping": dict(gradient_clipping=0.7),
    "a large epsilon": dict(rms_norm_eps=0.02),
    "two heads": dict(num_attention_heads=2),
    "a head of each channel": dict(num_attention_heads=32),
    "other channels": dict(subsampling_conv_channels=[24, 5]),
    "channels that four does not divide": dict(subsampling_conv_channels=[22, 3]),
    "no bounds": dict(use_clipped_linears=False),
    "a wide output": dict(output_proj_dims=96),
    "three layers": dict(num_hidden_layers=3),
    "another width": dict(hidden_size=40, num_attention_heads=4),
}


@pytest.mark.parametrize("target", ["default", "webgpu"])
@pytest.mark.parametrize("name", CONFIGS)
def test_every_key_is_honoured(made: Callable[..., Case], name: str, target: str) -> None:
    case = made(target, loud=2.0, **CONFIGS[name])
    mels = case[0].whole.get_inputs()[0].shape[2]
    assert compared(case, *together([sound(n, mels=mels, seed=n) for n in (61, 18)])) < EXACT


@pytest.mark.parametrize(
    "name", ["another residual weight", "a low cap", "a tight clipping", "a large epsilon"]
)
def test_these_values_are_far_enough_from_the_tiny_ones(made: Callable[..., Case], name: str) -> None:
    _, truth = made(loud=2.0, **CONFIGS[name])
    clip, real = sound(61), np.ones(61, bool)
    changed = truth.hidden(clip, real)[0]
    truth.raw |= {key: checkpoints.tiny_config("target")["audio_config"][key] for key in CONFIGS[name]}
    assert difference(truth.hidden(clip, real)[0], changed) > 10 * EXACT


# What the graph is made of


def published(target: str, precision: str) -> ir.Model:
    raw = json.loads((Path(__file__).parent / "data" / "geometries" / "e2b.json").read_text())
    config = read_audio_config(raw)
    assert config is not None
    return audio_encoders.traced(config, 1536, audio_encoders.imagined(config, 1536), target, precision)


@pytest.mark.parametrize("target", TARGETS)
def test_ports_and_weights_of_e2b(target: str) -> None:
    model = published(target, "f16")
    assert [(v.name, v.dtype.name, str(v.shape)) for v in (*model.graph.inputs, *model.graph.outputs)] == [
        ("input_features", "FLOAT", "[clips,time,128]"),
        ("input_features_mask", "BOOL", "[clips,time]"),
        ("audio_features", "FLOAT16", "[audio_tokens,1536]"),
    ]
    held = {v.name: v.const_value for v in model.graph.initializers.values()}
    stored = {name: tensor for name, tensor in held.items() if isinstance(tensor, Stored)}
    assert (len(stored), sum(tensor.nbytes for tensor in stored.values())) == (752, 614_368_768)
    assert sum(tensor.nbytes for name, tensor in held.items() if name not in stored) < 60_000
    domains = {node.domain for node in model.graph}
    assert domains == ({"", "com.microsoft"} if target in ("default", "cuda") else {""})


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("precision", TYPES)
def test_graphs_are_valid_in_every_precision(target: str, precision: str) -> None:
    """bf16 too, which onnxruntime cannot run on a CPU."""
    if precision in TABLE[target].precisions:
        config, width = audio_encoders.configured(TINY)
        tensors = dict(open_checkpoint(TINY).tensors)
        model = audio_encoders.traced(config, width, tensors, target, precision)
        onnx.checker.check_model(ir.to_proto(model), full_check=True)


@pytest.mark.parametrize(
    ("target", "precision"),
    [("cuda", "f32"), ("cuda", "f16"), ("cuda", "bf16"), ("webgpu", "f32"), ("webgpu", "f16")],
)
def test_providers_have_the_kernels(target: str, precision: str) -> None:
    """Every node that computes with floats has a kernel of its provider, as far as the validator's tables know."""
    known = PROVIDERS[TABLE[target].provider].floats
    unknown: set[str] = set()
    for node in published(target, precision).graph:
        types = {v.dtype.numpy().name for v in (*node.inputs, *node.outputs) if v is not None}
        floats = {name for name in types if "float" in name}
        if (node.domain, node.op_type) in known:
            assert floats <= known[node.domain, node.op_type], (node.op_type, floats)
        elif floats:
            unknown.add(node.op_type)
    assert unknown <= {"Conv", "Softplus"}  # Softplus reads a weight alone: it is folded when a session loads


# f16


@pytest.mark.parametrize("target", ["default", "onnx-standard"])
@pytest.mark.parametrize("seed", range(3))
def test_f16_is_close_to_f32(made: Callable[..., Case], tmp_path: Path, target: str, seed: int) -> None:
    """Measured: 0.0013 to 0.0021 of the largest value."""
    exact = made(seed=seed)[0]
    features, mask = together([sound(n, seed=n) for n in LENGTHS])
    found = Encoder(tmp_path / "checkpoint", target, "f16").run(features, mask)
    assert found.dtype == np.float16
    assert difference(found, exact.run(features, mask)) < HALF


LOUD = "feed_forward1.ffw_layer_2.linear.weight"


@pytest.mark.parametrize("times", [1e4, 1e6])
def test_products_beyond_f16_are_its_largest_number(tmp_path: Path, times: float) -> None:
    """Not infinite, which the norm behind them would make NaN. Only their size is lost, never that they are numbers."""
    folder = random_encoder(tmp_path, use_clipped_linears=False)

    def louder(tensors: dict[str, checkpoints.Entry]) -> dict[str, checkpoints.Entry]:
        for name, (dtype, shape, data) in tensors.items():
            if name.endswith(LOUD):
                weight = np.frombuffer(data, np.float32) * np.float32(times)
                tensors[name] = dtype, shape, np.clip(weight, -60000, 60000).tobytes()
        return tensors

    checkpoints.change(folder, louder)
    clip = whole(sound(99))
    exact, found = Encoder(folder, "default").run(*clip), Encoder(folder, "default", "f16").run(*clip)
    assert np.isfinite(found).all()
    assert np.abs(found).max() < 2 * np.abs(exact).max()


# Memory

WEIGH = """
import sys
import numpy as np, onnxruntime as ort
options = ort.SessionOptions()
options.intra_op_num_threads = 1
session = ort.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
def peak():
    lines = open("/proc/self/status")
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) / 1024
for time in (600, 30_000, 60_000):
    feeds = {"input_features": np.zeros((1, time, 16), np.float32), "input_features_mask": np.ones((1, time), bool)}
    before = peak()
    rows = session.run(None, feeds)[0]
    print(len(rows), peak() - before)
"""


def test_memory_grows_with_the_length_and_not_with_its_square(tmp_path: Path) -> None:
    """Ten minutes are 60,000 frames, 15,000 of the encoder's: scores of all pairs would be 3.4 GiB for four heads."""
    config, width = audio_encoders.configured(TINY)
    model = audio_encoders.traced(config, width, dict(open_checkpoint(TINY).tensors), "default", "f32")
    (tmp_path / "model.onnx").write_bytes(ir.to_proto(model).SerializeToString())
    ran = subprocess.run(
        [sys.executable, "-c", WEIGH, str(tmp_path / "model.onnx")],
        capture_output=True,
        text=True,
        check=True,
    )
    rows, mebibytes = zip(*(line.split() for line in ran.stdout.splitlines()), strict=True)
    assert rows == ("150", "7500", "15000")
    assert sum(map(float, mebibytes)) < 150  # measured: 1, 29 and 31 beyond the peak before


# Mistakes that were made elsewhere: each would show

MISTAKES = {
    "linear maps are not clipped": (
        "from cabochon.gemma4.clipped import linear",
        'def linear(g, w, clipped, x): return g.linear(x, w / "linear")',
    ),
    "the scale of queries is D^-0.5 alone": ("c.head_dim**-0.5 / math.log(2)", "c.head_dim**-0.5"),
    "the scale per dimension without softplus": (
        'g.Softplus(g.cast(w["per_dim_scale"], "f32"))',
        'g.cast(w["per_dim_scale"], "f32")',
    ),
    "the scale of keys is missing": ("k = k * (math.log1p(math.e) / math.log(2))", "k = k * 1.0"),
    "the window has a key more": ("(ahead > -c.past)", "(ahead >= -c.past)"),
    "the window has a key less": ("(ahead > -c.past)", "(ahead > 1 - c.past)"),
    "distances have no bias": (" + biases(g, w, c, q, blocks.distances)", ""),
    "scores are not capped": ("softcap(g, scores, c.logit_cap)", "scores"),
    "sines and cosines are swapped": ("[np.sin(angles), np.cos(angles)]", "[np.cos(angles), np.sin(angles)]"),
    "the convolution looks ahead": ("pads=[c.conv_kernel - 1, 0]", "pads=[c.conv_kernel // 2] * 2"),
    "the halves of the gate are swapped": ("h, gate = g.Split", "gate, h = g.Split"),
    "the residual weight is 1": (" * c.residual_weight", " * 1.0"),
    "channels before mels": (
        "x = g.Reshape(x, [0, 0, c.subsampled",
        "x = g.Reshape(g.Transpose(x, perm=[0, 1, 3, 2]), [0, 0, c.subsampled",
    ),
    "padding is heard": ("x = g.Where(g.Unsqueeze(real, [2, 3]), x, g.constant(0.0, like=x))", "x = x"),
    "padding is attended to": (
        "g.And(g.Unsqueeze(heard, [1, 3]), g.constant(near(c)))",
        "g.Or(g.Unsqueeze(heard, [1, 3]), g.constant(near(c)))",
    ),
    "all norms have the epsilon of the config": ("eps: float = _EPS", "eps: float = 0.02"),
    "distances rise": ("np.arange(c.context // 2, -1, -1,", "np.arange(c.context // 2 + 1,"),
}  # fmt: skip


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder whose scores are beyond the cap, whose clips are padded, and whose epsilons differ."""
    return random_encoder(tmp_path_factory.mktemp("strict"), loud=4.0, rms_norm_eps=0.02)


@pytest.mark.parametrize("mistake", [None, *MISTAKES])
def test_mistakes_show(strict: Path, monkeypatch: pytest.MonkeyPatch, mistake: str | None) -> None:
    text = inspect.getsource(audio)
    if mistake is not None:
        right, wrong = MISTAKES[mistake]
        assert text.count(right) == 1, "the table names a line of the formula"
        text = text.replace(right, wrong)
    mutant = types.ModuleType("cabochon.gemma4.mutant")
    monkeypatch.setitem(sys.modules, mutant.__name__, mutant)
    exec(compile(text, "mutant", "exec"), mutant.__dict__)
    monkeypatch.setattr(audio_encoders, "tower", mutant.tower)
    features, mask = together([sound(50), sound(99, seed=1)], fill=3.0)
    hidden, real = session(traced_tower(strict, "default", "f32")).run(
        None, {"input_features": features, "input_features_mask": mask}
    )
    truth = Truth(strict)
    expected = np.concatenate([truth.hidden(*clip)[0] for clip in zip(features, mask, strict=True)])
    found = difference(hidden[real], expected[real.reshape(-1)])
    assert found < EXACT if mistake is None else found > 3 * EXACT, found
