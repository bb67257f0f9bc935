"""What a caller may ask for beside the prompt, and what becomes of it with the package's own defaults."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypedDict

from cabochon.errors import RequestError
from cabochon.runtime.attachments import OPTIONS
from cabochon.runtime.kinds import AUTO, checked
from cabochon.runtime.sampling import Hook, Sampling, sampling
from cabochon.runtime.state import PREFILL_CHUNK

MAX_NEW_TOKENS = 256
SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed")


class Options(TypedDict, total=False):
    """Options of `generate` and `stream`; None is as good as left out.

    Sampling values left out come from generation_config.json. `greedy` decides where given; else temperature 0 is
    greedy, any other asked-for sampling value samples, and what is left follows the file's `do_sample`.
    """

    max_new_tokens: int | None
    """Left out: generation_config.json's or 256, shortened to what the model's positions hold."""
    greedy: bool | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    repetition_penalty: float | None
    seed: int | None
    """Makes draws repeatable; row n of a batch draws with seed + n."""
    stop: str | Sequence[str] | None
    """Strings that end the answer; they may span tokens and are not part of the text."""
    ignore_eos: bool
    hooks: Sequence[Hook]
    """Functions (ids so far, logits [V] float32) -> logits [V], in this order, before the temperature."""
    prefill_chunk: int | None
    """The most prompt tokens of one step; left out: 512."""
    speculation: bool | None
    """False: decode plainly. True: let the drafter, or whoever is loaded, propose; RequestError where nobody is. Left
    out: propose where somebody is loaded and there is one prompt. The answer is the same."""
    num_draft_tokens: int | Literal["auto"] | None
    """How many tokens are proposed in a round of speculative decoding; left out: "auto", as many as pay."""
    parse_special: bool
    """True: control tokens written in raw text are meant. Without it they are letters."""
    template: Mapping[str, Any] | None
    """The chat template's own options: tools, enable_thinking ..."""
    images: Sequence[Any] | None
    """What the placeholders of images stand for, in order: paths, bytes, arrays u8 [H, W, 3], Pillow images, or what
    `Model.encode_images` gave. For a list of prompts, a list of them for each."""
    audio: Sequence[Any] | None
    """Clips: paths, bytes, (samples, sampling rate), or what `Model.encode_audio` gave."""
    videos: Sequence[Any] | None
    """Videos: paths, bytes, frames, or a list of frames that `Model.encode_images` gave."""


@dataclass(frozen=True)
class Request:
    """Options, checked and completed.

    `limit` is None where the caller left the number of tokens open, `num_draft_tokens` where it is as many as pay.
    """

    how: Sampling
    limit: int | None
    stop: tuple[str, ...]
    ignore_eos: bool
    hooks: tuple[Hook, ...]
    chunk: int
    parse_special: bool
    template: Mapping[str, Any]
    speculation: bool | None = None
    num_draft_tokens: int | None = None
    media: Mapping[str, Sequence[Any]] = field(default_factory=dict[str, Sequence[Any]])

    def for_row(self, number: int, rows: int) -> "Request":
        """The same for one of several prompts; raise RequestError where media are not given for each."""
        media = {kind: _of_row(kind, given, number, rows) for kind, given in self.media.items() if given}
        return replace(self, media=media)

    def room(self, tokens: int, positions: int, usual: int = MAX_NEW_TOKENS) -> int:
        """How many tokens may follow a prompt of `tokens`; raise RequestError where they exceed the positions."""
        check_positions(tokens, self.limit, positions)
        return self.limit or min(usual, positions - tokens)


def _of_row(kind: str, given: Sequence[Any], number: int, rows: int) -> Sequence[Any]:
    if len(given) != rows or not all(isinstance(row, list | tuple) for row in given):
        raise RequestError(
            f"{len(given)} for {rows} prompts; expected a list of them for each prompt", at=OPTIONS[kind]
        )
    return given[number]


def check_positions(tokens: int, new: int | None, positions: int) -> None:
    """Raise RequestError where a prompt is empty or leaves no room for `new` tokens (None: at least one)."""
    if not tokens:
        raise RequestError(
            "an empty prompt; expected at least one token", at="prompt", remedy="give text or token ids"
        )
    if tokens + (1 if new is None else new) <= positions:
        return
    found = f"a prompt of {tokens} tokens" + (f" and {new} new ones" if new else "")
    if new is None:
        found += ", which leaves no room for an answer"
    raise RequestError(
        f"{found}; the model has {positions} positions",
        at="context",
        remedy="shorten the prompt" + (" or ask for fewer new tokens" if new else ""),
    )


def read_request(options: Mapping[str, Any], defaults: Mapping[str, Any]) -> Request:
    """Complete `options` from generation_config.json (`defaults`); raise RequestError for one that is wrong."""
    for name in options.keys() - Options.__annotations__.keys():
        raise RequestError(f"unknown option; expected {', '.join(Options.__annotations__)}", at=name)
    given = {k: v for k, v in checked(options, options).items() if v is not None}
    return Request(
        how=sampling(defaults, {k: given.get(k) for k in SAMPLING}, greedy=given.get("greedy")),
        limit=given.get("max_new_tokens"),
        stop=given.get("stop", ()),
        ignore_eos=given.get("ignore_eos", False),
        hooks=given.get("hooks", ()),
        chunk=given.get("prefill_chunk", PREFILL_CHUNK),
        parse_special=given.get("parse_special", False),
        template=given.get("template", {}),
        speculation=given.get("speculation"),
        num_draft_tokens=None if given.get("num_draft_tokens") == AUTO else given.get("num_draft_tokens"),
        media={kind: given.get(option, ()) for kind, option in OPTIONS.items()},
    )
