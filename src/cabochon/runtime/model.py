"""A package that generates."""

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Unpack, overload

import numpy as np

from cabochon.errors import RequestError
from cabochon.runtime import memory
from cabochon.runtime.columns import Eviction, eviction_limit
from cabochon.runtime.draft_length import FIRST, Adaptive, DraftLength, Fixed
from cabochon.runtime.drafter import Drafter
from cabochon.runtime.embedding import open_session
from cabochon.runtime.flow import Stops
from cabochon.runtime.folder import Folder, open_folder
from cabochon.runtime.generation import Generation, Row, answer, answer_all
from cabochon.runtime.pair import TARGET, is_pair, num_assistant_tokens
from cabochon.runtime.parts import Message
from cabochon.runtime.prompts import Prompt, Prompts, is_batch, lacking
from cabochon.runtime.proposers import DrafterProposer, Proposer, named_proposer
from cabochon.runtime.request import MAX_NEW_TOKENS, Options, Request, check_positions, read_request
from cabochon.runtime.sampling import Sampler
from cabochon.runtime.session import Session
from cabochon.runtime.soft import Medium, chunks, run_start
from cabochon.runtime.speculation import speculate
from cabochon.runtime.state import PREFILL_CHUNK, State, stack


class Forward(NamedTuple):
    """Every position of a prompt: logits [S, V], and the hidden tap [S, D] after the final norm; float32."""

    logits: np.ndarray
    hidden: np.ndarray | None


def load(
    package: str | Path,
    *,
    threads: int | None = None,
    provider: str | None = None,
    provider_options: Mapping[str, Any] | None = None,
    session_options: Mapping[str, Any] | None = None,
    proposer: Proposer | str | None = None,
) -> "Model":
    """Open a package, or the pair of a target and its drafter, and make it ready to generate.

    `threads` per operator (default: one per core); `provider` "cpu", "cuda", "webgpu", "dml", "openvino" or an
    onnxruntime name (default: the target's own where installed, else the CPU); `provider_options` and `session_options`
    go to onnxruntime as they are. OpenVINO's IR is run by OpenVINO, which takes `provider_options`. `proposer`,
    "prompt-lookup" or one of your own, makes speculative decoding possible with a package alone, and takes the place of
    the drafter in a pair. Raises PackageError for a package that is not right, RequestError for what cannot be done
    with it here.
    """
    options: dict[str, Any] = dict(
        threads=threads, provider=provider, provider_options=provider_options, session_options=session_options
    )
    path = Path(package)
    pair = is_pair(path)
    folder = open_folder(path / TARGET if pair else path)
    session = open_session(folder, **options)
    if proposer is not None:
        chosen = named_proposer(proposer, hidden=session.ports.hidden is not None)
    else:
        chosen = DrafterProposer(Drafter(path, session, **options)) if pair else None
    first = num_assistant_tokens(path) if pair else None
    return Model(folder, session, chosen, Adaptive(first=first or FIRST))


