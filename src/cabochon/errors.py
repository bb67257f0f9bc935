"""What can go wrong, as a tree. Every error says where, what was found and expected, and what to do.

CabochonError
├── SourceError          the checkpoint cannot be read
│   ├── ConfigError      config.json says something we do not know or that contradicts itself
│   ├── TensorError      a tensor is missing, unknown, or not what the config promises
│   └── UnsupportedError a kind of checkpoint that is refused by name
├── TargetError          this target cannot carry this model or precision
├── PackingError         numbers cannot be stored in blocks as asked
├── GraphError           a graph being traced is wrong (a fault of ours)
├── PackageError         a package cannot be written or read
│   └── MetadataError    its inference metadata cannot be read, or cannot be written in another form
├── RequestError         a request to the runtime cannot be served as asked
└── ParityError          a comparison could not be made
"""

__all__ = [
    "CabochonError",
    "ConfigError",
    "GraphError",
    "MetadataError",
    "PackageError",
    "PackingError",
    "ParityError",
    "RequestError",
    "SourceError",
    "TargetError",
    "TensorError",
    "UnsupportedError",
]


class CabochonError(Exception):
    """Where it happened (`at`), what was found and expected (`message`), and what to do (`remedy`)."""

    def __init__(self, message: str, *, at: str = "", remedy: str = "") -> None:
        self.message, self.at, self.remedy = message, at, remedy
        super().__init__(message)

    def __str__(self) -> str:
        where = f"{self.at}: " if self.at else ""
        what_to_do = f"\n  -> {self.remedy}" if self.remedy else ""
        return f"{where}{self.message}{what_to_do}"


class SourceError(CabochonError):
    """The checkpoint cannot be read."""


class ConfigError(SourceError):
    """config.json says something we do not know or that contradicts itself."""


class TensorError(SourceError):
    """A tensor is missing, unknown, or not what the config promises."""


class UnsupportedError(SourceError):
    """A kind of checkpoint that is refused by name."""


class TargetError(CabochonError):
    """This target cannot carry this model or precision."""


class PackingError(CabochonError):
    """Numbers cannot be stored in blocks as asked."""


class GraphError(CabochonError):
    """A graph being traced is wrong: a fault of ours, found where it is made."""


class PackageError(CabochonError):
    """A package cannot be written or read."""


class MetadataError(PackageError):
    """Inference metadata cannot be read, or cannot be written in another form.

    `others` are further errors of the same kind, found at the same time.
    """

    def __init__(
        self,
        found: str,
        expected: str,
        *,
        at: str = "",
        remedy: str = "",
        others: tuple["MetadataError", ...] = (),
    ) -> None:
        self.found, self.expected, self.others = found, expected, others
        more = f" (and {len(others)} more)" if others else ""
        super().__init__(f"{found}; expected {expected}{more}", at=at, remedy=remedy)


class RequestError(CabochonError):
    """A request to the runtime cannot be served as asked."""


class ParityError(CabochonError):
    """A comparison could not be made."""
