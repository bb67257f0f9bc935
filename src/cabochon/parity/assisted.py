"""The reference of a drafter: transformers' assisted generation, recorded step by step.

transformers 5.24 cuts the target's keys to the number of tokens, not to those that have keys. After a rejection its
drafter sees keys of rejected drafts: one in full layers, more in sliding ones. And of a sliding cache it sees what the
target kept for itself, at times fewer keys than it was trained with. What it generates is right all the same. We record
it as it is, and once more with the keys of all tokens that stand and no others, which a drafter can be held to.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from cabochon.checkpoint import Checkpoint
from cabochon.parity.dequantized import Dequantized
from cabochon.parity.full_reference import Reference
from cabochon.parity.noting import Listening, centroid_scores, noting
from cabochon.parity.passed import Prepared
from cabochon.parity.prompts import Prompt
from cabochon.parity.reference import DTYPES, WHOLE, _answer, _libraries, _load, _stored, as_text
from cabochon.parity.replaced import Standin
from cabochon.parity.rounds import Assisted, Recorded, Run, Said, Steps, rounds_of
from cabochon.parity.unified_masks import masked

__all__ = ["record_assisted"]

ASSISTANTS = {
    "gemma4_assistant": "Gemma4AssistantForCausalLM",
    "gemma4_unified_assistant": "Gemma4UnifiedAssistantForCausalLM",
}


def record_assisted(
    target: Checkpoint,
    assistant: Checkpoint,
    prompts: Sequence[Prompt],
    prepared: Mapping[str, Prepared],
    *,
    precision: str,
    arithmetics: Sequence[str],
    width: int,
    folder: Path,
    new_tokens: int,
    progress: Callable[[str], None] = lambda _: None,
    weights: tuple[Dequantized, Dequantized] = (WHOLE, WHOLE),
) -> Recorded:
    """Loads both in `precision` and lets them answer every prompt in each of `arithmetics`, "f32" last.

    `weights` of target and assistant stand in the place of the checkpoints'. `width` tokens are proposed a round.
    `prepared`: by name, the inputs of prompts that have media. Arrays are written below `folder`. Raises ParityError as
    `record` does.
    """
    torch, transformers = _libraries()
    big, one = _load(torch, transformers, target.root, target.config, precision)
    small, other = _load(torch, transformers, assistant.root, assistant.config, precision, ASSISTANTS)
    small.generation_config.num_assistant_tokens = width
    if not prepared:
        as_text(torch, big)
    standins = Standin(torch, big, weights[0]), Standin(torch, small, weights[1])
    answers: dict[str, dict[str, Assisted]] = {}
    for name in arithmetics:
        with (
            standins[0].computing(name),
            standins[1].computing(name),
            torch.inference_mode(),
            masked(big) as masks,
            centroid_scores(small) as scores,
        ):
            one |= masks
            pair = _Pair(torch, transformers, big, small, scores, new_tokens, folder / name)
            pair.target = Reference(torch, big, target.config, folder / f"{name}-target", new_tokens)
            pair.prepared = prepared
            if name == "f32":
                answers = {earlier: _exactly(pair, said) for earlier, said in answers.items()}
            answers[name] = {}
            for prompt in prompts:
                progress(f"transformers {name}, assisted: {prompt.name}")
                answers[name][prompt.name] = pair.answer(prompt)
    head = small.masked_embedding
    return Recorded(
        {
            "library": one["library"],
            "weights_dtype": DTYPES[precision],
            "arithmetic_dtypes": [DTYPES[name] for name in arithmetics],
            "target": _part(one, standins[0]),
            "assistant": _part(other, standins[1]),
        },
        None if head is None else int(head.centroid_intermediate_top_k),
        width,
        answers,
        {f"target: {name}": found for name, found in standins[0].differences.items()}
        | standins[1].differences,
    )


def _part(identity: Mapping[str, Any], standin: Standin) -> dict[str, Any]:
    known = ("class", "loading_info", "masks")
    return {key: identity[key] for key in known if key in identity} | standin.described()


def _exactly(pair: "_Pair", said: Mapping[str, Assisted]) -> dict[str, Assisted]:
    """Everything that was recorded in another arithmetic, and what these weights say to it in f32."""
    return {
        name: replace(one, steps=tuple(replace(s, exact=pair.again(s)) for s in one.steps))
        for name, one in said.items()
    }


class _Pair:
    """Target and assistant in one arithmetic; what they say is kept in files of a folder."""

    target: Reference
    prepared: Mapping[str, Prepared]

    def __init__(
        self,
        torch: Any,
        transformers: Any,
        big: Any,
        small: Any,
        scores: list[Any],
        new_tokens: int,
        place: Path,
    ) -> None:
        self._torch, self._big, self._small, self._scores = torch, big, small, scores
        self._new_tokens, self._place = new_tokens, place
        self._noting = noting(torch, transformers)
        place.mkdir(parents=True, exist_ok=True)

    def answer(self, prompt: Prompt) -> Assisted:
        """Plain greedy generation, then assisted as it is and with valid keys only."""
        if prompt.name in self.prepared:
            (answer,) = self.target(self.prepared[prompt.name]).answers
        else:
            answer = _answer(self._torch, self._big, prompt, self._place, self._new_tokens)
        as_is, _ = self._run(prompt, only_valid=False)
        valid, noted = self._run(prompt, only_valid=True)
        return Assisted(answer, as_is, valid, tuple(self._steps(prompt, valid, noted)))

    def _run(self, prompt: Prompt, *, only_valid: bool) -> tuple[Run, list[SimpleNamespace]]:
        given, made = self._given(prompt), []

        def generator(**given: Any) -> Any:
            embeddings = self._big.get_input_embeddings()
            made.append(
                self._noting(self._small, embeddings, given["generation_config"], self._scores, only_valid)
            )
            return made[0]

        self._big._get_candidate_generator = generator
        try:
            out = self._big.generate(
                **given, max_new_tokens=self._new_tokens, do_sample=False, eos_token_id=[],
                assistant_model=self._small,
            )  # fmt: skip
        finally:
            del self._big._get_candidate_generator
        tokens = tuple(out[0, len(prompt.ids) :].tolist())
        noted = made[0].noted
        proposals = [(note.length, note.drafts) for note in noted]
        return Run(tokens, rounds_of(proposals, prompt.ids, tokens), made[0].calls), noted

    def _given(self, prompt: Prompt) -> dict[str, Any]:
        if prompt.name in self.prepared:
            return self.target.given(self.prepared[prompt.name])
        ids = self._torch.tensor([prompt.ids])
        return {"input_ids": ids, "attention_mask": self._torch.ones_like(ids)}

    def _steps(self, prompt: Prompt, run: Run, noted: Sequence[SimpleNamespace]) -> Iterator[Steps]:
        noted = [note for note in noted if note.drafts]
        stem = re.sub(r"\W+", "_", prompt.name)
        for i, (round, note) in enumerate(zip(run.rounds, noted, strict=True)):

            def stored(name: str, x: Any, at: str = f"{stem}.{i}") -> np.ndarray:
                return _stored(x, self._place / f"{at}.{name}.npy")

            shared = {
                kind: (stored(f"{kind}.key", pair[0]), stored(f"{kind}.value", pair[1]))
                for kind, pair in note.shared.items()
            }
            own = Said(*(stored(name, x) for name, x in zip(Said.__annotations__, note.said, strict=True)))
            before = run.rounds[i - 1] if i else None
            yield Steps(round, before, note.rejected, stored("inputs", note.inputs), shared, own, own)

    def again(self, steps: Steps) -> Said:
        """What this assistant says to recorded inputs."""
        dtype = self._small.dtype
        valid = {
            kind: tuple(self._torch.tensor(x[:, :, : steps.keys]).to(dtype) for x in pair)
            for kind, pair in steps.shared.items()
        }
        assistant = Listening(self._torch, self._small, self._scores)
        for x in steps.inputs:
            assistant(
                inputs_embeds=self._torch.tensor(x[None, None]).to(dtype), attention_mask=None,
                position_ids=self._torch.tensor([[steps.keys]]), shared_kv_states=valid, use_cache=False,
            )  # fmt: skip
        return Said(*(x.float().numpy() for x in assistant.said()))
