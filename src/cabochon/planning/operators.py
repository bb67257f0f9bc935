"""The operators that not every provider has kernels of: which parts of a model use them, and what a provider lacks."""

from collections.abc import Iterator

from cabochon.dialects import Target
from cabochon.kernels import PROVIDERS
from cabochon.planning.offers import Offer

__all__ = ["OPERATORS", "left_to_another", "unknown"]

# By part, what it uses beyond the operators of a dense decoder. Where the tables say nothing of one, neither does a
# verdict.
OPERATORS = {
    "experts": ("Loop", "NonZero"),
    "vision tower": ("Loop", "NonZero"),
    "audio tower": ("Conv", "NonZero", "Softplus"),
    "vision embedder": ("NonZero",),
    "audio embedder": ("NonZero",),
}


def unknown(offer: Offer, target: Target) -> Iterator[str]:
    """The operators of which it is not known whether the provider has kernels, in a sentence for each part."""
    table = PROVIDERS.get(target.provider)
    if table is None:
        return
    for part, names in _used(offer):
        if some := [name for name in names if ("", name) in table.unknown]:
            what = f"kernels of {', '.join(some)}, for the {part}"
            yield f"it is not known whether {target.provider} has {what}"


def left_to_another(offer: Offer, target: Target) -> Iterator[str]:
    """The operators that the provider leaves to the one beside it, in a sentence for each part."""
    table = PROVIDERS.get(target.provider)
    if table is None or not table.beside:
        return
    known = table.floats.keys() | table.unknown
    for part, names in _used(offer):
        if left := [name for name in names if ("", name) not in known]:
            yield (
                f"{part}: {table.runtime} {table.version} has no kernels of {', '.join(left)} for "
                f"{target.provider}, and runs them on the CPU"
            )


def _used(offer: Offer) -> list[tuple[str, tuple[str, ...]]]:
    parts = {slot.part for slot in offer.slots}
    return [(part, names) for part, names in OPERATORS.items() if part in parts]
