"""The vision tower's graph against the NumPy oracle and recorded features: every target, any mix of images."""

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

import checkpoints
import oracle
from cabochon.checkpoint import Tensor, open_checkpoint
from cabochon.dialects import TARGETS
from cabochon.gemma4.vision import vision_encoder
from cabochon.gemma4.vision_config import read_vision_config
from cabochon.gemma4.vision_names import vision_shapes
from cabochon.graph import Scope
from cabochon.recipes import PRECISIONS
from graphs import NUMPY, difference

EXACT = 1e-4  # differences that were measured are below 1e-6
HALF = 2e-3  # f16 against f32; measured: 4e-4
DIALECTS = ("default", "onnx-standard", "cuda", "webgpu")
CHECKPOINTS = {"clipped": checkpoints.TINY / "target", "standardized": checkpoints.TINY / "moe"}
REF = checkpoints.TINY / "ref"


class Image(NamedTuple):
    """Patches [P, 3·p·p] from 0 to 1, and where each stands, [P, 2] as (x, y)."""

    pixels: np.ndarray
    places: np.ndarray


# Towers


def traced(
    raw: Mapping[str, Any], tensors: Mapping[str, Tensor], target: str, precision: str = "f32"
) -> bytes:
    config = read_vision_config(raw)
    assert config is not None
    g = TARGETS[target].drafter_dialect("vision_encoder")
    vision_encoder(g, Scope(g, tensors, PRECISIONS[precision]), config, raw["text_config"]["hidden_size"])
    content = ir.to_proto(g.model({})).SerializeToString()
    onnx.checker.check_model(content, full_check=True)
    return content


class Tower:
    """A checkpoint's vision tower for a target, ready to run."""

    def __init__(self, folder: Path, target: str, precision: str = "f32") -> None:
        checkpoint = open_checkpoint(folder)
        options = ort.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 4, 1
        self.session = ort.InferenceSession(
            traced(checkpoint.config, checkpoint.tensors, target, precision),
            options, providers=["CPUExecutionProvider"],
        )  # fmt: skip
        self.dtype = NUMPY[precision]

    def run(self, *images: Image) -> np.ndarray:
        """Features of images of as many patches each."""
        pixels, places = np.stack([i.pixels for i in images]), np.stack([i.places for i in images])
        return self.run_arrays(pixels, places)

    def run_arrays(self, pixels: np.ndarray, places: np.ndarray) -> np.ndarray:
        (features,) = self.session.run(None, {"pixel_values": pixels, "pixel_position_ids": places})
        assert features.dtype == self.dtype
        return features


class Truth:
    """The NumPy reference over the same checkpoint, one image at a time."""

    def __init__(self, folder: Path, source: str | None = None) -> None:
        self.raw = json.loads((folder / "config.json").read_bytes())
        self.weights = oracle.Weights(str(folder))
        scope = dict(vars(oracle))
        exec(source or inspect.getsource(oracle.vision), scope)
        self.vision: Callable[..., np.ndarray] = scope["vision"]

    @property
    def config(self) -> dict[str, Any]:
        return self.raw["vision_config"]

    def run(self, *images: Image) -> np.ndarray:
        soft = [self.vision(self.config, self.weights, "model.vision_tower.", *image) for image in images]
        normed = oracle.rms(np.concatenate(soft), eps=self.config["rms_norm_eps"])
        return oracle.lin(normed, self.weights("model.embed_vision.embedding_projection.weight"))

    def image(self, columns: int, rows: int, seed: int = 0) -> Image:
        """A random image of so many patches."""
        size = 3 * self.config["patch_size"] ** 2
        pixels = np.random.default_rng([seed, columns, rows]).random((columns * rows, size), np.float32)
        x, y = np.meshgrid(np.arange(columns), np.arange(rows))
        return Image(pixels, np.stack([x.ravel(), y.ravel()], axis=-1))


def padded(image: Image, patches: int, anywhere: int | None = None, holds: float = 0.0) -> Image:
    """The image with padding behind it, or `anywhere` among its patches, which are shuffled by that seed."""
    pixels = np.full((patches, image.pixels.shape[1]), holds, np.float32)
    places = np.full((patches, 2), -1)
    where = np.arange(len(image.places))
    if anywhere is not None:
        where = np.random.default_rng(anywhere).permutation(patches)[: len(where)]
    pixels[where], places[where] = image
    return Image(pixels, places)


def padding(image: Image) -> Image:
    return Image(image.pixels, np.full_like(image.places, -1))


