"""Speculative decoding behind images and sound: the answer is that of plain decoding, whoever proposes."""

import shutil
from pathlib import Path
from typing import Any

import pytest

import cabochon
from cabochon.errors import PackageError
from cabochon.runtime import Model
from cabochon.runtime.draft_length import Adaptive
from full_packages import GREEDY, fresh, picture, recorded_media, said
from packages import TINY, Packages
from pairs import Pairs

TARGETS = ("default", "cuda", "webgpu")


@pytest.fixture(scope="module", params=TARGETS)
def pair(request: pytest.FixtureRequest, packages: Packages) -> Model:
    """A drafter over the decoder of a full package."""
    target = packages("tiny-full", request.param)
    out = packages.root / f"full-with-drafter-{request.param}"
    how: Any = {"target": request.param, "precision": "f32", "license": "apache-2.0"}
    built = cabochon.build(target, out, assistant=TINY / "assistant", **how)
    return cabochon.load(built.path, threads=1, provider="cpu")


@pytest.mark.parametrize("name", ["text", "text_long", "image", "audio"])
@pytest.mark.parametrize("count", [1, 4, "auto"])
def test_the_recorded_ids(pair: Model, recorded: Any, name: str, count: Any):
    pair.forget()
    pair._draft_length_left_open = Adaptive()  # its first rounds propose; later ones as seconds decide
    known = recorded[f"target/{name}"]
    given = recorded_media(pair, name)
    answer = pair.generate(known["prompt"], num_draft_tokens=count, **given, **GREEDY)
    assert answer.ids == known["tokens"]
    assert answer.speculation.proposer == "drafter" and answer.speculation.proposed > 0


@pytest.mark.parametrize("how", [{"greedy": True}, {"temperature": 0.9, "seed": 5}])
def test_any_answer_is_that_of_plain_decoding(pair: Model, how: Any):
    prompts = [
        said("See: ", picture(1), " What is this?"),
        said("First ", picture(2, 20, 90), " then ", picture(3, 64, 30)),
    ]
    for prompt in prompts:
        asked = {"max_new_tokens": 40, "ignore_eos": True, **how}
        pair.forget()
        plain = pair.generate(prompt, speculation=False, **asked)
        pair.forget()
        assert pair.generate(prompt, num_draft_tokens=3, **asked).ids == plain.ids
        assert pair.generate([prompt, prompt], speculation=True, **asked)[0].ids == plain.ids


def test_turns_with_other_pictures(pair: Model):
    pair.forget()
    first = pair.generate(said(picture(1), "What is this?"), num_draft_tokens=4, **GREEDY)
    turns = said(picture(1), "What is this?")
    turns += [{"role": "assistant", "content": first.text}, *said(picture(2), "And this?")]
    second = pair.generate(turns, num_draft_tokens=4, **GREEDY)
    pair.forget()
    assert second.ids == pair.generate(turns, speculation=False, **GREEDY).ids


@pytest.mark.parametrize("source", ["tiny-full", "big-full"])
def test_prompt_lookup(packages: Packages, source: str):
    """It may propose a placeholder, which the decoder then reads as padding."""
    plain = fresh(packages, source)
    model = cabochon.load(packages(source), threads=1, provider="cpu", proposer="prompt-lookup")
    for prompt in (said(picture(1), "What is this?"), said("a b a b a", picture(2, 64, 30), "a b a b")):
        plain.forget()
        answer = model.generate(prompt, num_draft_tokens=4, **{**GREEDY, "max_new_tokens": 40})
        assert answer.ids == plain.generate(prompt, **{**GREEDY, "max_new_tokens": 40}).ids


def test_a_pair_without_its_target_is_named(pairs: Pairs, tmp_path: Path):
    folder = shutil.copytree(pairs(), tmp_path / "p", ignore=shutil.ignore_patterns("model.onnx.data"))
    (folder / "target" / "model.onnx").unlink()
    with pytest.raises(PackageError, match=r"a drafter without target/model\.onnx"):
        cabochon.load(folder)
