"""Arguments and options that several commands share, each with one name and one meaning."""

from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = [
    "AllowMissing",
    "AsJson",
    "AssistantRevision",
    "Audio",
    "Greedy",
    "IgnoreEos",
    "Images",
    "License",
    "MaxNewTokens",
    "MinP",
    "NumDraftTokens",
    "Package",
    "Proposer",
    "Provider",
    "ProviderOptions",
    "RepetitionPenalty",
    "Revision",
    "Seed",
    "Source",
    "Speculation",
    "Stop",
    "System",
    "Temperature",
    "Threads",
    "TopK",
    "TopP",
    "Videos",
    "read_media",
    "read_provider_options",
    "read_request",
]

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of words.")]
Package = Annotated[
    Path, typer.Argument(metavar="PACKAGE", help="A package that cabochon built.", show_default=False)
]
Source = Annotated[
    str,
    typer.Argument(
        help="A checkpoint: a folder, or a hub id such as google/gemma-4-E2B-it.", show_default=False
    ),
]
Revision = Annotated[str | None, typer.Option(help="Branch, tag or commit of a hub id.", show_default=False)]
AssistantRevision = Annotated[
    str | None, typer.Option(help="Branch, tag or commit of the assistant's hub id.", show_default=False)
]
License = Annotated[
    str | None,
    typer.Option(help="Licence of the checkpoint, if it does not say itself.", show_default=False),
]
AllowMissing = Annotated[
    list[str] | None,
    typer.Option(
        help="Do without: tokenizer, generation_config, chat_template; repeatable.", show_default=False
    ),
]

Threads = Annotated[
    int | None,
    typer.Option(min=1, max=1024, help="Threads to compute with; one a core by default.", show_default=False),
]
Provider = Annotated[
    str | None,
    typer.Option(
        help="Execution provider: cpu, cuda, webgpu ...; by default the target's own.", show_default=False
    ),
]
ProviderOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--provider-option",
        metavar="KEY=VALUE",
        help="For onnxruntime or OpenVINO; repeatable.",
        show_default=False,
    ),
]

System = Annotated[
    str | None, typer.Option(help="What the system says before the conversation.", show_default=False)
]
MaxNewTokens = Annotated[
    int | None,
    typer.Option(min=1, help="Stop after this many; the package's own limit or 256.", show_default=False),
]
Greedy = Annotated[bool, typer.Option("--greedy", help="Always take the likeliest token.")]
Temperature = Annotated[
    float | None, typer.Option(help="Below 1 sharper, above 1 flatter.", show_default=False)
]
TopK = Annotated[int | None, typer.Option(help="Draw among the K likeliest.", show_default=False)]
TopP = Annotated[
    float | None, typer.Option(help="Draw among the likeliest that make up this share.", show_default=False)
]
MinP = Annotated[
    float | None,
    typer.Option(help="Leave out what is less likely than this share of the likeliest.", show_default=False),
]
RepetitionPenalty = Annotated[
    float | None, typer.Option(help="Above 1, makes what was said less likely.", show_default=False)
]
Seed = Annotated[int | None, typer.Option(help="Draw the same again.", show_default=False)]
Stop = Annotated[
    list[str] | None, typer.Option(help="End where this text comes; repeatable.", show_default=False)
]
Speculation = Annotated[
    bool | None,
    typer.Option(
        "--speculation/--no-speculation",
        help="Let the drafter of a pair, or --proposer, guess ahead; on where one is there. The answer is the same.",
        show_default=False,
    ),
]
NumDraftTokens = Annotated[
    str | None,
    typer.Option(
        metavar="N",
        help="How many tokens are guessed ahead: a number, or auto for as many as pay.",
        show_default="auto",
    ),
]
Proposer = Annotated[
    str | None,
    typer.Option(
        help="Who guesses ahead: prompt-lookup needs no drafter; by default the drafter of a pair.",
        show_default=False,
    ),
]
Images = Annotated[
    list[str] | None,
    typer.Option("--image", metavar="FILE", help="A picture; repeatable.", show_default=False),
]
Audio = Annotated[
    list[str] | None,
    typer.Option("--audio", metavar="FILE", help="A clip of sound; repeatable.", show_default=False),
]
Videos = Annotated[
    list[str] | None,
    typer.Option("--video", metavar="FILE", help="A video; repeatable.", show_default=False),
]
IgnoreEos = Annotated[bool, typer.Option("--ignore-eos", help="Go on past the end of the answer.")]


_REQUEST = (
    "max_new_tokens",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "seed",
    "speculation",
)


def read_request(context: typer.Context) -> dict[str, Any]:
    """What a command was given of the options that `run` and `chat` share, as `Model.generate` takes them.

    A number of draft tokens that is neither a number nor auto is the runtime's to refuse; any is a usage error where
    nothing is guessed ahead.
    """
    given = context.params
    drafts = given["num_draft_tokens"]
    if drafts is not None and given["speculation"] is False:
        raise typer.BadParameter("--no-speculation guesses nothing ahead: no --num-draft-tokens")
    return {
        **{name: given[name] for name in _REQUEST},
        "greedy": given["greedy"] or None,
        "num_draft_tokens": int(drafts) if drafts and drafts.isdecimal() else drafts,
    }


def read_media(
    images: list[str] | None, audio: list[str] | None, videos: list[str] | None
) -> list[dict[str, str]]:
    """Parts of a message: images first, then sound, then videos, each in the order given."""
    given = {"image": images, "audio": audio, "video": videos}
    return [{"type": kind, kind: path} for kind, paths in given.items() for path in paths or ()]


def read_provider_options(pairs: list[str] | None) -> dict[str, str] | None:
    """["device_id=1"] -> {"device_id": "1"}; a usage error where there is no '='."""
    wrong = [pair for pair in pairs or () if "=" not in pair]
    if wrong:
        raise typer.BadParameter(f"{wrong[0]!r} is not KEY=VALUE", param_hint="--provider-option")
    return dict(pair.split("=", 1) for pair in pairs) if pairs else None
