"""cabochon chat: a conversation with a package."""

import sys
from typing import TYPE_CHECKING, Any

import typer

from cabochon.cli.options import (
    AsJson,
    Greedy,
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
    System,
    Temperature,
    Threads,
    TopK,
    TopP,
    read_provider_options,
    read_request,
)
from cabochon.cli.output import print_error, print_json
from cabochon.cli.run import guessed, print_remarks, say, user_turn
from cabochon.errors import RequestError

if TYPE_CHECKING:
    from cabochon.runtime import Model

__all__ = ["chat"]

SHOWN = {"/image": "image", "/audio": "audio", "/video": "video"}


def chat(
    context: typer.Context,
    package: Package,
    system: System = None,
    max_new_tokens: MaxNewTokens = None,
    greedy: Greedy = False,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    min_p: MinP = None,
    repetition_penalty: RepetitionPenalty = None,
    seed: Seed = None,
    speculation: Speculation = None,
    num_draft_tokens: NumDraftTokens = None,
    proposer: Proposer = None,
    threads: Threads = None,
    provider: Provider = None,
    provider_option: ProviderOptions = None,
    as_json: AsJson = False,
) -> None:
    """Talk to a package. Each line of standard input is one turn; the end of it (Ctrl-D) ends the conversation.

    /image FILE, /audio FILE and /video FILE, each on a line of its own, show and play something with the next turn.
    A turn that cannot be answered is left out of the conversation; then the exit code is 1 in the end. With --json
    every answer is one line of JSON.
    """
    options = read_request(context)
    provider_options = read_provider_options(provider_option)
    from cabochon.runtime import load

    model = load(
        package, threads=threads, provider=provider, provider_options=provider_options, proposer=proposer
    )
    said = [{"role": "system", "content": system}] if system is not None else []
    if not converse(model, said, options, as_json):
        raise typer.Exit(1)


def converse(model: "Model", said: list[dict[str, Any]], options: dict[str, Any], as_json: bool) -> bool:
    """Turn by turn, until there is nothing more to read; False where a turn failed."""
    answered, media = True, list[dict[str, str]]()
    while line := read_line():
        if not line.strip():
            continue
        try:
            if part := shown(line):
                media.append(part)
                continue
            turn, media = user_turn(media, line.strip()), []
            text = answer(model, [*said, turn], options, as_json)
        except RequestError as error:
            print_error(error, indent=None)
            answered = False
            continue
        said += [turn, {"role": "assistant", "content": text}]
    return answered


def shown(line: str) -> dict[str, str] | None:
    """ "/image a.png" -> {"type": "image", "image": "a.png"}; None for what is no such line."""
    command, _, path = line.strip().partition(" ")
    if command not in SHOWN:
        return None
    if not path:
        raise RequestError("names no file", at=command, remedy=f"write {command} FILE")
    return {"type": SHOWN[command], SHOWN[command]: path.strip()}


def answer(model: "Model", said: list[dict[str, Any]], options: dict[str, Any], as_json: bool) -> str:
    """Say the next turn of the model; its text. What was guessed ahead goes to standard error."""
    found = model.generate(said, **options) if as_json else say(model, said, options)
    if as_json:
        print_json(found, indent=None)
    elif found.speculation:
        print(f"[{guessed(found.speculation)}]", file=sys.stderr)
    print_remarks(found)
    return found.text


def read_line() -> str:
    """The next line with its end, "" when there is none; asked for where a person types."""
    if sys.stdin.isatty():
        print("> ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline()
