"""Full packages end to end, on every target, in f32: tokens and logits that transformers recorded, ports that close."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import cabochon
from cabochon.runtime import Model
from full_graphs import ALL, REF
from graphs import difference
from packages import Packages

EXACT = 1e-4  # measured: 1.2e-5
GREEDY: Any = {"greedy": True, "ignore_eos": True, "max_new_tokens": 16}
SAID = json.loads((REF / "full.json").read_bytes())
MEDIA = np.load(REF / "full.npz")
OF_TINY = [name for name, its in SAID.items() if its.get("checkpoint") == "target"]
OF_BIG = [name for name, its in SAID.items() if its.get("checkpoint") == "big"]


@pytest.fixture(scope="module", params=ALL)
def tiny(request: pytest.FixtureRequest, packages: Packages) -> Model:
    return packages.model("tiny-full", request.param)


@pytest.fixture(scope="module", params=ALL)
def big(request: pytest.FixtureRequest, packages: Packages) -> Model:
    return packages.model("big-full", request.param)


def media(name: str) -> Any:
    """Raw media of a recorded prompt, as options of `generate`."""
    those = {
        kind: [MEDIA[f"{name}/{kind}/{n}"] for n in range(SAID[name][kind])] for kind in ("images", "audio")
    }
    given: dict[str, Any] = {"images": those["images"], "audio": [(clip, 16_000) for clip in those["audio"]]}
    if frames := SAID[name]["frames"]:
        given["videos"] = [[MEDIA[f"{name}/frames/{n}"] for n in range(frames)]]
    return {kind: those for kind, those in given.items() if those}


def cold(model: Model) -> Model:
    model.forget()
    return model


def as_recorded(model: Model, name: str) -> None:
    """The prompt, the logits of its last positions, and what was generated."""
    its, given = SAID[name], media(name)
    ids = model.prompt_ids(its["text"], parse_special=True, **given)
    assert [int(token) for token in ids] == its["prompt"]
    logits = model.forward(ids).logits
    assert difference(logits[-8:], MEDIA[f"{name}/logits"]) < EXACT
    assert cold(model).generate(ids, **GREEDY).ids == its["tokens"]


@pytest.mark.parametrize("name", OF_TINY)
def test_prompts_with_several_media(tiny: Model, name: str) -> None:
    """Raw pixels and samples in, tokens out."""
    as_recorded(tiny, name)


@pytest.mark.parametrize("chunk", [1, 5, 64])
def test_chunks_of_a_prompt_do_not_split_an_image(big: Model, chunk: int) -> None:
    """Steps of at most so many tokens; an image that is longer is a step of its own."""
    name = "big, two images"
    ids = big.prompt_ids(SAID[name]["text"], parse_special=True, **media(name))
    assert cold(big).generate(ids, prefill_chunk=chunk, **GREEDY).ids == SAID[name]["tokens"]


@pytest.mark.parametrize("name", OF_BIG)
def test_the_31b_kind(big: Model, name: str) -> None:
    """A random model whose images see each other on sliding layers; their runs are longer than the window."""
    as_recorded(big, name)


def test_the_random_model_is_the_recorded_one(packages: Packages) -> None:
    weights = (packages.whole("big-full") / "model.safetensors").read_bytes()
    assert hashlib.sha256(weights).hexdigest() == SAID["big"]["sha256"]


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("text", False),
        ("text_long", False),
        ("image", False),
        ("image", True),
        ("audio", False),
        ("audio", True),
    ],
)
def test_recorded_prompts(tiny: Model, recorded: dict[str, Any], name: str, raw: bool) -> None:
    """With what transformers' processor made, and with the picture and the sound themselves."""
    its: Any = recorded[f"target/{name}"]
    given: Any = {}
    if raw:
        source = np.load(REF / "media.npz")
        given = {"images": [source["image"]]} if name == "image" else {"audio": [(source["wav"], 16_000)]}
    elif name in ("image", "audio"):
        made = np.load(REF / f"inputs_{name}.npz")
        given = {
            "image": lambda: {"images": tiny.encode_images(made["pixel_values"], made["image_position_ids"])},
            "audio": lambda: {
                "audio": tiny.encode_audio(made["input_features"], made["input_features_mask"])
            },
        }[name]()
    assert cold(tiny).generate(its["prompt"], **GREEDY, **given).ids == its["tokens"]


# Batches: different images in each row, and rows without any

