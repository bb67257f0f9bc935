"""A package that generates: the recorded ids, batches, streams, turns, limits."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cabochon
from cabochon.errors import PackageError, RequestError
from cabochon.runtime import Generation, Model, memory
from packages import MINIATURE, TINY, Packages

GREEDY: Any = {"greedy": True, "ignore_eos": True}
NAMES = ("text/text", "text/text_long")


@pytest.mark.parametrize("target", ["default", "onnx-standard", "cuda", "webgpu"])
@pytest.mark.parametrize("chunk", [3, 512])
@pytest.mark.parametrize("name", NAMES)
def test_greedy_ids_are_the_recorded_ones(
    packages: Packages, recorded: Any, target: str, chunk: int, name: str
):
    model = packages.model("tiny", target)
    model.forget()
    answer = model.generate(recorded[name]["prompt"], max_new_tokens=16, prefill_chunk=chunk, **GREEDY)
    assert answer.ids == recorded[name]["tokens"]
    assert answer.prompt_ids == recorded[name]["prompt"]
    assert answer.finish_reason == "length"
    assert answer.timings.reused == 0


@pytest.mark.parametrize("target", ["default", "cuda", "webgpu"])
def test_ragged_batches_equal_single_runs(packages: Packages, recorded: Any, target: str):
    model = packages.model("tiny", target)
    prompts = [*(recorded[name]["prompt"] for name in NAMES), [2], recorded[NAMES[1]]["prompt"][:31], [2, 77]]
    answers = model.generate(prompts, max_new_tokens=40, **GREEDY)
    singles = [model.generate(p, max_new_tokens=40, **GREEDY) for p in prompts]
    assert [a.ids for a in answers] == [s.ids for s in singles]
    assert [a.text for a in answers] == [s.text for s in singles]


def test_rows_finish_apart(model: Model, recorded: Any):
    """With a stop for each, rows leave the batch at different steps, and the others go on as if alone."""
    prompts = [recorded[name]["prompt"] for name in NAMES] * 2
    eos = frozenset({recorded[NAMES[0]]["tokens"][3], recorded[NAMES[1]]["tokens"][9]})
    model.eos_token_ids, before = eos, model.eos_token_ids
    try:
        answers = model.generate(prompts, max_new_tokens=16, greedy=True)
    finally:
        model.eos_token_ids = before
    assert [len(a.ids) for a in answers] == [4, 10, 4, 10]
    assert {a.finish_reason for a in answers} == {"eos"}
    assert answers[1].ids == recorded[NAMES[1]]["tokens"][:10]


def test_sampled_batches_draw_like_single_runs_of_the_next_seeds(model: Model):
    rows = model.generate(["Hello"] * 3, max_new_tokens=12, seed=5, ignore_eos=True)
    singles = [model.generate("Hello", max_new_tokens=12, seed=5 + n, ignore_eos=True) for n in range(3)]
    assert [r.ids for r in rows] == [s.ids for s in singles]
    assert len({tuple(r.ids) for r in rows}) == 3


def test_a_batch_may_mix_kinds_of_prompts(model: Model):
    chat, text = [{"role": "user", "content": "Hello"}], "Hello"
    answers = model.generate([chat, text, model.prompt_ids(text)], max_new_tokens=1)
    assert [a.prompt_ids for a in answers] == [model.prompt_ids(p) for p in (chat, text, text)]
    assert isinstance(model.generate("Hello", max_new_tokens=1), Generation)


def test_sampling_follows_generation_config(model: Model):
    assert model.folder.generation["do_sample"] is True
    one, two = (model.generate("Hello", max_new_tokens=12, seed=seed, ignore_eos=True).ids for seed in (1, 2))
    assert one == model.generate("Hello", max_new_tokens=12, seed=1, ignore_eos=True).ids
    assert one != two
    cold = model.generate("Hello", max_new_tokens=12, temperature=0, ignore_eos=True).ids
    assert cold == model.generate("Hello", max_new_tokens=12, **GREEDY).ids


def test_eos_is_the_union_of_all_files(packages: Packages, tmp_path: Path):
    folder = shutil.copytree(packages(), tmp_path / "p")
    (folder / "generation_config.json").write_text('{"eos_token_id": 50}')
    config = (folder / "config.json").read_text()
    assert '"eos_token_id": 1' in config
    (folder / "config.json").write_text(config.replace('"eos_token_id": 1', '"eos_token_id": 60'))
    assert cabochon.load(folder).eos_token_ids == {50, 60, 1}  # tokenizer_config.json: <eos>


def test_stream_pieces_are_the_text(model: Model):
    stream = model.stream("Hello", max_new_tokens=40, seed=3, ignore_eos=True)
    pieces = list(stream)
    answer = stream.generation
    assert "".join(pieces) == answer.text == model.tokens.decode(answer.ids)
    assert all(pieces)
    assert answer.ids == model.generate("Hello", max_new_tokens=40, seed=3, ignore_eos=True).ids


def test_stop_strings_span_tokens_and_are_not_said(model: Model):
    whole = model.generate("Hello", max_new_tokens=40, **GREEDY)
    stop = next(whole.text[n : n + 4] for n in range(3, 90) if "\ufffd" not in whole.text[n : n + 4])
    stream = model.stream("Hello", max_new_tokens=40, stop=[stop, "never"], **GREEDY)
    assert "".join(stream) == stream.generation.text == whole.text.split(stop)[0]
    assert stream.generation.finish_reason == "stop"
    assert stream.generation.ids == whole.ids[: len(stream.generation.ids)]


def test_a_closed_stream_leaves_the_model_usable(model: Model, recorded: Any):
    prompt = recorded[NAMES[1]]["prompt"]
    with model.stream(prompt, max_new_tokens=16, **GREEDY) as stream:
        next(stream)
    assert stream.generation.finish_reason == "closed"
    assert 0 < len(stream.generation.ids) < 16
    answer = model.generate(prompt, max_new_tokens=16, **GREEDY)
    assert answer.ids == recorded[NAMES[1]]["tokens"]
    assert answer.timings.reused == len(prompt) - 1


@pytest.mark.parametrize("fault", [KeyboardInterrupt, ValueError])
def test_an_interrupt_leaves_the_model_usable(model: Model, recorded: Any, fault: type[BaseException]):
    def interrupt(ids: Any, logits: np.ndarray) -> np.ndarray:
        if len(ids) > 20:
            raise fault
        return logits

    prompt = recorded[NAMES[0]]["prompt"]
    with pytest.raises(fault):
        model.generate(prompt, max_new_tokens=16, hooks=[interrupt], **GREEDY)
    assert model.generate(prompt, max_new_tokens=16, **GREEDY).ids == recorded[NAMES[0]]["tokens"]


def test_two_streams_at_once(model: Model, recorded: Any):
    streams = [model.stream(recorded[name]["prompt"], max_new_tokens=16, **GREEDY) for name in NAMES]
    for stream in streams:
        next(stream)
    for stream in streams:
        list(stream)
    assert [s.generation.ids for s in streams] == [recorded[name]["tokens"] for name in NAMES]


def test_hooks_steer(model: Model):
    def only(ids: Any, logits: np.ndarray) -> np.ndarray:
        return np.where(np.arange(len(logits)) == 300 + len(ids) % 2, logits, -np.inf)

    assert set(model.generate("Hello", max_new_tokens=6, hooks=[only]).ids) == {300, 301}


@pytest.mark.parametrize("target", ["default", "cuda"])
@pytest.mark.parametrize("size", [3, 30, 60])
def test_a_second_turn_equals_a_cold_run(packages: Packages, target: str, size: int):
    """The window has wrapped many times; what the turns share is not computed again."""
    model = packages.model("miniature", target)
    model.forget()
    messages = [{"role": "user", "content": "Hello " * size}]
    first = model.generate(messages, max_new_tokens=30, **GREEDY)
    messages += [
        {"role": "assistant", "content": first.text},
        {"role": "user", "content": "Continue: In the beginning"},
    ]
    second = model.generate(messages, max_new_tokens=30, **GREEDY)
    assert second.timings.reused > 0
    model.forget()
    cold = model.generate(messages, max_new_tokens=30, **GREEDY)
    assert cold.timings.reused == 0
    assert second.ids == cold.ids


@pytest.mark.parametrize("edit", [1, 20, 55])
def test_a_changed_conversation_equals_a_cold_run(model: Model, recorded: Any, edit: int):
    prompt = recorded[NAMES[1]]["prompt"]
    model.generate(prompt, max_new_tokens=16, **GREEDY)
    changed = [*prompt[:edit], 77, *prompt[edit + 1 :]]
    warm = model.generate(changed, max_new_tokens=16, **GREEDY)
    model.forget()
    assert warm.ids == model.generate(changed, max_new_tokens=16, **GREEDY).ids
    assert warm.timings.reused in (0, edit)


def test_forward_gives_every_position(model: Model, recorded: Any):
    prompt = recorded[NAMES[1]]["prompt"]
    whole, chunked = model.forward(prompt), model.forward(prompt, chunk=7, hidden=False)
    assert whole.logits.shape == (60, 512) and whole.hidden.shape == (60, 64)
    assert whole.logits[-1].argmax() == recorded[NAMES[1]]["tokens"][0]
    np.testing.assert_allclose(chunked.logits, whole.logits, atol=1e-4 * np.abs(whole.logits).max())
    assert chunked.hidden is None


def test_a_long_context_costs_what_is_used(model: Model):
    """A prompt of three tokens holds three columns, whatever the model could hold."""
    assert model.session.ports.contract.max_positions == 4096
    model.generate([2, 30, 40], max_new_tokens=2, **GREEDY)
    ports = model.session.ports
    assert model._kept.nbytes == 4 * (ports.column_bytes(False) + ports.column_bytes(True))


def test_a_context_of_131072_tokens_runs_a_short_prompt_in_bounded_memory(tmp_path: Path, recorded: Any):
    import psutil

    source = shutil.copytree(TINY / "text", tmp_path / "source")
    config = (source / "config.json").read_text()
    (source / "config.json").write_text(config.replace(": 4096", ": 131072"))
    cabochon.build(source, tmp_path / "out", precision="f32", license="apache-2.0")
    model = cabochon.load(tmp_path / "out", threads=1)
    assert model.session.ports.contract.max_positions == 131072
    before = psutil.Process().memory_info().rss
    answer = model.generate(recorded[NAMES[0]]["prompt"], max_new_tokens=16, **GREEDY)
    assert answer.ids == recorded[NAMES[0]]["tokens"]
    assert psutil.Process().memory_info().rss - before < 32 << 20
    with pytest.raises(
        RequestError, match="a prompt of 15 tokens and 131072 new ones; the model has 131072 positions"
    ):
        model.generate(recorded[NAMES[0]]["prompt"], max_new_tokens=131072)


def test_what_memory_cannot_hold_is_refused_with_the_bytes(model: Model, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(memory, "available", lambda: 100_000)
    with pytest.raises(RequestError) as caught:
        model.generate([2, 30, 40], max_new_tokens=4000)
    assert "100,000 bytes are available" in str(caught.value)
    need = memory.needed(
        model.session.ports, rows=1, tokens=4003, chunk=3, sliding=model.eviction.most, heads=4
    )
    assert f"4003 tokens of context need about {need:,} bytes" in str(caught.value)
    with pytest.raises(RequestError, match="bytes are available"):
        model.generate(["Hello", "World"], max_new_tokens=4000)
    assert model.generate("Hello", max_new_tokens=2, **GREEDY).ids


@pytest.mark.parametrize(
    ("prompt", "options", "message"),
    [
        ([2] * 4000, {"max_new_tokens": 100}, "4000 tokens and 100 new ones; the model has 4096 positions"),
        ([], {}, "an empty prompt"),
        ("x", {"top_q": 1}, "top_q: unknown option"),
        ([[2], []], {}, "an empty prompt"),
        (
            [2] * 4096,
            {},
            "a prompt of 4096 tokens, which leaves no room for an answer; the model has 4096 positions",
        ),
    ],
)
def test_requests_are_refused(model: Model, prompt: Any, options: Any, message: str):
    with pytest.raises(RequestError) as caught:
        model.generate(prompt, **options)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("prompt", "options", "message"),
    [
        ([], {}, "an empty prompt"),
        ([2] * 4097, {}, "a prompt of 4097 tokens; the model has 4096 positions"),
        ([2], {"chunk": 0}, "chunk: 0; expected a whole number from 1"),
        ([2], {"chunk": -1}, "chunk: -1"),
    ],
)
def test_forward_is_refused(model: Model, prompt: Any, options: Any, message: str):
    with pytest.raises(RequestError) as caught:
        model.forward(prompt, **options)
    assert message in str(caught.value)


def test_weights_that_are_no_numbers_are_noticed(packages: Packages, tmp_path: Path):
    folder = shutil.copytree(packages(), tmp_path / "p")
    data = (folder / "model.onnx.data").stat().st_size
    (folder / "model.onnx.data").write_bytes(np.full(data // 4, np.nan, "<f4").tobytes() + bytes(data % 4))
    with pytest.raises(PackageError, match="logits: the largest logit is NaN or infinite"):
        cabochon.load(folder, threads=1).generate([2, 30], greedy=True)


def test_a_package_without_a_tokenizer_takes_ids(packages: Packages, tmp_path: Path, recorded: Any):
    folder = shutil.copytree(packages(), tmp_path / "p")
    for name in ("tokenizer.json", "chat_template.jinja"):
        (folder / name).unlink()
    model = cabochon.load(folder, threads=1)
    answer = model.generate(recorded[NAMES[0]]["prompt"], max_new_tokens=16, **GREEDY)
    assert (answer.ids, answer.text) == (recorded[NAMES[0]]["tokens"], "")
    for prompt, file in (
        ("Hello", "tokenizer.json"),
        ([{"role": "user", "content": "x"}], "chat_template.jinja"),
    ):
        with pytest.raises(RequestError, match=f"the package has no {file}"):
            model.generate(prompt)
    with pytest.raises(RequestError, match="no stop strings"):
        model.generate([2], stop="x")


def test_a_folder_that_is_no_package(tmp_path: Path):
    with pytest.raises(PackageError, match="make one with `cabochon build`"):
        cabochon.load(tmp_path)


@pytest.mark.parametrize("target", ["default", "cuda"])
def test_f16_ports(packages: Packages, target: str):
    """Caches and logits are float16 on the ports, float32 to a caller."""
    model = packages.model("miniature", target, "f16")
    assert model.session.ports.dtype == np.float16
    forward = model.forward("In the beginning God created the heaven and the earth. " * 4)
    assert forward.logits.dtype == np.float32
    exact = packages.model("miniature", target).forward(
        "In the beginning God created the heaven and the earth. " * 4
    )
    assert np.abs(forward.logits - exact.logits).max() < 0.02 * np.abs(exact.logits).max()
    answer = model.generate([{"role": "user", "content": "Hello"}], max_new_tokens=60, greedy=True)
    assert answer.finish_reason == "eos"
    assert answer.text.startswith("I am a very small model")


def test_the_miniature_in_a_batch(packages: Packages):
    model = packages.model("miniature")
    text = (MINIATURE / "heldout.txt").read_text()
    prompts = [text[:20], text[500:900], "日本語 😀", text[2000:2060]]
    answers = model.generate(prompts, max_new_tokens=48, **GREEDY)
    assert [a.ids for a in answers] == [model.generate(p, max_new_tokens=48, **GREEDY).ids for p in prompts]


def test_a_package_of_last_logits_generates_and_says_what_it_cannot(
    tmp_path: Path, packages: Packages
) -> None:
    """`--logits-to-keep 1`: the graph has no input for another count."""
    made = cabochon.build(
        MINIATURE / "target", tmp_path / "p", precision="f32", license="mit", logits_to_keep=1
    )
    model = cabochon.load(made.path, threads=1, provider="cpu")
    asked = {"greedy": True, "max_new_tokens": 40}
    expected = packages.model("miniature").generate("And it came to pass", **asked)
    assert model.generate("And it came to pass", **asked).ids == expected.ids
    with pytest.raises(RequestError, match="gives those of the last one alone"):
        model.forward("And it came to pass")
