"""What the table says of a member without running anything: what is built of it, and how large that is, by plan."""

from collections.abc import Iterator
from dataclasses import dataclass

from cabochon.parity.known import read_table
from cabochon.planning.offers import Offer, offers, refusal
from cabochon.planning.opened import open_config
from cabochon.planning.verdicts import verdicts
from cabochon.recipes import PRECISIONS
from family import MEMBERS, Member
from packages import TESTS

GEOMETRIES = TESTS / "data" / "geometries"


@dataclass(frozen=True)
class Derived:
    """A row, of a member or of its assistant, as far as the published config tells it."""

    member: Member
    drafts: bool
    cells: tuple[str, ...]


def rows() -> Iterator[Derived]:
    """Members in their order, each with its assistant behind it."""
    for member in MEMBERS:
        size = member.name.split()[0]
        hub, config = f"google/gemma-4-{size}-it", GEOMETRIES / f"{size.lower()}.json"
        whole = offers(open_config(config))
        (drafter,) = offers(open_config(config.with_stem(f"{config.stem}-assistant")))
        pair = () if refusal(whole[0], drafter) else ("pair",)
        told = cells(member.name, hub, whole, pair)
        yield Derived(member, False, (*told, _answers(whole[0], hub)))
        told = cells(f"{member.name}, assistant", f"{hub}-assistant", (drafter,), pair)
        yield Derived(member, True, (*told, ""))


def cells(name: str, hub: str, some: tuple[Offer, ...], pair: tuple[str, ...]) -> tuple[str, ...]:
    """Name, checkpoint, kinds, parameters and sizes, of the most that can be built."""
    kinds = [offer.kind.name for offer in some if not offer.refused]
    parameters = sum(slot.elements for slot in some[-1].slots)
    sizes = (f"{_bytes(some[-1], precision) / 1e9:.2f} GB" for precision in ("f16", "Q4_K_M"))
    return name, f"`{hub}`", ", ".join((*kinds, *pair)), f"{parameters:,}", *sizes


def _bytes(offer: Offer, precision: str) -> int:
    """Of the package for `default`, which comes first."""
    return next(verdicts(offer, None, [PRECISIONS[precision]])).disk


def _answers(offer: Offer, hub: str) -> str:
    """How many logits of a checkpoint of this geometry are published, and of which where it is another."""
    (known,) = (row for row in read_table()[1] if row.geometry["hidden_size"] == offer.text.hidden)
    return f"{len(known.top_ids)} logits" + ("" if known.id == hub else f" of `{known.id}`")
