"""One variant: built from the checkpoint, or of another variant."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from cabochon import files
from cabochon.errors import CabochonError, PackageError
from cabochon.matrix.donors import Donors
from cabochon.matrix.index import write_index
from cabochon.matrix.outcome import Outcome
from cabochon.matrix.plan import Matrix, Unit
from cabochon.matrix.present import bytes_of
from cabochon.matrix.standing import Inputs, standing
from cabochon.matrix.variants import EPCONTEXT, VARIANTS
from cabochon.matrix.watch import Event, Share, Watch
from cabochon.package import Built, build
from cabochon.package.writer import Digest

__all__ = ["Making", "Recipe"]


@dataclass(frozen=True)
class Recipe:
    """What all builds of a run have in common. `command`: the source, and the options of `cabochon build` that say so:
    each package records how it is built by itself."""

    source: Path
    assistant: Path | None
    license: str | None
    allow_missing: Collection[str]
    command: tuple[str, ...]


@dataclass
class Making:
    """A run, as far as it is. `plan`: variants by their folders; `ready`: the folders in which the right package
    stands."""

    out: Path
    matrix: Matrix
    recipe: Recipe
    inputs: Inputs
    plan: Callable[[Sequence[str]], Sequence[Unit]]
    watch: Watch
    donors: Donors = field(default_factory=Donors)
    ready: set[str] = field(default_factory=set[str])
    around: dict[str, Unit] = field(default_factory=dict[str, Unit])
    done: int = 0
    total: int = 0

    def tell(self, event: str, folder: str = "", **said: object) -> None:
        """Say what happens."""
        self.watch(Event(event, folder, self.done, self.total, said))

    def know(self, unit: Unit, *, checked: bool) -> None:
        """A unit stands there as it should; `checked`: it was hashed in this run."""
        self.ready.add(unit.folder)
        self.donors.add(self.out, unit, checked=checked)

    def keep(self, unit: Unit) -> Outcome:
        """It is left as it stands there."""
        return Outcome(unit.folder, "kept", nbytes=bytes_of(unit.variant, self.out))

    def make(self, unit: Unit, cost: int, *, replacing: bool) -> Outcome:
        """Build it, unless another run has meanwhile; `cost` bytes of the whole are counted for it."""
        self.look_around()
        if unit.folder in self.ready:
            return self.keep(unit)
        self.tell("started", unit.folder, bytes=cost)
        given = {} if unit.variant.converted else self.donors.given(unit)
        share = Share(unit.folder, cost, self.done, self.total, self.watch)
        try:
            if replacing:
                files.retire(self.out / unit.folder)
            built = self._convert(unit, share) if unit.variant.converted else self._build(unit, given, share)
        except CabochonError as error:
            return Outcome(unit.folder, "failed", str(error), nbytes=unit.nbytes)
        self.know(unit, checked=True)
        write_index(self.out)
        return _outcome(self.out, unit, given, built)

    def look_around(self) -> None:
        """What other runs have built, before or meanwhile, can be linked from, too."""
        there = [folder for folder in VARIANTS if (self.out / folder).is_dir() and folder not in self.ready]
        if new := [folder for folder in there if folder not in self.around]:
            self.around |= {unit.folder: unit for unit in self.plan(new)}
        for unit in (self.around[folder] for folder in there):
            if not unit.refused and standing(self.out, unit, self.inputs).state == "whole":
                self.know(unit, checked=False)

    def _build(self, unit: Unit, given: Mapping[str, tuple[Path, Digest]], share: Share) -> Built:
        variant, recipe = unit.variant, self.recipe
        source, *options = recipe.command
        how = ["--target", variant.target, "--precision", variant.precision]
        return build(
            recipe.source,
            self.out / unit.folder,
            model=self.matrix.model,
            assistant=recipe.assistant,
            target=variant.target,
            precision=variant.precision,
            license=recipe.license,
            allow_missing=recipe.allow_missing,
            given=given,
            command=["cabochon", "build", source, unit.folder, *options, *how],
            progress=share,
        )

    def _convert(self, unit: Unit, share: Share) -> Built:
        variant, needs = unit.variant, unit.variant.needs or ""
        if find_spec("openvino") is None:
            raise PackageError("not built: OpenVINO is absent", remedy="pip install 'cabochon[openvino]'")
        if needs not in self.ready:
            raise PackageError(f"not built: it is made of {needs}, which does not stand there")
        from cabochon.openvino import convert

        to: Literal["openvino-ir", "openvino-epcontext"]
        to = "openvino-epcontext" if variant.target == EPCONTEXT else "openvino-ir"
        said = ["cabochon", "convert", needs, unit.folder, "--to", to]
        said += ["--stateful"] if variant.stateful else []
        source, package = self.out / needs, self.out / unit.folder
        return convert(source, package, to=to, stateful=variant.stateful, command=said, progress=share)


def _outcome(out: Path, unit: Unit, given: Mapping[str, tuple[Path, Digest]], built: Built) -> Outcome:
    return Outcome(
        unit.folder,
        "built",
        nbytes=bytes_of(unit.variant, out),
        linked=tuple(sorted({path.relative_to(out).as_posix() for path, _ in given.values()})),
        linked_bytes=sum(file.nbytes for file in unit.files if file.path in given),
        read_bytes=sum(file.read for file in unit.files if file.path not in given),
        seconds=round(built.seconds, 3),
        remarks=built.remarks,
    )
