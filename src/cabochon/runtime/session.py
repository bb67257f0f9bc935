"""onnxruntime sessions, with values bound to its ports instead of copied through Python."""

import mmap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from cabochon.errors import PackageError, RequestError
from cabochon.runtime.embedder import Embedder, Lookup
from cabochon.runtime.kinds import checked
from cabochon.runtime.ports import PREFIX, Argument, Cache, Ports, read_contract, read_ports

CPU = "CPUExecutionProvider"
PROVIDERS = {
    "cpu": CPU,
    "cuda": "CUDAExecutionProvider",
    "webgpu": "WebGpuExecutionProvider",
    "dml": "DmlExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
}
OPTIONS = ("threads", "provider", "provider_options", "session_options")
DEVICES = {"CUDAExecutionProvider": "cuda"}  # where caches live; host memory for all others


class Graph:
    """A graph in an onnxruntime session: the provider that runs it, and one method that runs it."""

    def __init__(
        self,
        path: Path,
        *,
        provider: str | None = None,
        threads: int | None = None,
        provider_options: Mapping[str, Any] | None = None,
        session_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Load `path`. `threads` is per operator (None: one per core); `provider` a short or an onnxruntime name.

        `provider_options` and `session_options` are onnxruntime's own. Worth knowing of the latter:
        "session.disable_prepacking" = "1" spares the packed copy of every f32 weight on a CPU, at slower products.

        Raises PackageError for a graph that does not load, RequestError for a provider that is not installed and for
        bfloat16, which onnxruntime runs on no CPU.
        """
        given = checked(
            {"threads": threads, "provider": provider, "provider_options": provider_options}
            | {"session_options": session_options},
            OPTIONS,
        )
        refuse_bfloat16(path)
        chosen = chosen_provider(provider, peek(path, "target"), ort.get_available_providers())
        options = _options(given["threads"], given["session_options"] or {})
        self._session = _open(path, chosen, provider_options or {}, options)
        self.provider: str = self._session.get_providers()[0]
        self.device = DEVICES.get(self.provider, "cpu")

    @property
    def metadata(self) -> Mapping[str, str]:
        """The metadata properties of the file."""
        return self._session.get_modelmeta().custom_metadata_map

    @property
    def inputs(self) -> Mapping[str, Argument]:
        """Inputs that must be given, by name."""
        return {a.name: a for a in self._session.get_inputs()}

    @property
    def outputs(self) -> Mapping[str, Argument]:
        """Outputs by name."""
        return {a.name: a for a in self._session.get_outputs()}

    def put(self, array: np.ndarray) -> ort.OrtValue:
        """A value on the session's device; in host memory it is the array itself, not a copy.

        A value keeps the array it is made of alive, but not what that array is a view of: a view is copied.
        """
        array = np.ascontiguousarray(array)
        return ort.OrtValue.ortvalue_from_numpy(
            array if array.flags.owndata else array.copy(), self.device, 0
        )

    def run(
        self,
        arrays: Mapping[str, np.ndarray],
        values: Mapping[str, ort.OrtValue],
        fetched: Sequence[str],
        kept: Mapping[str, ort.OrtValue | None],
    ) -> tuple[dict[str, np.ndarray], dict[str, ort.OrtValue]]:
        """Run once. `fetched` outputs come back as arrays; `kept` ones are written into the value given for each.

        None instead of a value leaves the allocation to onnxruntime, on the session's device.
        """
        binding = self._session.io_binding()
        given = {
            name: ort.OrtValue.ortvalue_from_numpy(np.asarray(a, order="C")) for name, a in arrays.items()
        }
        for name, value in {**given, **values}.items():
            binding.bind_ortvalue_input(name, value)  # the only binding that takes an optional input
        for name in fetched:
            binding.bind_output(name, "cpu")
        for name, value in kept.items():
            if value is None:
                binding.bind_output(name, self.device)
            else:
                binding.bind_ortvalue_output(name, value)
        self._run(binding)
        made = binding.get_outputs()
        count = len(fetched)
        arrays = {name: value.numpy() for name, value in zip(fetched, made[:count], strict=True)}
        own = zip(
            kept.items(), made[count:], strict=True
        )  # the value given, not another for memory it keeps alive
        return arrays, {name: its if value is None else value for (name, value), its in own}

    def _run(self, binding: Any) -> None:
        try:
            self._session.run_with_iobinding(binding)
        except Exception as error:  # onnxruntime raises a class of its own for each status
            raise RequestError(
                f"onnxruntime {ort.__version__} failed in a step: {error}",
                at=self.provider,
                remedy="where memory is short ask for less at once; else the package does not fit this provider",
            ) from error


class Session(Graph):
    """The graph of a decoder with its ports, and what makes its feeds of tokens."""

    def __init__(self, path: Path, embedder: Embedder | None = None, **options: Any) -> None:
        """See `Graph`; without an embedder the decoder looks its tokens up itself.

        Raises PackageError for a graph that is not a decoder of ours, or not of the kind that the embedder feeds.
        """
        super().__init__(path, **options)
        self.embedder = embedder or Lookup()
        contract = read_contract(
            self.metadata, path.name if embedder is None else f"{path.parent.name}/{path.name}"
        )
        self.ports: Ports = read_ports(
            self.inputs.values(),
            self._session.get_overridable_initializers(),
            self.outputs.values(),
            contract,
        )
        if contract.fed == (embedder is None):
            raise PackageError(
                f"a decoder {'fed by an embedding' if contract.fed else 'of text'}",
                at=str(path),
                remedy="load the folder of a whole package",
            )

    def feeds(self, rows: Sequence[Sequence[int]], ids: np.ndarray) -> dict[str, ort.OrtValue]:
        """What the decoder takes for `ids` i64 [B, S]; `rows` are the same tokens, soft ones as such."""
        made = self.embedder.feeds(rows, ids)
        return {name: made[name] for name in self.ports.takes}

    def empty(self, cache: Cache, rows: int) -> ort.OrtValue:
        """A cache without columns."""
        return self.put(np.empty((rows, cache.heads, 0, cache.size), self.ports.dtype))


def peek(path: Path, key: str) -> str | None:
    """A metadata property read from the file's bytes, before onnxruntime has loaded it; None where it is absent.

    In the protobuf form a property is its key, the byte 0x12, the value's length (one byte below 128), the value.
    """
    if not path.stat().st_size:
        return None
    mark = f"{PREFIX}{key}".encode() + b"\x12"
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        at = view.rfind(mark) + len(mark)
        length = view[at] if len(mark) <= at < len(view) else 0
        value = view[at + 1 : at + 1 + length]
    return value.decode(errors="replace") if length and len(value) == length else None


def refuse_bfloat16(path: Path) -> None:
    """Raise RequestError for a bfloat16 graph before onnxruntime fails to find its kernels."""
    if peek(path, "precision") == "bf16":
        raise RequestError(
            "this package is bfloat16; onnxruntime has no bfloat16 kernels on the CPU and hands no bfloat16 arrays "
            "to Python",
            at=str(path),
            remedy="build it with --precision f32, which holds every bfloat16 value exactly, or f16",
        )


def chosen_provider(asked: str | None, target: str | None, available: Sequence[str]) -> str:
    """The provider asked for, else the target's own where it is installed, else the CPU's."""
    if asked is None:
        natural = PROVIDERS.get(target or "", CPU)
        return natural if natural in available else CPU
    name = PROVIDERS.get(asked.lower(), asked)
    if name not in available:
        raise RequestError(
            f"provider {asked!r} is not in this onnxruntime {ort.__version__}; it has {', '.join(available)}",
            at="provider",
            remedy="install the onnxruntime package that carries it, or choose one of those",
        )
    return name


def _options(threads: int | None, entries: Mapping[str, Any]) -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = 4  # faults are raised; logits_to_keep is optional on purpose
    options.intra_op_num_threads = threads or 0
    for key, value in entries.items():
        _add(options, key, value)
    return options


def _add(options: Any, key: str, value: Any) -> None:
    try:
        options.add_session_config_entry(key, str(value))
    except Exception as error:  # onnxruntime raises a class of its own for each status
        raise RequestError(
            f"{key!r} = {value!r} is refused: {error}",
            at="session_options",
            remedy="give names and values that onnxruntime knows",
        ) from error


def _open(path: Path, provider: str, settings: Mapping[str, Any], options: Any) -> ort.InferenceSession:
    providers: list[Any] = [(provider, {k: str(v) for k, v in settings.items()})]
    if provider != CPU:
        providers.append(CPU)
    try:
        return ort.InferenceSession(path, options, providers=providers)
    except Exception as error:  # onnxruntime raises a class of its own for each status
        raise PackageError(
            f"onnxruntime {ort.__version__} cannot load it with {provider}: {error}",
            at=str(path),
            remedy="check the files with `sha256sum -c SHA256SUMS`, or build the package again",
        ) from error
