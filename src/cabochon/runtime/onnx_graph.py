"""onnxruntime sessions, with values bound to its ports instead of copied through Python."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from cabochon.errors import PackageError, RequestError
from cabochon.runtime.host import held
from cabochon.runtime.kinds import checked
from cabochon.runtime.ports import Argument
from cabochon.runtime.properties import peek

CPU = "CPUExecutionProvider"
OPENVINO = "OpenVINOExecutionProvider"
CONTEXT = "openvino-epcontext"  # the target of graphs that are one node around an IR of OpenVINO
PROVIDERS = {
    "cpu": CPU,
    "cuda": "CUDAExecutionProvider",
    "webgpu": "WebGpuExecutionProvider",
    "dml": "DmlExecutionProvider",
    "openvino": OPENVINO,
    CONTEXT: OPENVINO,
}
OPTIONS = ("threads", "provider", "provider_options", "session_options")
DEVICES = {"CUDAExecutionProvider": "cuda"}  # where caches live; host memory for all others


class OnnxGraph:
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
    def settings(self) -> Mapping[str, str]:
        """onnxruntime says nothing of how a provider computes."""
        return {}

    @property
    def metadata(self) -> Mapping[str, str]:
        """The metadata properties of the file."""
        return self._session.get_modelmeta().custom_metadata_map

    @property
    def inputs(self) -> Mapping[str, Argument]:
        """Inputs that must be given, by name."""
        return {a.name: a for a in self._session.get_inputs()}

    @property
    def optional(self) -> Mapping[str, Argument]:
        """Inputs that may be left out."""
        return {a.name: a for a in self._session.get_overridable_initializers()}

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
        given = {name: held(np.asarray(a, order="C")) for name, a in arrays.items()}
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
        made = binding.get_outputs_as_ortvaluevector()  # wrapping every cache would take longer than the rest
        arrays = {name: made[i].numpy() for i, name in enumerate(fetched)}
        return arrays, _allocated(kept, binding)

    def _run(self, binding: Any) -> None:
        try:
            self._session.run_with_iobinding(binding)
        except Exception as error:  # onnxruntime raises a class of its own for each status
            raise RequestError(
                f"onnxruntime {ort.__version__} failed in a step: {error}",
                at=self.provider,
                remedy="where memory is short ask for less at once; else the package does not fit this provider",
            ) from error


def _allocated(kept: Mapping[str, ort.OrtValue | None], binding: Any) -> dict[str, Any]:
    """The values given, not others for memory that these keep alive; of None what onnxruntime allocated."""
    if all(kept.values()):
        return dict(kept)
    made = binding.get_outputs()[-len(kept) :]
    return {name: given or its for (name, given), its in zip(kept.items(), made, strict=True)}


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
    if target == CONTEXT and OPENVINO not in available:
        raise RequestError(
            f"an EPContext around OpenVINO's IR, which {OPENVINO} alone runs; this onnxruntime {ort.__version__} has "
            f"{', '.join(available)}",
            at="provider",
            remedy="install an onnxruntime with that provider, or run the package of target openvino-ir",
        )
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
    # Plans where memory goes, for every new set of shapes anew: caches have another length in each step. A token of
    # E2B as Q4_K_M took 119.6 ms with it and 112.4 without (medians by turns, two cores of an AMD EPYC, 2026-11).
    options.enable_mem_pattern = False
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
