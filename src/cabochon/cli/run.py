"""cabochon run: one answer from a package."""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cabochon.cli.options import (
    AsJson,
    Audio,
    Greedy,
    IgnoreEos,
    Images,
    MaxNewTokens,
    MinP,
    NumDraftTokens,
    Package,
    Proposer,
    Provider,
    ProviderOptions,
    RepetitionPenalty,
    Seed,
    Speculation,
    Stop,
    System,
    Temperature,
    Threads,
    TopK,
    TopP,
    Videos,
    read_media,
    read_provider_options,
    read_request,
)
from cabochon.cli.output import plain, print_json

if TYPE_CHECKING:
    from cabochon.runtime import Generation, Model
    from cabochon.runtime import Speculation as Figures

__all__ = ["computing", "guessed", "print_remarks", "run", "say", "user_turn"]


def run(
    context: typer.Context,
    package: Package,
    prompt: Annotated[str | None, typer.Option(help="Raw text to go on from.", show_default=False)] = None,
    chat: Annotated[
        str | None, typer.Option(help="What a user says; put through the chat template.", show_default=False)
    ] = None,
    ids: Annotated[str | None, typer.Option(help="Token ids: 2,105,2364.", show_default=False)] = None,
    image: Images = None,
    audio: Audio = None,
    video: Videos = None,
    system: System = None,
    max_new_tokens: MaxNewTokens = None,
    greedy: Greedy = False,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    min_p: MinP = None,
    repetition_penalty: RepetitionPenalty = None,
    seed: Seed = None,
    stop: Stop = None,
    ignore_eos: IgnoreEos = False,
    speculation: Speculation = None,
    num_draft_tokens: NumDraftTokens = None,
    proposer: Proposer = None,
    threads: Threads = None,
    provider: Provider = None,
    provider_option: ProviderOptions = None,
    as_json: AsJson = False,
) -> None:
    """Generate from a package. Text goes to standard output as it comes, figures to standard error.

    Images, sound and videos, in this order, come before what a user says with --chat. With --prompt they stand where
    the text has placeholders such as <|image|>, or before it where it has none. Sampling options left out are those of
    the package's generation_config.json.
    """
    media = read_media(image, audio, video)
    asked = read_prompt(prompt, chat, ids, system, media)
    options = read_request(context)
    options |= {"stop": stop or (), "ignore_eos": ignore_eos}
    provider_options = read_provider_options(provider_option)
    from cabochon.runtime import load

    model = load(
        package, threads=threads, provider=provider, provider_options=provider_options, proposer=proposer
    )
    if chat is None:
        options |= attached(media)
    if prompt is not None:
        asked = model.with_placeholders(prompt, **attached(media))
    found = model.generate(asked, **options) if as_json else say(model, asked, options)
    if as_json:
        print_json(plain(found) | {"provider": model.session.provider, "settings": model.session.settings})
    else:
        print(figures(found), file=sys.stderr)
    print_remarks(found)


def read_prompt(
    prompt: str | None, chat: str | None, ids: str | None, system: str | None, media: list[dict[str, str]]
) -> Any:
    """The one prompt that was given: text, messages or token ids; `media` are parts of what the user says."""
    if sum(given is not None for given in (prompt, chat, ids)) != 1:
        raise typer.BadParameter("give one of --prompt, --chat and --ids")
    if system is not None and chat is None:
        raise typer.BadParameter("--system goes with --chat")
    if ids is not None:
        return read_ids(ids)
    said = [{"role": "system", "content": system}] if system is not None else []
    return prompt if chat is None else [*said, user_turn(media, chat)]


def user_turn(media: list[dict[str, str]], text: str) -> dict[str, Any]:
    """A message: the media, then the text."""
    return {"role": "user", "content": [*media, {"type": "text", "text": text}] if media else text}


def attached(media: list[dict[str, str]]) -> dict[str, Any]:
    """The same for a prompt that is no message: {"images": [...], ...}"""
    given: dict[str, Any] = {}
    for part in media:
        kind = part["type"]
        given.setdefault({"image": "images", "video": "videos"}.get(kind, kind), []).append(part[kind])
    return given


def read_ids(text: str) -> list[int]:
    """ "2,105" -> [2, 105]"""
    try:
        return [int(number) for number in text.replace(",", " ").split()]
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a list of numbers", param_hint="--ids") from None


def say(model: "Model", prompt: Any, options: dict[str, Any]) -> "Generation":
    """Print the answer as it comes."""
    with model.stream(prompt, **options) as stream:
        for piece in stream:
            print(piece, end="", flush=True)
    print()
    return stream.generation


def figures(found: "Generation") -> str:
    """One line: how many tokens, how fast, why it ended; what speculation did."""
    t = found.timings
    parts = [
        f"{t.prompt_tokens} prompt tokens{seen(found)} in {t.prefill_seconds:.2f} s",
        f"{t.new_tokens} new at {t.tokens_per_second:.1f} a second",
        *([guessed(found.speculation)] if found.speculation else []),
        f"ended by {found.finish_reason}",
    ]
    return f"[{', '.join(parts)}]"


def computing(settings: Mapping[str, str]) -> list[str]:
    """What a provider says of how it computes, in words: ["INFERENCE_PRECISION_HINT bf16", ...]"""
    return [f"{name} {value}" for name, value in settings.items()]


def seen(found: "Generation") -> str:
    """How many of the prompt's tokens are no text."""
    counts = [f"{count} of {kind}" for kind, count in found.media_tokens.items()]
    return f" ({', '.join(counts)})" if counts else ""


def print_remarks(found: "Generation") -> None:
    """What a user should know of the answer, on standard error."""
    for remark in found.remarks:
        print(f"cabochon: {remark}", file=sys.stderr)


def guessed(did: "Figures") -> str:
    """What speculation did, in words."""
    return (
        f"{did.accepted} of {did.proposed} proposed by {did.proposer} accepted "
        f"({did.tokens_per_target_call:.2f} tokens a step)"
    )
