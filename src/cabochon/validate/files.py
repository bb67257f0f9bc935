"""Files: what is named exists, lies inside, has the bytes that shapes ask for, and is what was summed."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import PurePosixPath

import onnx
from onnx import ModelProto, TensorProto

from cabochon import sums
from cabochon.errors import PackageError
from cabochon.validate import openvino
from cabochon.validate.findings import Severity
from cabochon.validate.inside import fault, resolved
from cabochon.validate.mentions import Mention, mentions
from cabochon.validate.opened import DECODER, DOCUMENTS, Opened
from cabochon.validate.ranges import Range, places, ranges
from cabochon.validate.rules import Found, rule

_INLINE_LIMIT = 1 << 16  # bytes; more than any constant of a graph, less than any matrix
_SHOWN = 200  # characters of a message of onnx's own
# What a reader of packages looks for by its name; nothing needs to name it.
_KNOWN = {
    *DOCUMENTS, DECODER, "config.json", "generation_config.json", "genai_config.json", "tokenizer.json",
    "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "tokenizer.model", "chat_template.jinja",
    "processor_config.json", "preprocessor_config.json", "README.md", "SOURCE_LICENSE.md", "LICENSE", "provenance.json",
    "runtime-requirements.txt", sums.SUMS, ".gitattributes",
}  # fmt: skip


def _named(package: Opened, what: str) -> Iterator[Mention]:
    """The mentions of files with one kind of fault."""
    return (m for m in mentions(package) if fault(package, m.folder, m.name, package.files) == what)


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
    if DECODER not in package.files and not package.graphs and not package.faults.get("FIL011"):
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
    for name in package.files:
        evidence = PurePosixPath(name).match("evidence/*.json")
        graph = name.startswith("policies/") and name in package.graphs and DOCUMENTS[1] not in package.raw
        if name not in named and name not in _KNOWN and not evidence and not graph:
            yield Found(
                name, f"{package.files[name]} bytes that no file names", "no such file, or a name for it"
            )


@rule("FIL006", Severity.ERROR)
def no_reference(package: Opened) -> Iterator[Found]:
    """A reference to external data is not one.

    Causes: A graph written by hand or damaged: without a location, or with an offset or a length that is no number.
    Remedy: Build or download the package again.
    """
    for one in ranges(package):
        said = f"location {one.location!r}, offset {one.offset!r}, length {one.length!r}"[:_SHOWN]
        if one.location is None or one.start is None or (one.length is not None and one.said is None):
            yield Found(one.at, said, "a location, and offset and length in bytes")


@rule("FIL007", Severity.ERROR)
def beyond(package: Opened) -> Iterator[Found]:
    """The bytes of a tensor are not all in the file that they are said to be in.

    Causes: A data file that was cut off, or that belongs to another graph; a negative offset.
    Remedy: Build or download the package again.
    """
    for one, size in _in_files(package):
        start, length = one.start, one.nbytes if one.said is None else one.said
        if start is not None and (start < 0 or length < 0 or start + length > size):
            yield Found(
                one.at, f"bytes {start} to {start + length}", f"a range within the {size} of {one.location}"
            )


@rule("FIL008", Severity.ERROR)
def wrong_length(package: Opened) -> Iterator[Found]:
    """The length of external data is not what shape and type take.

    Causes: A shape or a type was changed without its bytes, or the reverse; a length that is left out, so that nobody
    can tell whether the file is whole.
    Remedy: Build or download the package again.
    """
    for one in ranges(package):
        if (
            one.location is not None
            and one.said != one.nbytes
            and (one.length is None or one.said is not None)
        ):
            found = "no length" if one.length is None else f"{one.said} bytes"
            yield Found(one.at, found, f"{one.nbytes}, which {one.dtype} {list(one.shape)} takes")


@rule("FIL009", Severity.ERROR)
def unaligned(package: Opened) -> Iterator[Found]:
    """External data does not begin at a whole element.

    Causes: A writer that puts tensors behind each other without filling up. Some runtimes then compute garbage without
    a word, since they map the bytes as an array of elements.
    Remedy: Write the data again with every offset a multiple of the element's size.
    """
    for one, _ in _in_files(package):
        step = max(one.bits // 8, 1)
        if one.start is not None and one.start % step:
            yield Found(one.at, f"offset {one.start}", f"a multiple of {step}, the size of {one.dtype}")


@rule("FIL010", Severity.WARNING)
def overlapping(package: Opened) -> Iterator[Found]:
    """Two tensors share some of their bytes.

    Causes: Offsets that were computed wrongly. (Two tensors that are the very same bytes are tied, which is fine.)
    Remedy: Build the package again; look at both tensors if you wrote the data yourself.
    """
    found = sorted(
        places(package).items(), key=lambda item: (item[0].location, item[0].offset, item[0].nbytes)
    )
    for (a, names), (b, others) in pairwise(found):
        same = (a.offset, a.nbytes) == (b.offset, b.nbytes)
        if a.location == b.location and b.offset < a.offset + a.nbytes and b.nbytes and not same:
            where = f"byte {b.offset} of {b.location}, where {names[0]} ends at {a.offset + a.nbytes}"
            yield Found(others[0], where, "bytes of its own")


@rule("FIL011", Severity.ERROR)
def unreadable_graph(package: Opened) -> Iterator[Found]:
    """A graph cannot be read.

    Causes: A file that was cut off or damaged, that is a pointer of Git LFS, or that is no ONNX at all; ports without a
    name, a type or a rank.
    Remedy: Build or download the package again (with Git: git lfs pull).
    """
    yield from package.faults.get("FIL011", ())


@rule("FIL012", Severity.ERROR)
def refused_graph(package: Opened) -> Iterator[Found]:
    """ONNX's own checker refuses a graph.

    Causes: An operator or attribute that the stated opset does not have, nodes out of order, a value made twice.
    Remedy: Build the package again; if it was built by cabochon, report it.
    """
    for graph in package.graphs.values():
        try:
            onnx.checker.check_model(_without_weights(graph.proto))
        except Exception as error:  # ValidationError, and for broken protos whatever its C++ throws
            said = (str(error).strip().splitlines() or [type(error).__name__])[0]
            yield Found(
                graph.path, f"onnx.checker {onnx.__version__}: {said}"[:_SHOWN], "a graph that it passes"
            )


@rule("FIL013", Severity.ERROR)
def inline_weight(package: Opened) -> Iterator[Found]:
    """A weight is inside the graph's file instead of beside it.

    Causes: A graph that was saved again by a tool that loads external data and writes everything into one file. Such a
    file is read whole to look at its ports, and ends at 2 GiB.
    Remedy: Save it with external data (onnx.save(..., save_as_external_data=True)), or build again.
    """
    for graph in package.graphs.values():
        for name, weight in graph.tensors.items():
            if weight.external is None and weight.nbytes > _INLINE_LIMIT:
                expected = f"at most {_INLINE_LIMIT}, or a reference to a data file"
                yield Found(f"{graph.path}: {name}", f"{weight.nbytes} bytes", expected)


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
    listed, there = _listed(package), package.files.keys() - {sums.SUMS}
    if listed:
        for name in sorted(listed.keys() - there):
            yield Found(
                sums.SUMS, f"a line for {name}, which is not there", "lines for the files of the package"
            )
        for name in sorted(there - listed.keys()):
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
    """config.json is not that of a text model that cabochon builds.

    Causes: A config of another model, of a newer kind, or one that contradicts itself.
    Remedy: Take the config.json of the checkpoint that the package was built from.
    """
    yield from package.faults.get("FIL019", ())


@rule("FIL020", Severity.ERROR)
def broken_ir(package: Opened) -> Iterator[Found]:
    """An OpenVINO IR file cannot be read.

    Causes: A file that was cut off, or XML that declares a document type (entities could fill the memory).
    Remedy: Convert the graph again.
    """
    for name in package.files:
        if name.endswith(".xml"):
            try:
                openvino.constants(package.bytes(name), name)
            except PackageError as error:
                yield Found(name, error.message, "an OpenVINO IR file")


@rule("FIL021", Severity.ERROR, needs=("graphs",))
def contradicting_types(package: Opened) -> Iterator[Found]:
    """Types or shapes inside a graph contradict each other.

    Causes: A port, a constant or an initializer whose type or shape was changed without the nodes around it.
    Remedy: Build the package again; if it was built by cabochon, report it.
    """
    for graph in package.graphs.values():
        try:
            onnx.shape_inference.infer_shapes(
                _without_weights(graph.proto), check_type=True, strict_mode=True
            )
        except Exception as error:  # InferenceError, and for broken protos whatever its C++ throws
            said = " ".join(str(error).split()) or type(error).__name__
            yield Found(graph.path, f"onnx's inference: {said}"[: 2 * _SHOWN], "types and shapes that fit")


def _in_files(package: Opened) -> Iterator[tuple[Range, int]]:
    """The references whose file is there, and the size of it in bytes."""
    for one in ranges(package):
        name = resolved(package, one.folder, one.location)
        if name is not None and name in package.files:
            yield one, package.files[name]


def _sums(package: Opened) -> dict[str, str]:
    return sums.read(package.root) if sums.SUMS in package.files else {}


def _listed(package: Opened) -> dict[str, str]:
    """SHA256SUMS, empty where it cannot be read: another rule says so."""
    try:
        return _sums(package)
    except PackageError:
        return {}


def _without_weights(proto: ModelProto) -> ModelProto:
    """The model with its external initializers as inputs: onnx's checker would look for their files."""
    model = ModelProto()
    model.CopyFrom(proto)
    del model.graph.initializer[:]
    given = {value.name for value in model.graph.input}
    for tensor in proto.graph.initializer:
        if tensor.data_location != TensorProto.EXTERNAL:
            model.graph.initializer.append(tensor)
        elif tensor.name not in given:
            shape = list(tensor.dims)
            value = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, shape)
            model.graph.input.append(value)
    return model