def random_tower(folder: Path, seed: int = 0, **changes: Any) -> Path:
    """A checkpoint of nothing but a tower: the tiny config with other keys, and random weights that fit it."""
    raw = checkpoints.tiny_config("target")
    raw["vision_config"] |= changes
    config = read_vision_config(raw)
    assert config is not None
    rng = np.random.default_rng(seed)

    def weight(name: str, shape: tuple[int, ...]) -> np.ndarray:
        values = rng.standard_normal(shape)
        if not shape:
            return abs(values) + 2 if name.endswith("max") else -abs(values) - 2
        if len(shape) > 1:
            return values / shape[-1] ** 0.5
        if name.endswith("std_bias"):
            return values * 5
        gain = shape[0] ** -0.25 if "q_norm" in name or "k_norm" in name else 0.5 if "post_" in name else 1.0
        return gain * (1 + 0.15 * values)

    folder.mkdir(parents=True, exist_ok=True)
    checkpoints.write_config(folder, raw)
    entries = {
        name: ("F32", list(shape), np.asarray(weight(name, shape), np.float32).tobytes())
        for name, shape in vision_shapes(config, raw["text_config"]["hidden_size"]).items()
    }
    checkpoints.write(folder / "model.safetensors", entries)
    return folder


Case = tuple[Tower, Truth]


@pytest.fixture(scope="module", params=[(t, c) for t in DIALECTS for c in CHECKPOINTS], ids="-".join)
def case(request: pytest.FixtureRequest) -> Case:
    target, checkpoint = request.param
    return Tower(CHECKPOINTS[checkpoint], target), Truth(CHECKPOINTS[checkpoint])


# Features that transformers recorded


def test_the_recorded_image(case: Case) -> None:
    name = "moe" if case[1].config["standardize"] else "target"
    given, recorded = np.load(REF / "inputs_image.npz"), np.load(REF / f"prefill_{name}_image.npz")
    found = case[0].run_arrays(given["pixel_values"], given["image_position_ids"])
    assert found.shape == (60, 64)
    assert difference(found, recorded["image_features"]) < EXACT


@pytest.mark.parametrize("target", DIALECTS)
def test_two_recorded_images_of_different_shape(target: str) -> None:
    """51 and 60 soft tokens, in order."""
    recorded = np.load(REF / "two_images.npz")
    found = Tower(CHECKPOINTS["clipped"], target).run_arrays(
        recorded["pixel_values"], recorded["image_position_ids"]
    )
    assert found.shape == (111, 64)
    assert difference(found, recorded["features"]) < EXACT


# Any images in one call

SHAPES = [(12, 6), (3, 21), (30, 3), (9, 9), (3, 3), (6, 12)]  # columns and rows of patches


def test_images_of_any_shape_with_padding_anywhere(case: Case) -> None:
    tower, truth = case
    images = [truth.image(*shape, seed=i) for i, shape in enumerate(SHAPES)]
    for most in (90, 108, 200):
        found = tower.run(*(padded(image, most, anywhere=i) for i, image in enumerate(images)))
        assert difference(found, truth.run(*images)) < EXACT


def test_padding_changes_nothing_whatever_it_holds(case: Case) -> None:
    tower, truth = case
    image = truth.image(6, 9)
    expected = truth.run(image)
    for holds in (0.0, 1e4, np.nan):
        for patches in (54, 55, 63, 250):
            for anywhere in (None, patches):
                found = tower.run(padded(image, patches, anywhere, holds))
                assert difference(found, expected) < EXACT, (holds, patches, anywhere)


def test_an_image_of_nothing_but_padding_has_no_tokens(case: Case) -> None:
    tower, truth = case
    image = truth.image(9, 6)
    assert tower.run(padding(image)).shape == (0, 64)
    found = tower.run(padding(image), image, padding(image), image)
    assert np.isfinite(found).all()
    assert difference(found, truth.run(image, image)) < EXACT


@pytest.mark.parametrize("shape", [(0, 63), (0, 0), (3, 0)], ids=["no image", "nothing", "no patch"])
def test_no_images_have_no_tokens(case: Case, shape: tuple[int, int]) -> None:
    found = case[0].run_arrays(np.zeros((*shape, 48), np.float32), np.zeros((*shape, 2), np.int64))
    assert found.shape == (0, 64)


