"""The whole set of ports and properties of each component; anything else is refused."""

from typing import Any, NamedTuple

import pytest

from cabochon.errors import PackageError
from cabochon.runtime.components import COMPONENTS, check_ports, check_properties, open_component
from packages import Packages

BUILT = ("default", "f32")
SAID = {
    "vision_encoder": {"patch_size": "4", "pooling_kernel_size": "3", "position_embedding_size": "256"},
    "audio_encoder": {},
    "embedding": {"pad_token_id": "0", "image_token_id": "8"},
}


class Port(NamedTuple):
    name: str
    type: str
    shape: list[Any]


def said(name: str, **changes: str | None) -> dict[str, str]:
    known = {"model": name, "target": "default", "precision": "f32", **SAID[name], **changes}
    return {key: value for key, value in known.items() if value is not None}


@pytest.mark.parametrize("name", COMPONENTS)
@pytest.mark.parametrize("target", ["default", "cuda"])
def test_built_components_are_taken(packages: Packages, name: str, target: str):
    folder = packages("tiny-full", target)
    graph = open_component(folder, name, (target, "f32"), threads=1, provider="cpu")
    assert set(graph.outputs) <= set(COMPONENTS[name].outputs)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("embedding", {"pad_token_id": None}, "cabochon.pad_token_id is missing"),
        ("vision_encoder", {"pooling_kernel_size": None}, "cabochon.pooling_kernel_size is missing"),
        ("audio_encoder", {"layout": "2"}, "cabochon.layout is unknown ('2')"),
        ("audio_encoder", {"model": "decoder"}, "cabochon.model is 'decoder'; expected 'audio_encoder'"),
        ("embedding", {"target": "cuda"}, "cabochon.target is 'cuda'; expected 'default'"),
        ("embedding", {"precision": "f16"}, "cabochon.precision is 'f16'; expected 'f32'"),
    ],
)
def test_properties_are_refused(name: str, changes: dict[str, str | None], message: str):
    with pytest.raises(PackageError) as caught:
        check_properties(name, said(name, **changes), BUILT, f"{name}/model.onnx")
    assert str(caught.value).startswith(f"{name}/model.onnx: metadata: {message}")
    check_properties(name, said(name), BUILT, "")


PIXELS = Port("pixel_values", "tensor(float)", ["images", "patches", 48])
PLACES = Port("pixel_position_ids", "tensor(int64)", ["images", "patches", 2])


@pytest.mark.parametrize(
    ("ports", "message"),
    [
        ([PIXELS], "there is no 'pixel_position_ids'"),
        (
            [PIXELS, PLACES, Port("more", "tensor(float)", [])],
            "unknown port 'more'; expected pixel_values, pixel",
        ),
        (
            [PIXELS._replace(type="tensor(float16)"), PLACES],
            "'pixel_values' is tensor(float16) of 3 dimensions; expected tensor(float) of 3",
        ),
        ([PIXELS, PLACES._replace(shape=[1, 2])], "'pixel_position_ids' is tensor(int64) of 2 dimensions"),
    ],
)
def test_ports_are_refused(ports: list[Port], message: str):
    expected = COMPONENTS["vision_encoder"].inputs
    with pytest.raises(PackageError) as caught:
        check_ports(
            {p.name: p for p in ports}, expected, "tensor(float16)", "vision_encoder/model.onnx: inputs"
        )
    assert message in str(caught.value)
    check_ports({p.name: p for p in (PIXELS, PLACES)}, expected, "tensor(float16)", "")


def test_the_packages_type_is_that_of_its_precision():
    features = Port("image_features", "tensor(float)", ["image_tokens", 64])
    expected = COMPONENTS["vision_encoder"].outputs
    check_ports({"image_features": features}, expected, "tensor(float)", "")
    with pytest.raises(
        PackageError, match=r"is tensor\(float\) of 2 dimensions; expected tensor\(float16\) of 2"
    ):
        check_ports({"image_features": features}, expected, "tensor(float16)", "")


def test_ports_that_a_model_may_lack():
    given = {"input_ids": Port("input_ids", "tensor(int64)", ["batch", "sequence"])}
    check_ports(given, COMPONENTS["embedding"].inputs, "tensor(float)", "")
    made = {"inputs_embeds": Port("inputs_embeds", "tensor(float)", ["batch", "sequence", 64])}
    check_ports(made, COMPONENTS["embedding"].outputs, "tensor(float)", "")
