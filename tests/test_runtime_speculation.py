"""Speculative decoding says what plain decoding says: whoever proposes, whatever ends the answer."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from cabochon.errors import RequestError
from cabochon.runtime import Eviction, Model, PromptLookup, acceptance, speculation
from cabochon.runtime.draft_length import Adaptive
from cabochon.runtime.sampling import Sampling
from pairs import Pairs
from speculating import Foreseeing, plainly, row, speculatively

GREEDY: Any = {"greedy": True, "ignore_eos": True}
NAMES = ("text/text", "text/text_long")
WINDOW = 8


@pytest.fixture
def model(pairs: Pairs) -> Model:
    """The tiny pair, target default, f32, with nothing kept from a test before."""
    model = pairs.model()
    model.forget()
    return model


@pytest.mark.parametrize("target", ["default", "onnx-standard", "cuda", "webgpu"])
@pytest.mark.parametrize(("source", "record"), [("tiny", "assistant"), ("tiny-dense", "assistant-dense")])
@pytest.mark.parametrize("name", NAMES)
def test_the_recorded_answers(pairs: Pairs, recorded: Any, target: str, source: str, record: str, name: str):
    """60 prompt tokens, or 15 and 16 new ones, cross the window of 8 in every round."""
    model = pairs.model(source, target)
    model.forget()
    said = model.generate(recorded[name]["prompt"], max_new_tokens=16, num_draft_tokens=6, **GREEDY)
    assert said.ids == recorded[name]["tokens"]
    did = said.speculation
    assert did is not None
    assert did.proposed == did.accepted + did.rejected > did.accepted > 0
    assert sum(n * rounds for n, rounds in enumerate(did.accepted_per_round)) == did.accepted
    assert did.target_calls == sum(did.accepted_per_round)
    assert did.tokens_per_target_call == 15 / did.target_calls > 1
    assert did.drafter_seconds > 0 < did.target_seconds


def test_the_first_rounds_are_those_of_the_reference(pairs: Pairs, recorded: Any):
    """Up to the first round that transformers drafts from stale keys; the dense drafter meets few of them."""
    model = pairs.model("tiny-dense")
    model.forget()
    said = model.generate(recorded["text/text"]["prompt"], max_new_tokens=16, num_draft_tokens=6, **GREEDY)
    matches = [step["last_matches"] for step in recorded["assistant-dense/text/text"]["trace"][2:]]
    assert matches == [6, 4]
    assert said.speculation.accepted_per_round == [0, 0, 1, 0, 1, 0, 1]  # 6, 4, and 2 before the limit


@pytest.mark.parametrize("limit", range(1, 10))
def test_the_length_limit_is_kept(model: Model, recorded: Any, limit: int):
    """The last rounds propose less, and nothing is read beyond the positions."""
    prompt, tokens = recorded[NAMES[0]]["prompt"], recorded[NAMES[0]]["tokens"]
    said = model.generate(prompt, max_new_tokens=limit, num_draft_tokens=6, **GREEDY)
    assert (said.ids, said.finish_reason) == (tokens[:limit], "length")
    assert said.speculation.proposed <= max(0, 6 * (limit - 1))


def test_the_last_position_is_used(model: Model):
    positions = model.session.ports.contract.max_positions
    prompt = np.random.default_rng(3).integers(24, 512, positions - 5).tolist()
    said = model.generate(prompt, max_new_tokens=5, num_draft_tokens=4, **GREEDY)
    assert said.ids == model.generate(prompt, max_new_tokens=5, speculation=False, **GREEDY).ids


@pytest.mark.parametrize("place", range(1, 10))
def test_an_end_of_sequence_within_accepted_drafts(model: Model, recorded: Any, place: int):
    prompt, tokens = recorded[NAMES[0]]["prompt"], recorded[NAMES[0]]["tokens"]
    one = row(prompt, 16, eos=frozenset({tokens[place]}))
    first = tokens.index(tokens[place])
    knows = Foreseeing([prompt + tokens], right=1.0)
    assert speculatively(model.session, one, knows, 6) == tokens[: first + 1]
    assert one.finish_reason == "eos"


def test_a_stop_string_within_accepted_drafts(model: Model):
    whole = model.generate("Hello", max_new_tokens=40, speculation=False, **GREEDY)
    for at in range(3, 60, 7):
        stop = whole.text[at : at + 4]
        if "\ufffd" in stop:
            continue
        model.forget()
        plain = model.generate("Hello", max_new_tokens=40, stop=stop, speculation=False, **GREEDY)
        model.forget()
        with model.stream("Hello", max_new_tokens=40, stop=stop, num_draft_tokens=5, **GREEDY) as stream:
            assert "".join(stream) == plain.text
        said = stream.generation
        assert (said.text, said.ids, said.finish_reason) == (plain.text, plain.ids, plain.finish_reason)


@pytest.mark.parametrize("target", ["default", "cuda"])
@pytest.mark.parametrize("reserve", [0, 1, 3, 10])
@pytest.mark.parametrize("chunk", [3, 512])
def test_evicted_caches_and_chunked_prefill(
    pairs: Pairs, recorded: Any, target: str, reserve: int, chunk: int
):
    """Also where less is kept than a round takes back, and tokens must be read again."""
    model, made = pairs.model("tiny", target), recorded[NAMES[1]]
    for proposer in (model.proposer, Foreseeing([made["prompt"] + made["tokens"]], right=0.6)):
        eviction = Eviction(WINDOW, reserve=reserve, slack=2)
        one = row(made["prompt"], 16)
        assert speculatively(model.session, one, proposer, 5, eviction, chunk=chunk) == made["tokens"]


def test_caches_keep_what_long_drafts_need(model: Model, recorded: Any):
    """40 drafts are more than a state keeps by itself; nothing is computed twice."""
    made = recorded[NAMES[1]]
    model.generate(made["prompt"], max_new_tokens=16, num_draft_tokens=40, **GREEDY)
    assert model.eviction.reserve == 42
    assert model._kept.eviction == model.eviction
    model.eviction = Eviction.usual(WINDOW)


@pytest.mark.parametrize("target", ["default", "cuda"])
def test_second_turns_equal_cold_plain_ones(pairs: Pairs, target: str):
    model = pairs.model("miniature", target)
    model.forget()
    messages = [{"role": "user", "content": "Hello " * 30}]
    first = model.generate(messages, max_new_tokens=30, num_draft_tokens=4, **GREEDY)
    messages += [
        {"role": "assistant", "content": first.text},
        {"role": "user", "content": "Continue: In the beginning"},
    ]
    second = model.generate(messages, max_new_tokens=30, num_draft_tokens=4, **GREEDY)
    assert second.timings.reused > 0
    for plain, said in ((messages[:1], first), (messages, second)):
        model.forget()
        assert model.generate(plain, max_new_tokens=30, speculation=False, **GREEDY).ids == said.ids


@pytest.mark.parametrize("edit", [1, 55, 59])
def test_a_changed_conversation_equals_a_cold_run(model: Model, recorded: Any, edit: int):
    prompt = recorded[NAMES[1]]["prompt"]
    model.generate(prompt, max_new_tokens=16, num_draft_tokens=5, **GREEDY)
    changed = [*prompt[:edit], 77, *prompt[edit + 1 :]]
    warm = model.generate(changed, max_new_tokens=16, num_draft_tokens=5, **GREEDY)
    model.forget()
    assert warm.ids == model.generate(changed, max_new_tokens=16, speculation=False, **GREEDY).ids


def test_hooks_and_penalty_see_each_position_once_with_its_prefix(model: Model, recorded: Any):
    """A hook with a memory cannot tell how tokens are decoded."""
    prompt = recorded[NAMES[0]]["prompt"]

    def seen(**options: Any) -> tuple[list[int], list[list[int]]]:
        calls = list[list[int]]()

        def odd_places_are_even_tokens(ids: Sequence[int], logits: np.ndarray) -> np.ndarray:
            calls.append(list(ids))
            return np.where(np.arange(len(logits)) % 2 == len(calls) % 2, logits, -np.inf)

        model.forget()
        hooks = [odd_places_are_even_tokens]
        said = model.generate(
            prompt, max_new_tokens=20, hooks=hooks, repetition_penalty=1.3, **GREEDY, **options
        )
        return said.ids, calls

    assert seen(num_draft_tokens=4) == seen(speculation=False)


def test_ties_fall_as_in_plain_decoding(model: Model, recorded: Any):
    """Logits rounded to whole numbers tie all the time; such choices are made again on caches of plain decoding."""
    prompt = recorded[NAMES[0]]["prompt"]
    options: Any = {"max_new_tokens": 20, "hooks": [lambda ids, logits: np.round(logits)], **GREEDY}
    plain = model.generate(prompt, speculation=False, **options)
    model.forget()
    said = model.generate(prompt, num_draft_tokens=4, **options)
    assert said.ids == plain.ids
    assert said.speculation.read_again > 0
    assert said.speculation.tokens_per_target_call < 20


def test_a_doubted_choice_is_that_of_single_steps(
    model: Model, monkeypatch: pytest.MonkeyPatch, recorded: Any
):
    """With every choice doubted, every token comes from steps of one token on caches of such steps: the same bits."""
    made, seen = recorded[NAMES[1]], dict[str, dict[int, np.ndarray]]()

    def watched(name: str, **options: Any) -> Any:
        def watch(ids: Sequence[int], logits: np.ndarray) -> np.ndarray:
            seen.setdefault(name, {})[len(ids)] = logits.copy()  # the last time it was asked counts
            return logits

        model.forget()
        return model.generate(made["prompt"], max_new_tokens=12, hooks=[watch], **GREEDY, **options)

    watched("plain", speculation=False)
    monkeypatch.setattr(speculation, "too_close", lambda scores, logits: True)
    again = watched("again", num_draft_tokens=3)
    assert again.ids == made["tokens"][:12]
    assert (
        again.speculation.read_again == 10
    )  # the first comes from the prompt, the last from a step without drafts
    assert seen["again"].keys() == seen["plain"].keys()
    for place, logits in seen["plain"].items():
        np.testing.assert_array_equal(seen["again"][place], logits)


def test_a_step_of_several_tokens_differs_by_less_than_is_allowed_for(pairs: Pairs):
    """Two units in the last place of float16; in float32 an eighth of where a choice is doubted."""
    text = "And it came to pass in those days, that there went out a decree from Caesar Augustus. " * 2
    for precision, allowed in (("f16", 2.0**-9), ("f32", acceptance.RESOLUTION / 8)):
        model = pairs.model("miniature", "default", precision)
        ids, one, several = model.prompt_ids(text), model.state(), model.state()
        lone = np.concatenate([one.step([[i]]).logits[0] for i in ids[:50]])
        together = np.concatenate([several.step([ids[n : n + 5]], keep=0).logits[0] for n in range(0, 50, 5)])
        assert np.abs(lone - together).max() <= allowed * np.abs(lone).max()


@pytest.mark.parametrize(
    "how", [{"temperature": 0.7}, {"temperature": 1.0, "top_k": 64, "top_p": 0.95, "min_p": 0.01}]
)
def test_a_seed_draws_the_same_however_tokens_are_proposed(pairs: Pairs, how: Any):
    model = pairs.model("miniature")
    options = {"max_new_tokens": 40, "seed": 11, "ignore_eos": True, "repetition_penalty": 1.1, **how}
    plain = model.generate("And it came to pass", speculation=False, **options)
    for proposing in ({"num_draft_tokens": 1}, {"num_draft_tokens": 5}, {}):
        model.forget()
        said = model.generate("And it came to pass", **options, **proposing)
        assert said.ids == plain.ids
    assert said.ids != model.generate("And it came to pass", **{**options, "seed": 12}).ids


def test_sharing_noise_makes_drafts_right_more_often(pairs: Pairs):
    """A drafter that draws with the target's noise to come is right more often than one that takes the likeliest."""
    model = pairs.model("miniature")
    own, accepted = model.proposer, dict[str, int]()

    class Likeliest:
        name, reads_hidden = "likeliest", True

        def propose(self, state: Any, ids: Any, hidden: Any, count: int, guess: Any) -> Sequence[int]:
            return own.propose(state, ids, hidden, count, lambda ahead, logits: int(logits.argmax()))

    options = {
        "temperature": 1.0,
        "top_k": 64,
        "ignore_eos": True,
        "num_draft_tokens": 1,
        "max_new_tokens": 80,
    }
    for proposer in (own, Likeliest()):
        model.proposer = proposer
        said = [model.generate("And the LORD said", seed=seed, **options).speculation for seed in (1, 2)]
        accepted[proposer.name] = sum(s.accepted for s in said) / sum(s.proposed for s in said)
    model.proposer = own
    assert accepted["drafter"] > accepted["likeliest"] + 0.05


