"""cabochon chat: a conversation with a package."""

import json
import sys
from typing import TYPE_CHECKING, Any

from cabochon.cli.options import (
    AsJson,
    Greedy,
    MaxNewTokens,
    MinP,
    Package,
    Provider,
    ProviderOptions,
    RepetitionPenalty,
    Seed,
    System,
    Temperature,
    Threads,
    TopK,
    TopP,
    read_provider_options,
)
from cabochon.cli.output import plain
from cabochon.cli.run import say

if TYPE_CHECKING:
    from cabochon.runtime import Model

__all__ = ["chat"]


def chat(
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
    threads: Threads = None,
    provider: Provider = None,
    provider_option: ProviderOptions = None,
    as_json: AsJson = False,
) -> None:
    """Talk to a package. Each line of standard input is one turn; the end of it (Ctrl-D) ends the conversation.

    With --json every answer is one line of JSON.
    """
    provider_options = read_provider_options(provider_option)
    from cabochon.runtime import load

    model = load(package, threads=threads, provider=provider, provider_options=provider_options)
    options: dict[str, Any] = dict(
        max_new_tokens=max_new_tokens,
        greedy=greedy or None,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        seed=seed,
    )
    converse(model, [{"role": "system", "content": system}] if system is not None else [], options, as_json)


def converse(model: "Model", said: list[dict[str, str]], options: dict[str, Any], as_json: bool) -> None:
    """Turn by turn, until there is nothing more to read."""
    while line := read_line():
        if not line.strip():
            continue
        said.append({"role": "user", "content": line.strip()})
        if as_json:
            answer = model.generate(said, **options)
            print(json.dumps(plain(answer), ensure_ascii=False), flush=True)
        else:
            answer = say(model, said, options)
        said.append({"role": "assistant", "content": answer.text})


def read_line() -> str:
    """The next line with its end, "" when there is none; asked for where a person types."""
    if sys.stdin.isatty():
        print("> ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline()
