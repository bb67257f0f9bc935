"""Full packages through the runtimes that others wrote: text, pictures, sound; the same tokens as ours.

Released versions as pinned; everything on the CPU, the graphs of cuda and webgpu included.
"""

from pathlib import Path

import pytest

import cabochon.dialects
from cabochon.clients import Probes, onnxruntime_genai, probe
from cabochon.clients.probing import ask
from cabochon.metadata.folder import convert_package
from packages import Packages

pytestmark = pytest.mark.clients

ALL = [
    *(("tiny-full", target, "f32") for target in cabochon.dialects.TARGETS),
    ("tiny-full", "default", "f16"),
    ("big-full", "default", "f32"),
    ("big-full", "cuda", "f32"),
]
HEARS = "tiny-full"  # the other one takes no sound


@pytest.fixture(scope="module", params=ALL, ids="-".join)
def tried(request: pytest.FixtureRequest, packages: Packages) -> tuple[str, Probes]:
    return request.param[0], probe(packages(*request.param), seconds=120)


def test_the_same_tokens_after_text(tried: tuple[str, Probes]) -> None:
    _, probes = tried
    for name in ("load", "greedy", "chunks"):
        assert probes["onnxruntime-genai"][name].outcome == "worked", probes["onnxruntime-genai"][name]
    for name in ("show", "load", "tokenize", "generate"):
        assert probes["onnx-genai"][name].outcome == "worked", probes["onnx-genai"][name]


def test_the_same_tokens_after_pictures(tried: tuple[str, Probes]) -> None:
    """Its own processor, our graphs; pictures of a size that no budget changes are the same pixels there."""
    genai = tried[1]["onnxruntime-genai"]
    for name in ("image", "two images"):
        assert genai[name].happened == "the same 40 tokens as cabochon's own runtime", genai[name]


def test_the_same_tokens_after_sound(tried: tuple[str, Probes]) -> None:
    source, probes = tried
    genai = probes["onnxruntime-genai"]
    if source != HEARS:
        assert "audio" not in [each.name for each in genai.probes]
        return
    for name in ("audio", "image and audio"):
        assert genai[name].happened == "the same 40 tokens as cabochon's own runtime", genai[name]
    assert genai["two clips"].outcome == "refused" and "only 1 audio clip" in genai["two clips"].happened


def test_the_released_runtime_takes_one_picture(tried: tuple[str, Probes]) -> None:
    found = tried[1]["onnx-genai"]
    assert found["image"].happened == "the same text as cabochon's own runtime", found["image"]
    assert found["two images"].outcome == "refused"
    assert "one encoded media tensor per request" in found["two images"].happened


def test_the_released_runtime_takes_no_sound(tried: tuple[str, Probes]) -> None:
    source, probes = tried
    if source == HEARS:
        found = probes["onnx-genai"]["audio"]
        assert found.outcome == "refused" and "no typed audio media input" in found.happened


def test_the_unified_model(packages: Packages, tmp_path: Path) -> None:
    """There too a patch is a token, and so is a frame of samples."""
    package, names = packages("unified-full"), ("two images", "image and audio")
    tried = [one for one in ask(package, count=8, media=tmp_path).trials if one.name in names]
    found = onnxruntime_genai.client(package, tried, seconds=120)
    assert [one.name for one in tried] == list(names)
    for name in names:
        assert found[name].happened == "the same 8 tokens as cabochon's own runtime", found[name]


def test_what_is_left_out_is_said(packages: Packages, tmp_path: Path) -> None:
    made = convert_package(packages("tiny-full"), tmp_path / "served", "v1.8")
    assert any("sound is left out" in remark for remark in made.remarks)