def test_as_many_as_pay_is_the_default(model: Model, recorded: Any):
    model._draft_length_left_open = Adaptive()
    said = model.generate(recorded[NAMES[0]]["prompt"], max_new_tokens=16, **GREEDY)
    assert said.ids == recorded[NAMES[0]]["tokens"]
    assert said.speculation.proposed > 0
    again = model.generate(recorded[NAMES[0]]["prompt"], max_new_tokens=16, num_draft_tokens="auto", **GREEDY)
    assert again.ids == said.ids


def test_what_the_makers_propose_comes_first(pairs: Pairs, recorded: Any):
    """assistant_generation_config.json says 6, and an answer of 8 tokens has room for so many behind the first."""
    import cabochon

    made = recorded[NAMES[0]]
    said = cabochon.load(pairs(), threads=1).generate(made["prompt"], max_new_tokens=3, **GREEDY)
    assert said.speculation.proposed == 1
    said = cabochon.load(pairs(), threads=1).generate(made["prompt"], max_new_tokens=8, **GREEDY)
    assert said.speculation.proposed >= 6


@pytest.mark.parametrize("right", [0.0, 0.5, 1.0])
def test_proposers_of_ones_own(model: Model, recorded: Any, right: float):
    made, own = recorded[NAMES[0]], model.proposer
    model.proposer = Foreseeing([made["prompt"] + made["tokens"]], right)
    said = model.generate(made["prompt"], max_new_tokens=16, num_draft_tokens=4, **GREEDY)
    model.proposer = own
    assert said.ids == made["tokens"]
    assert said.speculation.accepted == {0.0: 0, 1.0: 12}.get(right, said.speculation.accepted)
    if not right:
        assert said.remarks == (
            f"speculation: 0 of {said.speculation.proposed} proposed tokens were accepted; it only takes time",
        )
    else:
        assert said.remarks == ()


