"""OpenVINO's runtime as what runs a graph: its intermediate representation (IR), stateless or stateful."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from cabochon.errors import CabochonError, PackageError, RequestError
from cabochon.runtime.kinds import checked
from cabochon.runtime.openvino_states import Variable
from cabochon.runtime.ports import DTYPES, PAST, PREFIX, REBUILD, Argument, present_of
from cabochon.runtime.properties import said

__all__ = ["EXACT", "OpenVinoGraph", "library", "named"]

EXACT = {
    "INFERENCE_PRECISION_HINT": "f32",
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",
    "KV_CACHE_PRECISION": "f32",
}
"""Options with which the CPU computes as the graph says. Its own are faster, and round what is multiplied."""
DEVICE = "CPU"
NAMES = ("openvino", "openvinoexecutionprovider")
OPTIONS = ("threads", "provider", "provider_options", "session_options")
REMEDY = "check the files with `sha256sum -c SHA256SUMS`, or convert the package again"
OWN = ("axes", "stateful")  # properties that say how the IR is to be read, and ask nothing of a caller
TYPES = {
    "f32": "tensor(float)",
    "f16": "tensor(float16)",
    "i64": "tensor(int64)",
    "boolean": "tensor(bool)",
}  # as onnxruntime calls them


@dataclass(frozen=True)
class Port:
    """An input or output. That an axis varies an IR says itself; what the axis is called, its properties say."""

    name: str
    type: str
    shape: list[int | str | None]


class OpenVinoGraph:
    """A graph that OpenVINO compiled for the CPU. A stateful one shows the caches of its request as ports."""

    def __init__(
        self,
        path: Path,
        *,
        provider: str | None = None,
        threads: int | None = None,
        provider_options: Mapping[str, Any] | None = None,
        session_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Load `path`, an .xml. `provider_options` go to OpenVINO as they are; see `EXACT`.

        Raises PackageError for a graph that does not load, CabochonError where OpenVINO is not installed, RequestError
        for another provider, for what OpenVINO refuses, and for session_options, which are onnxruntime's.
        """
        given = checked(
            {"threads": threads, "provider": provider, "provider_options": provider_options}
            | {"session_options": session_options},
            OPTIONS,
        )
        _refuse_others(given["provider"], given["session_options"])
        self._ov = library()
        _require_own(path)
        properties = said(path)
        if properties.get("activations", properties.get("precision")) == "bf16":
            raise RequestError(
                "this package is bfloat16, of which neither OpenVINO nor cabochon hands arrays to Python",
                at=str(path),
                remedy="convert a package of --precision f32, which holds every bfloat16 value exactly, or of f16",
            )
        self.provider = named(self._ov)
        self.metadata = {PREFIX + key: value for key, value in properties.items() if key not in OWN}
        model = _read(self._ov, path)
        axes = read_axes(properties.get("axes"), path)
        self._own_inputs = dict(_ports(model.inputs, axes, path))
        self._own_outputs = dict(_ports(model.outputs, axes, path))
        self._compiled = _compiled(self._ov, path, model, given["threads"], given["provider_options"] or {})
        self._request = self._compiled.create_infer_request()
        stateful = properties.get("stateful") == "true"
        self._variables = self._states(axes, path) if stateful else dict[str, Variable]()
        self.device = "request" if stateful else "cpu"
        self._placed = set[str]()

    @property
    def settings(self) -> Mapping[str, str]:
        """What it computes in, and on how many threads."""
        names = [*EXACT, "INFERENCE_NUM_THREADS"]
        if not self._variables:
            names.remove("KV_CACHE_PRECISION")  # of caches that it keeps itself
        return {name: _told(self._compiled.get_property(name)) for name in names}

    @property
    def inputs(self) -> Mapping[str, Argument]:
        """Inputs that must be given, by name."""
        return {**self._own_inputs, **{name: v.port for name, v in self._variables.items()}}

    @property
    def optional(self) -> Mapping[str, Argument]:
        """None: an IR has no defaults."""
        return {}

    @property
    def outputs(self) -> Mapping[str, Argument]:
        """Outputs by name."""
        return {**self._own_outputs, **{v.present.name: v.present for v in self._variables.values()}}

    def put(self, array: np.ndarray) -> ort.OrtValue:
        """A value in host memory: the array itself, or a copy of what is a view."""
        array = np.ascontiguousarray(array)
        return ort.OrtValue.ortvalue_from_numpy(array if array.flags.owndata else array.copy())

    def run(
        self,
        arrays: Mapping[str, np.ndarray],
        values: Mapping[str, Any],
        fetched: Sequence[str],
        kept: Mapping[str, Any],
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Run once. `fetched` outputs come back as arrays; `kept` ones are written into the value given for each.

        None instead of a value leaves the allocation to OpenVINO. Caches of a stateful graph stay in its request.
        """
        self._require_all({**arrays, **values})
        given = {name: _shared(array) for name, array in arrays.items()}
        given |= {name: _shared(v.numpy()) for name, v in values.items() if name not in self._variables}
        places = {name: _shared(value.numpy()) for name, value in kept.items() if value is not None}
        try:
            for name, variable in self._variables.items():
                variable.go_on_from(values[name])
            self._bind(given, places)
            self._request.infer()
        except RuntimeError as error:
            for variable in self._variables.values():
                variable.lost()
            raise RequestError(
                f"OpenVINO failed in a step: {_reason(error)}",
                at=self.provider,
                remedy="where memory is short ask for less at once; else the package does not fit this version",
            ) from error
        made = self._appended(given)
        made |= {name: self.put(self._made(name)) for name in kept.keys() - places - made.keys()}
        return {name: self._made(name) for name in fetched}, {
            name: made[name] if value is None else value for name, value in kept.items()
        }

    def _require_all(self, given: Mapping[str, Any]) -> None:
        """A request would take what it was given before in the place of what is missing."""
        lacking = self.inputs.keys() - given.keys()
        if lacking:
            raise RequestError(f"no value for {', '.join(sorted(lacking))}", at=self.provider)

    def _bind(self, given: Mapping[str, np.ndarray], places: Mapping[str, np.ndarray]) -> None:
        """Tensors over memory that `given` and `places` keep alive; an output without a place gets one of its own."""
        tensor = self._ov.Tensor
        for name, array in {**given, **places}.items():
            self._request.set_tensor(name, tensor(array, shared_memory=True))
        for name in self._placed - places.keys():
            port = self._compiled.output(name)
            rank = port.partial_shape.rank.get_length()
            self._request.set_tensor(name, tensor(port.element_type, [0] * rank))
        self._placed = set(places)

    def _made(self, name: str) -> np.ndarray:
        return self._request.get_tensor(name).data.copy()

    def _appended(self, given: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """The caches of a stateful graph after a run, by output."""
        if not self._variables:
            return {}
        new = next(given[name].shape[1] for name, p in self._own_inputs.items() if "sequence" in p.shape[1:2])
        return {v.present.name: v.appended(new) for v in self._variables.values()}

    def _states(self, axes: "Axes", path: Path) -> dict[str, Variable]:
        """The states of the request by the input that each was: it is called as that and the output together."""
        found = dict[str, Variable]()
        for state in self._request.query_state():
            past, mark, present = state.name.rpartition("present.")
            if not past.startswith(PAST) or present_of(past) != mark + present:
                raise PackageError(
                    f"unknown state {state.name!r}; expected the names of a past and its present",
                    at=str(path),
                    remedy=REBUILD,
                )
            own = [1, *state.state.shape[1:2], "past_sequence", *state.state.shape[3:]]
            kind = _type(state.state.element_type)
            port, after = (Port(name, kind, axes.get(name, own)) for name in (past, mark + present))
            found[past] = Variable(state, port, after, DTYPES[kind], self._ov.Tensor)
        return dict(sorted(found.items(), key=lambda item: _natural(item[0])))


def library() -> Any:
    """The module `openvino`. Raises CabochonError where it is not installed."""
    try:
        import openvino
    except ImportError as error:
        raise CabochonError(
            f"OpenVINO cannot be loaded: {error}",
            at="openvino",
            remedy="pip install 'cabochon[openvino]'",
        ) from error
    return openvino


def named(ov: Any) -> str:
    """What runs an IR, with its version: "openvino 2026.4.1 CPU"."""
    return f"openvino {ov.__version__.partition('-')[0]} {DEVICE}"


def _require_own(path: Path) -> None:
    """Raise PackageError unless the IR and its weights are files beside each other: OpenVINO follows links to anywhere,
    and waits for pipes."""
    for file in (path, path.with_suffix(".bin")):
        if not file.is_file() or file.resolve().parent != path.parent.resolve():
            raise PackageError(
                "is no file of the package",
                at=str(file),
                remedy="check the package with `cabochon validate`, or convert it again",
            )


def _refuse_others(provider: str | None, session_options: Any) -> None:
    if provider is not None and provider.lower() not in NAMES:
        raise RequestError(
            f"provider {provider!r}; this package is OpenVINO's IR, which nothing else runs",
            at="provider",
            remedy="leave it out, or load a package of ONNX graphs",
        )
    if session_options:
        raise RequestError(
            "session_options are onnxruntime's, and this package is OpenVINO's IR",
            at="session_options",
            remedy="give OpenVINO's own as provider_options",
        )


def _read(ov: Any, path: Path) -> Any:
    try:
        return ov.Core().read_model(path)
    except RuntimeError as error:
        raise PackageError(
            f"{named(ov)} cannot read it: {_reason(error)}", at=str(path), remedy=REMEDY
        ) from error


def _compiled(ov: Any, path: Path, model: Any, threads: int | None, options: Mapping[str, Any]) -> Any:
    if threads is not None:
        options = {"INFERENCE_NUM_THREADS": threads, **options}
    try:
        return ov.Core().compile_model(model, DEVICE, dict(options))
    except RuntimeError as error:
        said = f"{named(ov)} refuses it: {_reason(error)}"
        if "property" in said:
            raise RequestError(
                said, at="provider_options", remedy="give names and values that OpenVINO knows"
            ) from error
        raise PackageError(said, at=str(path), remedy=REMEDY) from error


def _reason(error: Exception) -> str:
    """What OpenVINO says, without the lines of its source that say so."""
    lines = [line.strip() for line in str(error).splitlines()]
    return " ".join(line for line in lines if line and not line.startswith("Exception from ")) or str(error)


Axes = Mapping[str, list[int | str | None]]


def read_axes(told: str | None, path: Path) -> Axes:
    """What the axes of ports are called: "name: batch,1,past_sequence,16", one a line. Raises PackageError without."""
    if told is None:
        raise PackageError(
            f"{PREFIX}axes is missing; expected a line for every port", at=str(path), remedy=REBUILD
        )
    lines = (line.partition(":") for line in told.splitlines())
    return {
        name: [_axis(axis.strip()) for axis in axes.split(",") if axis.strip()] for name, _, axes in lines
    }


def _axis(written: str) -> int | str:
    return int(written) if written.isdecimal() else written


def _ports(ports: Iterable[Any], axes: Axes, path: Path) -> Iterator[tuple[str, Port]]:
    for port in ports:
        name, dims = port.any_name, list(port.partial_shape)
        names = axes.get(name, [None] * len(dims))
        fixed = [d.get_length() if d.is_static else n for d, n in zip(dims, names, strict=False)]
        if len(names) != len(dims) or (names != fixed and None not in names):
            raise PackageError(
                f"{PREFIX}axes says {names} of {name}, which is {port.partial_shape}",
                at=str(path),
                remedy=REBUILD,
            )
        yield name, Port(name, _type(port.element_type), fixed)


def _type(kind: Any) -> str:
    name = kind.get_type_name()
    return TYPES.get(name, f"tensor({name})")


def _natural(name: str) -> list[int | str]:
    """Layer 10 comes behind layer 9."""
    return [int(part) if part.isdecimal() else part for part in name.split(".")]


def _told(value: Any) -> str:
    return value.get_type_name() if hasattr(value, "get_type_name") else str(value)


def _shared(array: np.ndarray) -> np.ndarray:
    """As OpenVINO takes memory that it shares: writable, though it only reads, and of the int64 that it knows."""
    array = np.asarray(array, order="C")
    return (array if array.flags.writeable else array.copy()).view(np.dtype(array.dtype.str))