class Model:
    """A loaded package. The caches of one conversation stay between calls, so a next turn costs only what is new.

    How far that goes, words and media decide: behind the same words another picture is fed anew.

    `session` holds the ports and the provider, `tokens` the tokenizer, `chat` the template (None where the package has
    none), `eos_token_ids` the union of all files, `remarks` what the package asks for and is not followed, `proposer`
    who proposes tokens in speculative decoding (None: nobody).
    """

    def __init__(
        self,
        folder: Folder,
        session: Session,
        proposer: Proposer | None = None,
        draft_length: DraftLength | None = None,
    ) -> None:
        """See `load`. `draft_length` is that of requests which leave it open, for all of them together."""
        self.folder, self.session, self.proposer = folder, session, proposer
        self._prompts = Prompts(folder, session.ports.vocabulary, session.embedder)
        self.tokens, self.chat = self._prompts.tokens, self._prompts.chat
        end = self.tokens.id_of(self.tokens.named.get("eos_token")) if self.tokens else None
        self.eos_token_ids = folder.eos_token_ids | ({end} if end is not None else set())
        self.remarks = folder.remarks
        window = session.ports.contract.window
        self.eviction = None if window is None else Eviction.usual(window)
        self._kept: State | None = None
        self._draft_length_left_open = draft_length or Adaptive()

    @overload
    def generate(self, prompt: Prompt, **options: Unpack[Options]) -> Generation: ...
    @overload
    def generate(
        self, prompt: list[str] | list[list[Message]] | list[list[int]], **options: Unpack[Options]
    ) -> list[Generation]: ...
    def generate(self, prompt: Any, **options: Unpack[Options]) -> Generation | list[Generation]:
        """Generate until end-of-sequence, a stop string or `max_new_tokens`; a list of prompts gives a list of answers.

        A prompt is raw text, the messages of a conversation, or token ids. A full package takes images, sound and
        video besides: as parts of messages ({"type": "image", "path": ...}), or with `images`, `audio` and `videos` for
        the placeholders in a text, such as <|image|>. Token ids are fed as they are: a placeholder for each soft token.

        Raises RequestError, before anything is computed, for a prompt or option that is wrong and for what the
        positions or the memory cannot hold.
        """
        request = self._request(options)
        if is_batch(prompt):
            each = [request.for_row(n, len(prompt)) for n in range(len(prompt))]
            ids = [self._prompts.ids(p, its) for p, its in zip(prompt, each, strict=True)]
            return self._answer_batch(ids, request)
        with Stream(self, self._prompts.ids(prompt, request), request) as stream:
            for _ in stream:
                pass
        return stream.generation

    def stream(self, prompt: Prompt, **options: Unpack[Options]) -> "Stream":
        """Like `generate` for one prompt; the text comes in pieces as it becomes certain."""
        request = self._request(options)
        return Stream(self, self._prompts.ids(prompt, request), request)

    def prompt_ids(self, prompt: Prompt, **options: Unpack[Options]) -> list[int]:
        """The token ids of a prompt as `generate` would feed them: with soft tokens where media stand."""
        return self._prompts.ids(prompt, self._request(options))

    def with_placeholders(self, text: str, **options: Unpack[Options]) -> str:
        """Raw text behind the placeholders of the `images`, `audio` and `videos` that go with it, in this order.

        Text that has a placeholder of its own stays as it is.
        """
        return self._prompts.with_placeholders(text, self._request(options))

    def encode_images(self, pixel_values: np.ndarray, pixel_position_ids: np.ndarray) -> list[Medium]:
        """Run the vision encoder on what a processor made of images or of frames.

        `pixel_values` f32 [images, patches, 3 x patch_size^2] in [0, 1]; `pixel_position_ids` i64 [images, patches, 2],
        (x, y), (-1, -1) for padding. What comes back has `features` [tokens, H], and goes to `generate` as `images`, or
        a list of it as one of `videos`. Raises RequestError for arrays that are none of that.
        """
        media = self.session.embedder.images(pixel_values, pixel_position_ids)
        self.session.embedder.encode(media)
        return media

    def encode_audio(self, input_features: np.ndarray, input_features_mask: np.ndarray) -> list[Medium]:
        """Run the audio encoder on what a processor made of clips.

        `input_features` f32 [clips, time, width], `input_features_mask` bool [clips, time]; for the rest see
        `encode_images`.
        """
        media = self.session.embedder.clips(input_features, input_features_mask)
        self.session.embedder.encode(media)
        return media

    def forward(
        self, prompt: Prompt, *, hidden: bool = True, chunk: int = PREFILL_CHUNK, **options: Unpack[Options]
    ) -> Forward:
        """Logits and hidden tap at every position of a prompt; nothing is kept."""
        ids, state = self.prompt_ids(prompt, **options), self.state(chunk)
        check_positions(len(ids), 0, self.session.ports.contract.max_positions)
        self._admit([ids], 0, chunk, extra=2 * 4 * len(ids) * self.session.ports.vocabulary)
        steps = [state.step([part], keep=0, hidden=hidden) for part in state.chunks(ids)]
        parts = zip(*((s.logits, s.hidden) for s in steps), strict=True)
        logits, taps = ([p[0] for p in part if p is not None] for part in parts)
        return Forward(np.concatenate(logits), np.concatenate(taps) if taps else None)

    def state(self, chunk: int = PREFILL_CHUNK) -> State:
        """A fresh state, for drivers of their own: `step`, `prefill`, `rewind`."""
        return State(self.session, self.eviction, chunk=chunk)

    def forget(self) -> None:
        """Let go of the caches of the last conversation."""
        self._kept = None

    def _request(self, options: Mapping[str, Any]) -> Request:
        request = read_request(options, self.folder.generation)
        if request.speculation and self.proposer is None:
            raise RequestError(
                "nobody is there to propose tokens",
                at="speculation",
                remedy="load a pair of a target and its drafter, or load with proposer='prompt-lookup'",
            )
        return request

    def _admit(
        self, prompts: Sequence[Sequence[int]], new: int, chunk: int, *, held: int = 0, extra: int = 0
    ) -> None:
        """Raise RequestError with the bytes where these prompts and `new` tokens each would not fit."""
        ports, lengths = self.session.ports, [len(ids) for ids in prompts]
        steps = [end - start for ids in prompts for start, end in chunks(ids, chunk, ports.whole_images)]
        tokens = max(lengths) + new
        need = extra + memory.needed(
            ports, rows=len(lengths), tokens=tokens, chunk=max(steps),
            sliding=self._most_columns(lengths),
            heads=self.folder.text_config.get("num_attention_heads") or 1,
        )  # fmt: skip
        have = memory.available() if self.session.device == "cpu" else None
        memory.check_fits(need, have, held=held, tokens=tokens)

    def _most_columns(self, lengths: Sequence[int]) -> int:
        """The most columns a sliding cache keeps; left-justified rows wait for the shortest."""
        left = self.session.ports.contract.left_justified
        return (self.eviction.most if self.eviction else 0) + left * (max(lengths) - min(lengths))

    def _row(self, ids: list[int], request: Request, number: int = 0) -> Row:
        usual = self.folder.generation.get("max_new_tokens") or MAX_NEW_TOKENS
        limit = request.room(len(ids), self.session.ports.contract.max_positions, usual)
        eos = frozenset[int]() if request.ignore_eos else self.eos_token_ids
        sampler = Sampler(request.how, request.hooks, row=number)
        if request.stop and self.tokens is None:
            raise lacking("tokenizer.json", "no stop strings")
        return Row(ids, sampler, limit, eos, self.tokens, Stops(request.stop))

    def _answer(self, row: Row, chunk: int, length: DraftLength | None) -> Generator[str, None, None]:
        """Decode one row on the kept state and keep it again, whatever happens: a state is whole between its steps."""
        state = self._resume(row.prompt, chunk)
        row.reused = state.length
        try:
            yield from self._decoded(state, row, length)
        finally:
            self._kept = state

    def _decoded(self, state: State, row: Row, length: DraftLength | None) -> Generator[str, None, None]:
        if length is None or self.proposer is None:
            return answer(state, row)
        return speculate(state, row, self.proposer, length)

    def _draft_length(self, request: Request, rows: int = 1) -> DraftLength | None:
        """None for plain decoding. From now on sliding caches keep what so long drafts need.

        Several rows speculate one after the other, and only where that was asked for: together and plainly they were
        faster (docs/speculation.md).
        """
        wanted = rows == 1 if request.speculation is None else request.speculation
        if self.proposer is None or not wanted:
            return None
        length = Fixed(request.num_draft_tokens) if request.num_draft_tokens else self._draft_length_left_open
        if self.eviction is not None and self.eviction.reserve < length.most + 2:
            self.eviction = Eviction.usual(self.eviction.window, length.most)
        return length

    def _draft_bytes(self, length: DraftLength | None) -> int:
        """What the logits of a round take, as they come and in float32."""
        ports = self.session.ports
        return 0 if length is None else length.most * ports.vocabulary * (ports.dtype.itemsize + 4)

    def _resume(self, prompt: Sequence[int], chunk: int) -> State:
        """The kept state, rewound to what it shares with the prompt but for its last token; else a fresh one."""
        state, self._kept = self._kept, None
        if state is None:
            return self.state(chunk)
        shared = _shared(state.tokens[0], prompt[:-1])
        if self.session.ports.whole_images:
            shared = run_start(prompt, shared)
        if not state.can_rewind(shared):
            return self.state(chunk)
        state.rewind(shared)
        state.chunk, state.eviction = chunk, self.eviction
        return state

    def _answer_batch(self, prompts: Sequence[list[int]], request: Request) -> list[Generation]:
        rows = [self._row(ids, request, n) for n, ids in enumerate(prompts)]
        length = self._draft_length(request, len(rows))
        new, extra = max(row.limit for row in rows), self._draft_bytes(length)
        self._admit(prompts, new, request.chunk, extra=extra)
        if length is None and self.session.ports.rows is None:
            answer_all(*self._filled(rows, request.chunk), rows)
            return [row.generation() for row in rows]
        for row in rows:
            for _ in self._decoded(self.state(request.chunk), row, length):
                pass
        return [row.generation() for row in rows]

    def _filled(self, rows: Sequence[Row], chunk: int) -> tuple[State, list[np.ndarray]]:
        """One state of all prompts, each fed by itself, and the logits behind each."""
        left = self.session.ports.contract.left_justified
        limit = eviction_limit([len(row.prompt) for row in rows], self.eviction, left)
        states, logits = [self.state(chunk) for _ in rows], list[np.ndarray]()
        for state, row in zip(states, rows, strict=True):
            state.evict_limit = limit
            logits.append(state.prefill(row.prompt))
            row.prefilled = time.perf_counter()
        return stack(states), logits


class Stream(Iterator[str]):
    """An answer as it comes: iterate for pieces of text, close at any time; `generation` is what came of it."""

    def __init__(self, model: Model, ids: list[int], request: Request) -> None:
        """Checks that the request fits; nothing is computed before the first piece is asked for."""
        self._row, length = model._row(ids, request), model._draft_length(request)
        held = 2 * model._kept.nbytes if model._kept else 0
        extra = model._draft_bytes(length)
        model._admit([ids], self._row.limit, request.chunk, held=held, extra=extra)
        self._pieces = model._answer(self._row, request.chunk, length)

    def __next__(self) -> str:
        """The next piece, never empty."""
        return next(piece for piece in self._pieces if piece)

    def close(self) -> None:
        """End here; the model stays as usable as after a whole answer."""
        self._pieces.close()

    def __enter__(self) -> "Stream":
        """The stream itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    @property
    def generation(self) -> Generation:
        """The answer as far as it came; `finish_reason` is "closed" until it has ended."""
        return self._row.generation()


def _shared(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the common beginning."""
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
