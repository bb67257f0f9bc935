"""External data: every reference is one, and its bytes are there, all of them, where they can be read as elements."""

from collections.abc import Iterator
from itertools import pairwise

from cabochon.validation.findings import Severity
from cabochon.validation.inside import resolved
from cabochon.validation.opened import Opened
from cabochon.validation.ranges import Range, constants, external, places, ranges
from cabochon.validation.rules import Found, rule

_SHOWN = 200  # characters of a reference


@rule("FIL006", Severity.ERROR)
def no_reference(package: Opened) -> Iterator[Found]:
    """A reference to external data is not one.

    Causes: A graph written by hand or damaged: without a location, or with an offset or a length that is no number;
    a constant of OpenVINO's IR without an offset.
    Remedy: Build or download the package again.
    """
    for one, required in (*((r, False) for r in external(package)), *((r, True) for r in constants(package))):
        said = f"location {one.location!r}, offset {one.offset!r}, length {one.length!r}"[:_SHOWN]
        missing = one.location is None or (required and not one.offset)  # OpenVINO has no default
        if missing or one.start is None or (one.length is not None and one.said is None):
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
    a word, since they map the bytes as an array of elements. OpenVINO packs the constants of an IR file like that and
    reads them so: there, one that begins where another ends is in its place.
    Remedy: Write the data again with every offset a multiple of the element's size.
    """
    ends = {(one.folder, one.location, (one.start or 0) + one.nbytes) for one in constants(package)}
    for one, _ in _in_files(package):
        step = max(one.bits // 8, 1)
        if one.start is not None and one.start % step and (one.folder, one.location, one.start) not in ends:
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


def _in_files(package: Opened) -> Iterator[tuple[Range, int]]:
    """The references whose file is there, and the size of it in bytes."""
    for one in ranges(package):
        name = resolved(package, one.folder, one.location)
        if name is not None and name in package.files:
            yield one, package.files[name]