BATCH = ["two images", "no image", "one image", "image and audio", "video", "two clips"]


@pytest.mark.parametrize("names", [BATCH, OF_BIG], ids=["tiny", "big"])
@pytest.mark.parametrize("target", ALL)
def test_rows_of_a_batch_are_the_recorded_single_runs(
    packages: Packages, target: str, names: list[str]
) -> None:
    model = packages.model("big-full" if names is OF_BIG else "tiny-full", target)
    prompts = [model.prompt_ids(SAID[n]["text"], parse_special=True, **media(n)) for n in names]
    for order in (range(len(names)), reversed(range(len(names)))):
        order = list(order)
        answers = cold(model).generate([prompts[n] for n in order], **GREEDY)
        assert [a.ids for a in answers] == [SAID[names[n]]["tokens"] for n in order]


@pytest.mark.parametrize("target", ["default", "webgpu"])
def test_images_of_the_same_size_stay_in_their_rows(packages: Packages, target: str) -> None:
    """Same prompt, same sizes, other pixels: only the features tell the rows apart."""
    model = packages.model("tiny-full", target)
    pictures = [np.random.default_rng(seed).integers(0, 256, (30, 50, 3), np.uint8) for seed in range(3)]
    prompts = [model.prompt_ids("<|image|> Why?", images=[each]) for each in pictures]
    alone = [cold(model).generate(ids, **GREEDY).ids for ids in prompts]
    assert len({tuple(tokens) for tokens in alone}) == 3
    answers = cold(model).generate(prompts, **GREEDY)
    assert [a.ids for a in answers] == alone


# Port closure: what a component takes is what another makes

GIVEN = {
    "vision_encoder": {"pixel_values", "pixel_position_ids"},
    "audio_encoder": {"input_features", "input_features_mask"},
    "embedding": {"input_ids"},
    "decoder": {"input_ids", "attention_mask", "logits_to_keep"},
}
Port = tuple[int, tuple[int | str, ...]]


def ports(package: Path) -> dict[str, tuple[dict[str, Port], dict[str, Port]]]:
    """Inputs and outputs of each component: element type and shape by name."""
    found = {}
    for file in sorted(package.glob("*/model.onnx")):
        graph = onnx.load(file, load_external_data=False).graph
        sides = [
            {
                v.name: (
                    v.type.tensor_type.elem_type,
                    tuple(d.dim_value or d.dim_param for d in v.type.tensor_type.shape.dim),
                )
                for v in values
            }
            for values in (graph.input, graph.output)
        ]
        found[file.parent.name] = sides[0], sides[1]
    return found


@pytest.mark.parametrize("target", ALL)
@pytest.mark.parametrize("kind", ["tiny-full", "big-full"])
def test_ports_close(packages: Packages, kind: str, target: str) -> None:
    """An input is a request's, a cache, or the output of another component of the same type, rank and width."""
    known = ports(packages(kind, target))
    assert set(known) == ({*GIVEN} if kind == "tiny-full" else {*GIVEN} - {"audio_encoder"})
    made = {name: port for _, outputs in known.values() for name, port in outputs.items()}
    taken = set[str]()
    for component, (inputs, outputs) in known.items():
        for name, (dtype, shape) in inputs.items():
            if name in GIVEN[component]:
                continue
            source = name.replace("past_key_values", "present")
            assert source in (outputs if source != name else made), (component, name)
            other, its = made[source]
            assert (other, len(its), its[-1]) == (dtype, len(shape), shape[-1]), (component, name)
            assert isinstance(shape[-1], int), (component, name)
            taken.add(source)
    assert set(made) - taken == {"logits", f"hidden_states.{9 if kind == 'tiny-full' else 5}"}
    assert ("per_layer_inputs" in made) == (kind == "tiny-full")
    assert ("input_ids" in known["decoder"][0]) == (kind == "big-full")


@pytest.mark.parametrize("target", ["default", "webgpu"])
@pytest.mark.parametrize("kind", ["tiny-full", "big-full"])
def test_nothing_is_found_in_a_package(packages: Packages, kind: str, target: str) -> None:
    package = packages(kind, target)
    findings = cabochon.validate(package).findings
    assert [f for f in findings if f.severity.name == "ERROR"] == []
    config = json.loads((package / "genai_config.json").read_bytes())
    assert ("filename" in config["model"]["speech"]) == (kind == "tiny-full")