def test_prompt_lookup_with_a_package_alone(pairs: Pairs):
    import cabochon

    model = cabochon.load(pairs("miniature") / "target", threads=1, proposer="prompt-lookup")
    prompt = "Blessed are the poor in spirit: for theirs is the kingdom of heaven. Blessed are"
    said = model.generate(prompt, max_new_tokens=60, num_draft_tokens=6, **GREEDY)
    assert said.ids == model.generate(prompt, max_new_tokens=60, speculation=False, **GREEDY).ids
    assert said.speculation.proposer == "prompt-lookup"
    assert said.speculation.tokens_per_target_call > 1.3


def test_nobody_to_propose(pairs: Pairs):
    import cabochon

    model = cabochon.load(pairs() / "target", threads=1)
    with pytest.raises(RequestError, match="speculation: nobody is there to propose tokens"):
        model.generate([2, 30], speculation=True)
    assert model.generate([2, 30], max_new_tokens=2, num_draft_tokens=3).speculation is None


@pytest.mark.parametrize("target", ["default", "cuda"])
def test_rows_of_a_batch_accept_independently(pairs: Pairs, recorded: Any, target: str):
    model = pairs.model("tiny", target)
    prompts = [recorded[name]["prompt"] for name in NAMES]
    options: Any = {"max_new_tokens": 16, **GREEDY}
    together = model.generate(prompts, speculation=True, num_draft_tokens=6, **options)
    assert [t.ids for t in together] == [recorded[name]["tokens"] for name in NAMES]
    accepted = [t.speculation.accepted for t in together]
    assert len(set(accepted)) == 2
    assert all(t.speculation is None for t in model.generate(prompts, **options))


