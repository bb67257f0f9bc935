"""Two packages side by side."""

import json
from pathlib import Path

import pytest

from cabochon.errors import PackageError, ParityError
from cabochon.parity import compare
from packages import Packages


def test_a_package_equals_itself(packages: Packages) -> None:
    found = compare(packages(), packages(), threads=1)
    assert found.ports == found.metadata == {}
    assert len(found.pairs) >= 10
    for pair in found.pairs:
        assert (pair.relative, pair.agreement, pair.equal_tokens) == (0, 1, 32)
    assert all(a == b for a, b in found.sizes.values())


def test_targets_and_precisions_differ_where_they_must(packages: Packages, tmp_path: Path) -> None:
    a, b = packages(precision="bf16"), packages(target="cuda")
    found = compare(a, b, threads=1, scratch=tmp_path)
    assert found.metadata["cabochon.target"] == ("default", "cuda")
    assert found.metadata["cabochon.precision"] == ("bf16", "f32")
    assert "cabochon.sliding_window" not in found.metadata
    assert found.ports["logits"][0][0] == "bfloat16"
    assert found.ports["logits"][1][0] == "float"
    half, full = found.sizes["model.onnx.data"]
    assert half is not None
    assert full is not None
    assert 1.5 < full / half < 2, "small tensors stand on pages of their own"
    assert max(pair.relative for pair in found.pairs) < 2e-3
    assert sum(pair.equal_tokens for pair in found.pairs) >= 0.9 * 32 * len(found.pairs)
    json.dumps(found.as_json())
    assert list(tmp_path.iterdir()) == []


def test_other_vocabularies_do_not_compare(packages: Packages) -> None:
    with pytest.raises(ParityError, match="vocabularies of 512 and 2048 entries"):
        compare(packages(), packages("miniature"))


def test_full_packages_run_as_a_whole(packages: Packages, tmp_path: Path) -> None:
    a, b = packages("tiny-full", "webgpu", "f16"), packages("tiny-full")
    found = compare(a, b, threads=1, scratch=tmp_path)
    by_name = {pair.prompt: pair for pair in found.pairs}
    assert {"english", "two images", "image and audio", "video", "rows, 3 of 3"} <= by_name.keys()
    assert all(pair.relative < 0.1 and pair.min_cosine > 0.99 for pair in found.pairs)
    assert found.metadata["vision_encoder: cabochon.precision"] == ("f16", "f32")
    assert found.ports["embedding: inputs_embeds"][0][0] == "float16"
    assert "vision_encoder: pixel_values" not in found.ports
    assert {"decoder/model.onnx", "audio_encoder/model.onnx.data"} <= found.sizes.keys()


def test_media_that_one_cannot_take_are_left_out(packages: Packages, tmp_path: Path) -> None:
    found = compare(packages("big-full"), packages("tiny-full"), threads=1, scratch=tmp_path)
    names = {pair.prompt for pair in found.pairs}
    assert {"english", "two images"} <= names
    assert "image and audio" not in names


def test_a_full_package_and_a_text_package_do_not_compare(packages: Packages) -> None:
    with pytest.raises(ParityError, match="one is a full package, the other is not; expected two of a kind"):
        compare(packages("tiny-full"), packages())


def test_of_a_pair_its_target_is_compared(packages: Packages) -> None:
    pair, text = packages("tiny-pair"), packages()
    found = compare(pair, text, threads=1)
    assert found == compare(pair / "target", text, threads=1)
    assert all(one.equal_tokens == 32 for one in found.pairs)
    assert compare(pair, pair, threads=1).ports == {}


@pytest.mark.parametrize("turned", [False, True])
def test_a_drafter_alone_does_not_compare(packages: Packages, turned: bool) -> None:
    drafter, other = packages("tiny-drafter"), packages()
    with pytest.raises(ParityError, match=r"a drafter, .*; expected a pair, or") as caught:
        compare(*((other, drafter) if turned else (drafter, other)))
    assert caught.value.at == str(drafter)
    assert "`cabochon parity`" in caught.value.remedy


@pytest.mark.parametrize("turned", [False, True])
def test_what_is_no_package_does_not_compare(packages: Packages, tmp_path: Path, turned: bool) -> None:
    for place, found in ((tmp_path, "holds no model.onnx"), (tmp_path / "nosuch", "is not a folder")):
        with pytest.raises(PackageError, match=rf"{found}.*; expected a package") as caught:
            compare(*((packages(), place) if turned else (place, packages())))
        assert caught.value.at == str(place)
        assert caught.value.remedy == "make one with `cabochon build`"
