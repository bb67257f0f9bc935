"""cabochon bench: how fast a package is on this machine."""

from typing import TYPE_CHECKING, Annotated

import typer

from cabochon.cli.options import (
    AsJson,
    Package,
    Proposer,
    Provider,
    ProviderOptions,
    Threads,
    read_provider_options,
)
from cabochon.cli.output import print_json, size
from cabochon.cli.run import computing

if TYPE_CHECKING:
    from cabochon.runtime.timing import Timing

__all__ = ["bench"]


def bench(
    package: Package,
    prompt: Annotated[
        str, typer.Option(help="Raw text to go on from: what is drafted well depends on it.")
    ] = "Once upon a time",
    prefill_tokens: Annotated[int, typer.Option(min=1, help="Random tokens of the prefill.")] = 256,
    max_new_tokens: Annotated[int, typer.Option(min=2, help="Tokens to decode, greedily.")] = 64,
    rounds: Annotated[
        int, typer.Option(min=1, help="Times each is measured, by turns; the best counts.")
    ] = 3,
    proposer: Proposer = None,
    threads: Threads = None,
    provider: Provider = None,
    provider_option: ProviderOptions = None,
    as_json: AsJson = False,
) -> None:
    """Measure prefill, decoding and memory of PACKAGE; of a pair also what speculation gains, and its acceptance.

    Times are those of this machine as busy as it is: compare what was measured in one run.
    """
    from cabochon.runtime import load
    from cabochon.runtime.timing import time_model

    options = read_provider_options(provider_option)
    model = load(package, threads=threads, provider=provider, provider_options=options, proposer=proposer)
    found = time_model(model, prompt, prefill_tokens=prefill_tokens, new_tokens=max_new_tokens, rounds=rounds)
    print_json(found) if as_json else print_timing(found)


def print_timing(found: "Timing") -> None:
    """For people."""
    print(f"{', '.join([found.provider, *computing(found.settings)])}; best of {found.rounds}")
    print(f"prefill of {found.prefill_tokens} tokens: {found.prefill:.1f} tokens/s")
    print(f"decoding {found.new_tokens} tokens after {found.prompt_tokens}: {found.decoding:.1f} tokens/s")
    if found.speculation is not None and found.speculating is not None:
        figures = found.speculation
        kept = ", ".join(f"{n}: {rounds}" for n, rounds in enumerate(figures.accepted_per_round))
        print(
            f"speculating ({figures.proposer}): {found.speculating:.1f} tokens/s, {found.speed_up or 0:.2f} x; "
            f"{'the same' if found.same else 'OTHER'} tokens"
        )
        print(
            f"{figures.accepted} of {figures.proposed} drafts accepted, {figures.tokens_per_target_call:.2f} tokens a "
            f"target call; rounds by drafts kept: {kept}"
        )
    if found.anonymous is not None:
        print(f"anonymous memory: {size(found.anonymous)}")
