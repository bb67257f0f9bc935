"""transformers' assistant and its candidate generator, overheard."""

from collections.abc import Generator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

__all__ = ["Listening", "centroid_scores", "noting"]


@contextmanager
def centroid_scores(assistant: Any) -> Generator[list[Any], None, None]:
    """A list that gets the centroid scores [C] of every step; none come from a dense head."""
    found: list[Any] = []
    head = assistant.masked_embedding
    handle = head and head.centroids.register_forward_hook(lambda _m, _i, out: found.append(out[0, 0]))
    yield found
    if handle:
        handle.remove()


class Listening:
    """An assistant that remembers what it was given and what it said."""

    def __init__(self, torch: Any, model: Any, scores: list[Any]) -> None:
        self.device, self._torch, self._model, self._scores = model.device, torch, model, scores
        self._steps: list[tuple[Any, ...]] = []

    def __call__(self, **given: Any) -> Any:
        """One step."""
        self._scores.clear()
        out = self._model(**given)
        scores = self._scores[-1] if self._scores else out.logits.new_empty(0)
        self._steps.append(
            (given["inputs_embeds"][0, 0], out.logits[0, 0], out.last_hidden_state[0, 0], scores)
        )
        return out

    def inputs(self) -> Any:
        """[k, 2M]"""
        return self._torch.stack([step[0] for step in self._steps])

    def said(self) -> tuple[Any, ...]:
        """Logits [k, V], states [k, M], centroid scores [k, C]."""
        return tuple(self._torch.stack([step[n] for step in self._steps]) for n in (1, 2, 3))


def noting(torch: Any, transformers: Any) -> Any:
    """transformers' candidate generator, which notes every round."""
    base = transformers.generation.candidate_generator.SinglePositionMultiTokenCandidateGenerator

    class Noting(base):  # pyright: ignore[reportUntypedBaseClass]
        """`only_valid`: the drafter is shown the keys of the tokens that stand, all of them and no others."""

        def __init__(
            self, assistant: Any, embeddings: Any, config: Any, scores: list[Any], only_valid: bool
        ) -> None:
            super().__init__(assistant, embeddings, config)
            self._model, self._scores, self._only_valid = assistant, scores, only_valid
            self._whole: dict[str, tuple[Any, ...]] = {}
            self._known = 0
            self.noted: list[SimpleNamespace] = []
            self.calls = 0

        def get_candidates(
            self, input_ids: Any, model_kwargs: Any, model_outputs: Any, is_first_iteration: bool, **more: Any
        ) -> tuple[Any, Any]:
            """One round. It is asked for candidates before every step of the target."""
            self.calls += 1
            length = input_ids.shape[1]
            rejected = 0
            if not is_first_iteration:
                rejected = self._remember(model_outputs.shared_kv_states, length)
            if self._only_valid and not is_first_iteration:
                shown = {
                    kind: tuple(x[:, :, : length - 1] for x in pair) for kind, pair in self._whole.items()
                }
                model_outputs = SimpleNamespace(
                    hidden_states=model_outputs.hidden_states, shared_kv_states=shown
                )
            self.assistant_model = listening = Listening(torch, self._model, self._scores)
            ids, logits = super().get_candidates(
                input_ids, model_kwargs, model_outputs, is_first_iteration, **more
            )
            drafts = tuple(ids[0, length:].tolist())
            self.noted.append(
                SimpleNamespace(
                    length=length, drafts=drafts, rejected=rejected, shared=self._whole,
                    inputs=listening.inputs() if drafts else None, said=listening.said() if drafts else None,
                )
            )  # fmt: skip
            return ids, logits

        def _remember(self, shared: Any, length: int) -> int:
            """Put the keys of the last step behind those of the tokens that stood before it; how many do not stand."""
            total = shared["full_attention"][0].shape[2]
            new = total - self._known
            self._whole = {
                kind: tuple(
                    torch.cat([*(old[:, :, : self._known] for old in self._whole.get(kind, ())[n : n + 1]),
                               x[:, :, -new:]], dim=2)
                    for n, x in enumerate(pair)
                )
                for kind, pair in shared.items()
            }  # fmt: skip
            self._known = length - 1
            return total - self._known

    return Noting
