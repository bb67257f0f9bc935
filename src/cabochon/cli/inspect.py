"""cabochon inspect: what a package is made of, and where it runs."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from cabochon.cli.options import AsJson, Package
from cabochon.cli.output import plain, print_json, print_table, size

if TYPE_CHECKING:
    from cabochon.validation.inspection import Component, Fit, Inspection
    from cabochon.validation.kernels import Group, Judged

__all__ = ["inspect"]

_MOST = 8  # operators that are named


def inspect(
    package: Package,
    provider: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="This one alone: cpu, cuda, webgpu, wasm, openvino. Exit code 1 where it cannot run there.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what PACKAGE is made of, which targets it satisfies, and what it would need for the others.

    Which node has a kernel where is looked up in tables, nothing is run: see docs/kernels.md.
    """
    from cabochon.validation import inspect

    chosen = _provider(provider) if provider else None
    found = inspect(package)
    if as_json:
        print_json(as_object(found, chosen))
    else:
        print_inspection(found, chosen)
    raise typer.Exit(1 if chosen and not found.runs(chosen) else 0)


def _provider(given: str) -> str:
    """The provider that is meant, by the name that ONNX Runtime has for it or the short one."""
    from cabochon.kernels import PROVIDERS

    known = {name.removesuffix("ExecutionProvider").lower(): name for name in PROVIDERS}
    wanted = given.lower().removesuffix("executionprovider")
    if wanted not in known:
        raise typer.BadParameter(f"no provider {given!r}; there are {', '.join(known)}")
    return known[wanted]


def as_object(found: "Inspection", chosen: str | None) -> dict[str, object]:
    """For programs."""
    said = plain(found)
    said["satisfies"] = list(found.satisfies)
    for fit, one in zip(said["targets"], found.targets, strict=True):
        fit["satisfied"] = one.satisfied
    for judged, one in zip(said["providers"], found.providers, strict=True):
        judged["runs"] = one.runs
    if chosen:
        said["providers"] = [one for one in said["providers"] if one["provider"] == chosen]
        said["targets"] = [one for one in said["targets"] if one["provider"] == chosen]
        said["runs"] = found.runs(chosen)
    return said


def print_inspection(found: "Inspection", chosen: str | None) -> None:
    """For people."""
    built = " in ".join(part for part in (found.target, found.precision) if part) or "not said"
    print(f"{found.package}: built for {built}\n")
    for component in found.components:
        print("\n".join(_lines(component)))
    judged = [one for one in found.providers if chosen in (None, one.provider)]
    if judged:
        print()
        print_providers(judged)
    for one in judged if chosen else ():
        print("\n".join(_findings(one)))
    print()
    print("\n".join(_sentences(found, [fit for fit in found.targets if chosen in (None, fit.provider)])))


def _lines(component: "Component") -> Iterator[str]:
    opsets = ", ".join(f"{domain} {version}" for domain, version in component.opsets.items())
    yield f"{component.path}: {component.form}, {component.nodes} nodes; {opsets}"
    yield f"  operators  {_counts(component.operators)}"
    yield f"  types      {_counts(component.types)}"
    weights = (f"{one.type}: {one.tensors}, {size(one.bytes)}" for one in component.weights)
    yield f"  weights    {'; '.join(weights) or 'none'}"


def _counts(counted: Mapping[str, int]) -> str:
    pairs = list(counted.items())
    more = f" and {len(pairs) - _MOST} more" if len(pairs) > _MOST else ""
    return ", ".join(f"{name} {count}" for name, count in pairs[:_MOST]) + more


def print_providers(judged: "list[Judged]") -> None:
    """A line for each provider."""
    columns = ("nodes on", "kernel>", "small>", "falls back>", "no kernel>", "unknown>", "wrong>", "slow>")
    rows = [
        (
            f"{one.provider.removesuffix('ExecutionProvider')} {one.version}",
            *(str(count) for count in (one.kernel, one.small)),
            *(str(_total(each)) for each in (one.falls_back, one.missing, one.unknown)),
            *(str(_total(each)) for each in ((*one.wrong, *one.refused), one.slow)),
        )
        for one in judged
    ]
    print_table(columns, rows)
    print("small: of shapes, masks and positions, which the CPU computes beside the provider")


def _total(groups: "tuple[Group, ...]") -> int:
    return sum(group.nodes for group in groups)


def _findings(one: "Judged") -> Iterator[str]:
    for what in ("missing", "wrong", "refused", "falls_back", "unknown", "slow"):
        groups: tuple[Group, ...] = getattr(one, what)
        for group in groups:
            kinds = f" over {', '.join(group.types)}" if group.types else ""
            yield f"  {what.replace('_', ' ')}: {group.operator}{kinds}, {group.nodes} nodes, {group.at}: {group.why}"


def _sentences(found: "Inspection", fits: "list[Fit]") -> Iterator[str]:
    from cabochon.dialects import CONVERSIONS

    satisfied = [fit.target for fit in fits if fit.satisfied]
    own = [name for name in satisfied if name not in CONVERSIONS or found.target in CONVERSIONS]
    if own:
        yield f"this package satisfies {', '.join(own)}"
    if converted := [name for name in satisfied if name not in own]:
        yield f"it can be converted (`cabochon convert`) for {', '.join(converted)}"
    for fit in fits:
        for condition in fit.conditions if not fit.needs else ():
            yield f"on {fit.target}: {condition}"
    for fit in fits:
        if fit.needs:
            yield f"for {fit.target} it would need:"
            yield from (f"  {need}" for need in (*fit.needs, *fit.beside))
        elif fit.beside:
            yield f"for {fit.target} it would need kernels of these, which the CPU computes beside it:"
            yield from (f"  {need}" for need in fit.beside)
