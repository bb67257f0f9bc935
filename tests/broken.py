"""Good packages broken on purpose: each break is a row of a table, with the codes of the findings it must give.

    BREAKS = (
        Break("layer 4 listed as sliding", edit_document(lambda d: ...), {"STA005"}),
    )

    @pytest.mark.parametrize("broken", BREAKS, ids=str)
    def test_a_broken_package_is_found_out(broken, packages, tmp_path):
        check(broken, packages, tmp_path)

`check` copies the package, breaks it, validates it and compares the exact set of codes. Edits leave SHA256SUMS as
true as it was, so that a break is not found out by its checksum: `sums=False` leaves them alone.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx

from cabochon import sums
from cabochon.files import sha256
from cabochon.validation import Verdict, validate
from packages import Packages

CANONICAL = "inference_metadata.yaml"
LOOP = "inference_metadata.loop.yaml"
ANNOTATED = "inference_metadata.annotated.yaml"
NOTES = frozenset[str]()  # what a good package may be told all the same

How = Callable[[Path], object]


@dataclass(frozen=True)
class Break:
    """`how` changes a copy of a package built from (source, target, precision); `codes` are then found, no others.

    `options` are those of `validate`; weights are read unless they say `quick`.
    """

    name: str
    how: How
    codes: frozenset[str] | set[str]
    package: tuple[str, str, str] = ("tiny", "default", "f32")
    sums: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name


def check(broken: Break, packages: Packages, tmp_path: Path) -> Verdict:
    """Break a copy, validate it, compare the codes; what was found, for a test that looks closer."""
    copy = copied(packages(*broken.package), tmp_path / "package")
    broken.how(copy)
    if broken.sums:
        resum(copy)
    verdict = validate(copy, **broken.options)
    assert codes(verdict) == broken.codes, "\n".join(map(str, verdict.findings))
    for finding in verdict.findings:
        assert finding.at and finding.found and finding.expected and finding.remedy, finding
        assert "the rule itself fails" not in finding.found, finding
    return verdict


def codes(verdict: Verdict) -> set[str]:
    """The codes of what was found."""
    return {finding.code for finding in verdict.findings} - NOTES


def copied(package: Path, to: Path) -> Path:
    """A copy of a package that may be written to."""
    shutil.copytree(package, to)
    return to


def resum(package: Path) -> None:
    """Write SHA256SUMS anew where there is one, and what provenance.json and indexes say of files that were changed."""
    if not (package / sums.SUMS).exists():
        return
    before = sums.read(package)
    for record in (package / "provenance.json", *package.rglob("*.data.index.json")):
        if record.exists():
            _weigh_again(package, record, before)
    sums.write(package, {})


def _weigh_again(package: Path, record: Path, before: Mapping[str, str]) -> None:
    try:
        stated = json.loads(record.read_bytes())
    except ValueError:
        return
    files = stated.get("files", {})
    for name, said in files.items() if isinstance(files, dict) else ():
        file = record.parent / name
        known = before.get(file.relative_to(package).as_posix()) if file.is_file() else None
        if known is not None and said.get("sha256") == known != sha256(file):
            said |= {"bytes": file.stat().st_size, "sha256": sha256(file)}
            record.write_text(json.dumps(stated, indent=2, ensure_ascii=False) + "\n")


def all_of(*hows: How) -> How:
    """One change after the other."""

    def change(package: Path) -> None:
        for how in hows:
            how(package)

    return change


def edit_document(change: Callable[[dict[str, Any]], object], name: str = CANONICAL) -> How:
    """Change a document as plain data; the annotated copy of the canonical one is changed alike."""

    def how(package: Path) -> None:
        for file in (name, ANNOTATED) if name == CANONICAL else (name,):
            if (package / file).exists():
                write_document(package / file, change)

    return how


def write_document(file: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Read, change, write, as the package's own writer does; comments are lost."""
    from cabochon.metadata import yaml

    data = thawed(yaml.read(file.read_bytes(), file.name))
    change(data)
    file.write_bytes(yaml.write(data))


def thawed(value: Any) -> Any:
    """The same data in dicts and lists that may be changed."""
    if isinstance(value, Mapping):
        return {key: thawed(inner) for key, inner in value.items()}
    return [thawed(inner) for inner in value] if isinstance(value, list | tuple) else value


def edit_graph(change: Callable[[onnx.ModelProto], object], name: str = "model.onnx") -> How:
    """Change a graph; its external data stays where it is."""

    def how(package: Path) -> None:
        proto = onnx.load(package / name, load_external_data=False)
        change(proto)
        (package / name).write_bytes(proto.SerializeToString(deterministic=True))

    return how


def edit_json(name: str, change: Callable[[dict[str, Any]], object]) -> How:
    """Change a JSON file."""

    def how(package: Path) -> None:
        data = json.loads((package / name).read_bytes())
        change(data)
        (package / name).write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n")

    return how


def edit_bytes(name: str, change: Callable[[bytes], bytes]) -> How:
    """Change a file's bytes."""
    return lambda package: (package / name).write_bytes(change((package / name).read_bytes()))


def write(name: str, content: bytes | str) -> How:
    """Make `content` a file of the package."""

    def how(package: Path) -> None:
        file = package / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)

    return how


def remove(*names: str) -> How:
    """Remove files."""

    def how(package: Path) -> None:
        for name in names:
            (package / name).unlink()

    return how


def link(name: str, to: str) -> How:
    """A symbolic link in the package."""
    return lambda package: (package / name).symlink_to(to)


def refer(tensor: str, **entries: Any) -> How:
    """Rewrite an external reference of model.onnx; None removes an entry."""

    def change(proto: onnx.ModelProto) -> None:
        found = next(t for t in proto.graph.initializer if t.name == tensor)
        now = {entry.key: entry.value for entry in found.external_data} | entries
        del found.external_data[:]
        for key, value in now.items():
            if value is not None:
                found.external_data.add(key=key, value=str(value))

    return edit_graph(change)


def place(package: Path, tensor: str) -> tuple[Path, int, int]:
    """The file of a weight, its offset and its length in bytes."""
    proto = onnx.load(package / "model.onnx", load_external_data=False)
    found = next(t for t in proto.graph.initializer if t.name == tensor)
    said = {entry.key: entry.value for entry in found.external_data}
    return package / said["location"], int(said["offset"]), int(said["length"])


def edit_weight(tensor: str, change: Callable[[bytearray], object]) -> How:
    """Change the bytes of a weight where they lie."""

    def how(package: Path) -> None:
        file, offset, length = place(package, tensor)
        with file.open("r+b") as opened:
            opened.seek(offset)
            data = bytearray(opened.read(length))
            change(data)
            opened.seek(offset)
            opened.write(data)

    return how


def workflow(document: dict[str, Any]) -> dict[str, Any]:
    """The workflow of a document as plain data."""
    return document["pipeline"]["workflow"]


def groups(document: dict[str, Any]) -> dict[str, Any]:
    """The groups of the state service."""
    return workflow(document)["serving"]["state_service"]["groups"]


def steps(document: dict[str, Any], kind: str) -> Iterator[dict[str, Any]]:
    """Every step of a kind, at any depth, in order."""
    yield from _steps(workflow(document)["steps"], kind)


def _steps(value: Any, kind: str) -> Iterator[dict[str, Any]]:
    if isinstance(value, list):
        for inner in value:
            yield from _steps(inner, kind)
    elif isinstance(value, dict):
        if value.get("kind") == kind:
            yield value
        for inner in value.values():
            yield from _steps(inner, kind)