def test_the_width_of_an_image_is_its_own(case: Case) -> None:
    """A narrow image beside a wide one: counted by the width of the batch, its last squares would lie beyond all."""
    tower, truth = case
    narrow, wide = truth.image(3, 12), truth.image(12, 3)
    assert difference(tower.run(narrow, wide), truth.run(narrow, wide)) < EXACT
    with pytest.raises(IndexError):
        mutated(CHECKPOINTS["clipped"], "mx = cl[:, 0].max() + 1", "mx = 12").run(narrow)


def test_a_square_with_missing_patches_is_divided_by_all_of_them(case: Case) -> None:
    tower, truth = case
    image = truth.image(9, 9)
    places = image.places.copy()
    places[[0, 13, 40, 41, 80]] = -1
    holey = Image(image.pixels, places)
    assert difference(tower.run(holey), truth.run(holey)) < EXACT


@pytest.mark.parametrize("target", DIALECTS)
def test_sixteen_patches_are_one_token(target: str) -> None:
    """k follows from the numbers of patches and of squares, as in transformers: of 16 patches and 16 // 9 it is 4."""
    tower, truth = Tower(CHECKPOINTS["standardized"], target), Truth(CHECKPOINTS["standardized"])
    image = truth.image(4, 4)
    truth.config["pooling_kernel_size"] = 4
    assert difference(tower.run(image), truth.run(image)) < EXACT


@pytest.mark.parametrize("target", DIALECTS)
@pytest.mark.parametrize("shape", [(48, 2), (2, 48)])
def test_places_up_to_the_last_row_of_the_table(tmp_path: Path, target: str, shape: tuple[int, int]) -> None:
    folder = random_tower(tmp_path, position_embedding_size=48, pooling_kernel_size=2, standardize=True)
    tower, truth = Tower(folder, target), Truth(folder)
    image = truth.image(*shape)
    assert difference(tower.run(image), truth.run(image)) < EXACT
    beyond = Image(image.pixels, image.places + (np.array(shape) == 48))
    with pytest.raises(Exception, match="GatherND"):
        tower.run(padded(beyond, 104))


@pytest.mark.parametrize("target", DIALECTS)
def test_more_patches_than_one_block_of_queries(tmp_path: Path, target: str) -> None:
    """2,520 patches, the most of an image by default: beyond what kernels of attention were said to take."""
    folder = random_tower(tmp_path, num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1)
    tower, truth = Tower(folder, target), Truth(folder)
    image = truth.image(60, 42)
    assert difference(tower.run(image), truth.run(image)) < EXACT


# Other members of the family

VARIANTS: dict[str, dict[str, Any]] = {
    "one layer of E2B": dict(
        hidden_size=768, num_attention_heads=12, num_key_value_heads=12, head_dim=64, intermediate_size=3072,
        patch_size=16, num_hidden_layers=1, position_embedding_size=32,
    ),
    "one layer of 31B": dict(
        hidden_size=1152, num_attention_heads=16, num_key_value_heads=16, head_dim=72, intermediate_size=4304,
        patch_size=16, num_hidden_layers=1, position_embedding_size=32, use_clipped_linears=False,
        standardize=True,
    ),
    "heads that share keys": dict(num_key_value_heads=2),
    "both": dict(standardize=True, rms_norm_eps=1e-3, rope_parameters={"rope_theta": 30.0}),
    "squares of four": dict(pooling_kernel_size=2),
}  # fmt: skip
Variant = tuple[Path, tuple[Image, Image], np.ndarray]  # a checkpoint, images, and their features


