"""Files: what is named exists and lies inside, and every file is what was summed."""

from collections.abc import Iterator
from pathlib import PurePosixPath

from cabochon import sums
from cabochon.errors import PackageError
from cabochon.validation.findings import Severity
from cabochon.validation.inside import fault, resolved
from cabochon.validation.mentions import Mention, index_path, mentions
from cabochon.validation.opened import DECODER, DOCUMENTS, NET, Opened
from cabochon.validation.rules import Found, rule

_SHOWN = 200  # characters of a name
# What a reader of packages looks for by its name; nothing needs to name it.
_KNOWN = {
    *DOCUMENTS, DECODER, NET, "config.json", "generation_config.json", "genai_config.json", "tokenizer.json",
    "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "tokenizer.model", "chat_template.jinja",
    "processor_config.json", "preprocessor_config.json", "README.md", "SOURCE_LICENSE.md", "LICENSE", "provenance.json",
    "runtime-requirements.txt", sums.SUMS, ".gitattributes", "component_contract.yaml", "METADATA_STATUS.md",
    "assistant_generation_config.json", "image_processor.json", "audio_feature_extraction.json",
}  # fmt: skip


@rule("FIL001", Severity.ERROR)
def absent(package: Opened) -> Iterator[Found]:
    """A file that is named does not exist.

    Causes: A file was renamed, or left out of a copy or a download, and the graph, the metadata, genai_config.json or
    provenance.json still name it.
    Remedy: Put the file back, or build or download the package again.
    """
    reported = {
        found.at for found in package.faults.get("FIL004", ())
    }  # is there, but is no file: FIL004 says so
    graphs = package.converted or package.graphs or package.faults.get("FIL011")
    if DECODER not in package.files and not graphs:
        yield Found(DECODER, "no graph at all", "the graph of the package")
    for m in _named(package, "absent"):
        if resolved(package, m.folder, m.name) not in reported:
            yield Found(m.at, f"{m.name}, which is not there", "the name of a file of the package")


@rule("FIL002", Severity.ERROR)
def empty(package: Opened) -> Iterator[Found]:
    """A file that is named is empty.

    Causes: A download or a copy that broke off, a disk that was full.
    Remedy: Build or download the package again.
    """
    for m in _named(package, "empty"):
        yield Found(m.at, f"{m.name}, which has 0 bytes", "a file with a content")


@rule("FIL003", Severity.ERROR)
def outside(package: Opened) -> Iterator[Found]:
    """A name leads out of the package.

    Causes: An absolute path of the machine that built the package, a ".." in a path, a backslash, a drive letter; or a
    package made to read files of whoever opens it. Graphs, metadata, genai_config.json, compiled contexts (EPContext)
    and OpenVINO IR are all looked at.
    Remedy: Do not load this package. Name files relative to the file that names them, without "..".
    """
    for m in _named(package, "outside"):
        yield Found(m.at, repr(m.name)[:_SHOWN], "a path below the file that names it, with forward slashes")


@rule("FIL004", Severity.ERROR)
def strange(package: Opened) -> Iterator[Found]:
    """An entry of the package is no file of its own.

    Causes: A symbolic link that leads out of the package (a snapshot folder of a hub's cache is made of such links), a
    broken link, a pipe, a socket, a device, or a name that is no UTF-8.
    Remedy: Copy the package with its links followed (cp -rL), and load the copy.
    """
    yield from package.faults.get("FIL004", ())


@rule("FIL005", Severity.WARNING)
def unreferenced(package: Opened) -> Iterator[Found]:
    """A file is there that nothing names.

    Causes: The rest of an earlier build or of an editor, a file that was added by hand. It is published and downloaded
    with the package, and no reader will look at it.
    Remedy: Delete it, or name it where it belongs.
    """
    named = {resolved(package, m.folder, m.name) for m in mentions(package)}
    indexes = {index_path(path) for path in package.graphs}
    inner = f"{package.inner}/" if package.inner else None  # a package of its own, which is judged by itself
    for name in package.files:
        if inner and name.startswith(inner):
            continue
        evidence = PurePosixPath(name).match("evidence/*.json")
        graph = name.startswith("policies/") and name in package.graphs and DOCUMENTS[1] not in package.raw
        if name not in named | indexes and name not in _KNOWN and not evidence and not graph:
            yield Found(
                name, f"{package.files[name]} bytes that no file names", "no such file, or a name for it"
            )