def test_sampled_rows_draw_like_plain_ones(model: Model):
    options: Any = {"max_new_tokens": 12, "seed": 5, "ignore_eos": True, "temperature": 1.0}
    rows = model.generate(["Hello"] * 3, speculation=True, num_draft_tokens=3, **options)
    assert [r.ids for r in rows] == [r.ids for r in model.generate(["Hello"] * 3, **options)]


def test_a_closed_stream_leaves_the_model_usable(model: Model, recorded: Any):
    made = recorded[NAMES[0]]
    for pieces in range(1, 7):
        with model.stream(made["prompt"], max_new_tokens=16, num_draft_tokens=6, **GREEDY) as stream:
            said = "".join(next(stream) for _ in range(pieces))
        closed = stream.generation
        assert (closed.finish_reason, closed.text) == ("closed", said)
        assert closed.ids == made["tokens"][: len(closed.ids)]
        assert model._kept.tokens[0] == (made["prompt"] + closed.ids)[: model._kept.length]
        answer = model.generate(made["prompt"], max_new_tokens=16, num_draft_tokens=6, **GREEDY)
        assert answer.ids == made["tokens"]


@pytest.mark.parametrize("fault", [KeyboardInterrupt, ValueError])
def test_an_interrupt_leaves_the_model_usable(model: Model, recorded: Any, fault: type[BaseException]):
    def interrupt(ids: Any, logits: np.ndarray) -> np.ndarray:
        if len(ids) > 20:
            raise fault
        return logits

    made = recorded[NAMES[0]]
    with pytest.raises(fault):
        model.generate(made["prompt"], max_new_tokens=16, num_draft_tokens=4, hooks=[interrupt], **GREEDY)
    assert (
        model.generate(made["prompt"], max_new_tokens=16, num_draft_tokens=4, **GREEDY).ids == made["tokens"]
    )


def test_f16_pairs(pairs: Pairs):
    model = pairs.model("miniature", "default", "f16")
    plain = model.generate("And it came to pass", max_new_tokens=60, speculation=False, **GREEDY)
    model.forget()
    said = model.generate("And it came to pass", max_new_tokens=60, num_draft_tokens=4, **GREEDY)
    assert said.ids == plain.ids
    assert said.speculation.tokens_per_target_call > 1.5


def test_lookup_rows_on_states_of_ones_own(model: Model, recorded: Any):
    made = recorded[NAMES[1]]
    said = speculatively(model.session, row(made["prompt"], 16), PromptLookup(), 4)
    assert said == plainly(model.session, row(made["prompt"], 16, Sampling())) == made["tokens"]
