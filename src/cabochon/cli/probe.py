"""cabochon probe: what other runtimes do with a package."""

from typing import TYPE_CHECKING, Annotated

import typer

from cabochon.cli.options import AsJson, Package
from cabochon.cli.output import print_json, print_table
from cabochon.errors import RequestError

if TYPE_CHECKING:
    from cabochon.clients import Probes

__all__ = ["probe"]


def probe(
    package: Package,
    new_tokens: Annotated[
        int, typer.Option("--max-new-tokens", min=1, help="Tokens to compare, greedily.")
    ] = 40,
    record: Annotated[
        bool, typer.Option("--record", help="Keep it in the package: evidence/runtime_limitations.json.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    r"""Try PACKAGE in the other runtimes that are installed, each in a process of its own.

    onnxruntime-genai and onnx-genai come with `pip install 'cabochon\[clients]'`. Their tokens are compared with those
    of cabochon's own runtime; a refusal, a crash or a hang is a result like any other, and no error.
    """
    from cabochon.clients import probe
    from cabochon.clients import record as keep

    probes = probe(package, new_tokens=new_tokens)
    if all(client.version is None for client in probes.clients):
        raise RequestError(
            "neither onnxruntime-genai nor onnx-genai is installed; expected one of them",
            remedy="pip install 'cabochon[clients]'",
        )
    if record:
        keep(probes)
    if as_json:
        print_json(probes.as_json())
    else:
        print_probes(probes)


def print_probes(probes: "Probes") -> None:
    """What was tried, for people."""
    for client in probes.clients:
        print(f"{client.name} {client.version or 'is not installed: nothing was tried'}")
        if client.probes:
            rows = [(p.outcome, p.tried, p.happened, f"{p.seconds:.1f} s") for p in client.probes]
            print_table(("outcome", "tried", "what happened", "took>"), rows)