@rule("FIL014", Severity.WARNING)
def no_sums(package: Opened) -> Iterator[Found]:
    """The package has no checksums.

    Causes: It was not written by cabochon, or the file was left out of a copy.
    Remedy: Build or download the package again.
    """
    if sums.SUMS not in package.files:
        yield Found(sums.SUMS, "no such file", "the SHA-256 of every file")


@rule("FIL015", Severity.ERROR)
def broken_sums(package: Opened) -> Iterator[Found]:
    """The list of checksums cannot be read.

    Causes: A damaged file, or one that was edited by hand.
    Remedy: Build or download the package again.
    """
    try:
        _sums(package)
    except PackageError as error:
        yield Found(
            sums.SUMS, error.message.partition("; expected")[0], "lines of a SHA-256 and a file's name"
        )


@rule("FIL016", Severity.ERROR)
def incomplete_sums(package: Opened) -> Iterator[Found]:
    """The list of checksums is not that of the package's files.

    Causes: A file was added, removed or renamed after the package was written.
    Remedy: Put the package back to what was built; evidence that cabochon writes later adds its own line.
    """
    strange_ones = {found.at for found in package.faults.get("FIL004", ())}  # what they are is said already
    listed, there = _listed(package), (package.files.keys() | strange_ones) - {sums.SUMS}
    if listed:
        for name in sorted(listed.keys() - there):
            yield Found(
                sums.SUMS, f"a line for {name}, which is not there", "lines for the files of the package"
            )
        for name in sorted(there - listed.keys() - strange_ones):
            yield Found(name, f"no line in {sums.SUMS}", "a line with its SHA-256")


@rule("FIL017", Severity.ERROR, needs=("weights",))
def wrong_sum(package: Opened) -> Iterator[Found]:
    """A file is not what was summed.

    Causes: A bit that flipped on a disk or on the way, an edit, a download that mixes two versions.
    Remedy: Build or download the package again.
    """
    for name, digest in sorted(_listed(package).items()):
        if name in package.files and (found := package.scan.digests[name]) != digest:
            yield Found(name, f"SHA-256 {found}", f"{digest}, as {sums.SUMS} says")


@rule("FIL018", Severity.ERROR)
def broken_json(package: Opened) -> Iterator[Found]:
    """A JSON file holds no JSON object.

    Causes: A file that was cut off or edited by hand, a key that is given twice, NaN or Infinity, bytes that are no
    UTF-8.
    Remedy: Correct the file at the place that is named, or build the package again.
    """
    for name in package.files:
        if name.endswith(".json") and name != "tokenizer.json" and (why := package.json_fault(name)):
            yield Found(name, why, "a JSON object")


@rule("FIL019", Severity.ERROR)
def foreign_config(package: Opened) -> Iterator[Found]:
    """config.json is not that of a model that cabochon builds.

    Causes: A config of another model, of a newer kind, or one that contradicts itself.
    Remedy: Take the config.json of the checkpoint that the package was built from.
    """
    yield from package.faults.get("FIL019", ())


def _named(package: Opened, what: str) -> Iterator[Mention]:
    """The mentions of files with one kind of fault."""
    return (m for m in mentions(package) if fault(package, m.folder, m.name, package.files) == what)


def _sums(package: Opened) -> dict[str, str]:
    return sums.read(package.root) if sums.SUMS in package.files else {}


def _listed(package: Opened) -> dict[str, str]:
    """SHA256SUMS, empty where it cannot be read: another rule says so."""
    try:
        return _sums(package)
    except PackageError:
        return {}