@pytest.fixture(scope="module", params=VARIANTS)
def variant(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Variant:
    folder = random_tower(tmp_path_factory.mktemp("variant"), **VARIANTS[request.param])
    truth = Truth(folder)
    images = truth.image(12, 6), truth.image(6, 18)
    return folder, images, truth.run(*images)


@pytest.mark.parametrize("target", DIALECTS)
def test_other_geometries(variant: Variant, target: str) -> None:
    folder, images, expected = variant
    found = Tower(folder, target).run(*(padded(image, 108, anywhere=1) for image in images))
    assert difference(found, expected) < EXACT


@pytest.mark.parametrize("target", DIALECTS)
@pytest.mark.parametrize(("name", "layers", "width"), [("e2b", 16, 768), ("31b", 27, 1152)])
def test_the_ports_of_a_published_tower(target: str, name: str, layers: int, width: int) -> None:
    """Traced whole; tracing reads no weight."""
    raw = json.loads((checkpoints.TINY.parent / "geometries" / f"{name}.json").read_bytes())
    config = read_vision_config(raw)
    assert config is not None
    tensors = {
        key: Tensor(key, "BF16", shape, Path("nowhere.safetensors"), 0, 0)
        for key, shape in vision_shapes(config, raw["text_config"]["hidden_size"]).items()
    }
    g = TARGETS[target].drafter_dialect("vision_encoder")
    w = Scope(g, tensors, PRECISIONS["f16"])
    vision_encoder(g, w, config, raw["text_config"]["hidden_size"])
    graph = g.model({}).graph
    assert [(v.name, str(v.dtype), v.shape) for v in graph.inputs] == [
        ("pixel_values", "FLOAT", ir.Shape(["images", "patches", 768])),
        ("pixel_position_ids", "INT64", ir.Shape(["images", "patches", 2])),
    ]
    (out,) = graph.outputs
    assert (out.name, str(out.dtype)) == ("image_features", "FLOAT16")
    assert out.shape == ir.Shape(["image_tokens", raw["text_config"]["hidden_size"]])
    assert set(w.used) == set(tensors)
    loops = [node for node in graph if node.op_type == "Loop"]
    assert len(loops) == layers
    domains = {node.domain for node in graph} | {node.domain for loop in loops for node in body(loop)}
    assert domains == ({""} if target == "onnx-standard" else {"", "com.microsoft"})


def body(loop: ir.Node) -> ir.Graph:
    return loop.attributes["body"].as_graph()


# Precisions, and other runtimes


@pytest.mark.parametrize("target", DIALECTS)
@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_half_precision_stays_close(target: str, checkpoint: str) -> None:
    tower, truth = Tower(CHECKPOINTS[checkpoint], target, "f16"), Truth(CHECKPOINTS[checkpoint])
    images = [truth.image(*shape, seed=i) for i, shape in enumerate(SHAPES)]
    found = tower.run(*(padded(image, 90, anywhere=i) for i, image in enumerate(images)))
    assert difference(found, truth.run(*images)) < HALF
    assert tower.run_arrays(np.zeros((0, 0, 48), np.float32), np.zeros((0, 0, 2), np.int64)).shape == (0, 64)


@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_openvino_reads_the_portable_form(checkpoint: str) -> None:
    openvino = pytest.importorskip(
        "openvino", reason="openvino is not installed: pip install cabochon[openvino]"
    )
    held, truth = open_checkpoint(CHECKPOINTS[checkpoint]), Truth(CHECKPOINTS[checkpoint])
    core = openvino.Core()
    model = core.read_model(traced(held.config, held.tensors, "onnx-standard"))
    compiled = core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    for images in ([truth.image(6, 9)], [truth.image(3, 12), truth.image(60, 12)], [truth.image(9, 9)]):
        most = [padded(image, 720, anywhere=3) for image in images]
        feeds = {
            "pixel_values": np.stack([image.pixels for image in [*most, padding(most[0])]]),
            "pixel_position_ids": np.stack([image.places for image in [*most, padding(most[0])]]),
        }
        assert difference(compiled(feeds)[0], truth.run(*images)) < EXACT


# What these tests would see

ROTATED_APART = (
    "return np.concatenate([rot(y[..., :sd], cos[..., :sd], sin[..., :sd]), "
    "rot(y[..., sd:], cos[..., sd:], sin[..., sd:])], -1)"
)
CLIPPED, STANDARDIZED = ("clipped",), ("standardized",)
# What is wrong -> (what the oracle says, what it would say, the checkpoints that show it)
MUTATIONS: dict[str, tuple[str, str, Sequence[str]]] = {
    "pixels from 0 to 1": ("2 * (pixels - f32(0.5))", "pixels", tuple(CHECKPOINTS)),
    "x and y swapped in the table": (
        "tab[0][cl[:, 0]] + tab[1][cl[:, 1]]", "tab[0][cl[:, 1]] + tab[1][cl[:, 0]]", tuple(CHECKPOINTS)),
    "x and y swapped in the rotation": ("ang = pos[:, :, None]", "ang = pos[:, ::-1, None]", tuple(CHECKPOINTS)),
    "the whole head rotated at once": (ROTATED_APART, "return rot(y, cos, sin)", tuple(CHECKPOINTS)),
    "another theta": ('"rope_theta", 100.0)', '"theta", 1e4)', tuple(CHECKPOINTS)),
    "scaled scores": ("attend(q, k", "attend(q * f32(D**-0.5), k", tuple(CHECKPOINTS)),
    "padding attended to": ("np.broadcast_to(~pad[None], (P, P))", "np.ones((P, P), bool)", tuple(CHECKPOINTS)),
    "values rotated": ("o = attend(q, k, v,", "o = attend(q, k, rope2(v.transpose(1, 0, 2)).transpose(1, 0, 2),",
        tuple(CHECKPOINTS)),
    "values not normed": ("v = rms(", "v = (lambda x, *_: x)(", tuple(CHECKPOINTS)),
    "norms with 1 + weight": ('w("input_layernorm.weight")', '1 + w("input_layernorm.weight")', tuple(CHECKPOINTS)),
    "norms of q and k swapped": ('w("self_attn.q_norm.weight")', 'w("self_attn.k_norm.weight")',
        tuple(CHECKPOINTS)),
    "the norm behind attention left out": (', w("post_attention_layernorm.weight"), eps)', ", None, eps)",
        tuple(CHECKPOINTS)),
    "silu": ("gelu(", "silu(", tuple(CHECKPOINTS)),
    "linears not clipped": ("clin(W, ", "unclipped(W, ", CLIPPED),
    "inputs not clipped": ("clin(W, ", "only_outputs(W, ", CLIPPED),
    "outputs not clipped": ("clin(W, ", "only_inputs(W, ", CLIPPED),
    "the squares in columns": ("idx = cl[:, 0] // k + (mx // k) * (cl[:, 1] // k)",
        "idx = cl[:, 1] // k + ((cl[:, 1].max() + 1) // k) * (cl[:, 0] // k)", tuple(CHECKPOINTS)),
    "the last column not counted": ("mx = cl[:, 0].max() + 1", "mx = cl[:, 0].max()", tuple(CHECKPOINTS)),
    "means over the patches there are": ("x / f32(k * k)", "x / np.bincount(idx[~pad], minlength=n)[idx, None]",
        STANDARDIZED),
    "√H left out": ("* f32(H ** 0.5)", "", STANDARDIZED),
    "scaled before the bias": ('(out - W(p + "std_bias")) * W(p + "std_scale")',
        'out * W(p + "std_scale") - W(p + "std_bias")', STANDARDIZED),
    "not standardized": ('if c.get("standardize")', "if False", STANDARDIZED),
}  # fmt: skip

CLIPS = """
def unclipped(W, n, x): return lin(x, W(n + ".linear.weight"))
def only_outputs(W, n, x): return np.clip(unclipped(W, n, x), W(n + ".output_min"), W(n + ".output_max"))
def only_inputs(W, n, x): return unclipped(W, n, np.clip(x, W(n + ".input_min"), W(n + ".input_max")))
"""


def mutated(folder: Path, old: str, new: str) -> Truth:
    source = inspect.getsource(oracle.vision)
    assert old in source, "the oracle says it in other words"
    return Truth(folder, CLIPS + source.replace(old, new))


def shown() -> tuple[Image, ...]:
    """Two images of different width, padded; one has a square with a missing patch."""
    truth = Truth(CHECKPOINTS["clipped"])
    wide, narrow = truth.image(12, 6), truth.image(6, 9)
    narrow.places[7] = -1
    return tuple(padded(image, 90, anywhere=5) for image in (wide, narrow))


@pytest.fixture(scope="module")
def found() -> dict[str, np.ndarray]:
    return {name: Tower(folder, "default").run(*shown()) for name, folder in CHECKPOINTS.items()}


@pytest.mark.parametrize("what", MUTATIONS)
def test_a_wrong_formula_would_show(found: dict[str, np.ndarray], what: str) -> None:
    old, new, where = MUTATIONS[what]
    for name in where:
        assert difference(found[name], Truth(CHECKPOINTS[name]).run(*shown())) < EXACT
        wrong = mutated(CHECKPOINTS[name], old, new).run(*shown())
        assert wrong.shape != found[name].shape or difference(found[name], wrong) > 20 * EXACT, name


def test_a_projection_without_its_norm_would_show(found: dict[str, np.ndarray]) -> None:
    for name, folder in CHECKPOINTS.items():
        truth = Truth(folder)
        soft = [truth.vision(truth.config, truth.weights, "model.vision_tower.", *i) for i in shown()]
        projected = oracle.lin(
            np.concatenate(soft), truth.weights("model.embed_vision.embedding_projection.weight")
        )
        assert difference(found[name], projected) > 20 * EXACT
