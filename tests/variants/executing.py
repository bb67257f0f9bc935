"""What executes each variant: natively, as a substitute for the device it is meant for, or nothing here."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import cabochon
from cabochon.parity.dequantized import read_dequantized
from cabochon.parity.widened import read_graph
from variants.browsing import Browsing
from variants.comparing import COMPONENTS, Expected, graphs, twins
from variants.runtimes import OnOnnxRuntime, OnOpenVino

NATIVE, SUBSTITUTE, STATIC, TWIN = "native", "substitute", "static", "twin in f32"
EXACT, ROUNDED = 1e-4, 5e-3  # nothing rounded but, in halves, the constants of the formulas: to 16 bits
OWN = {"f32": EXACT, "f16": 5e-2, "bf16": 5e-2}  # in the package's own arithmetic
PROMPT = [2, 30, 40, 50, 60, 70, 31, 41, 51, 61, 71, 32]
NEW = 12  # tokens: beyond the window of the tiny checkpoint


@dataclass(frozen=True)
class Execution:
    """One way in which a variant was run. `manner`: native, substitute or static. `limit`: that of `far`, the largest
    difference of a component, divided by its largest value; None where it is told and decides nothing. `exact`: in f32,
    with nothing rounded."""

    runtime: str
    manner: str
    said: str = ""
    far: float | None = None
    limit: float | None = None
    exact: bool = False

    @property
    def holds(self) -> bool:
        return self.limit is None or (self.far is not None and self.far <= self.limit)


@dataclass(frozen=True)
class Row:
    """A variant of the table."""

    folder: str
    nbytes: int
    rules: int
    errors: tuple[str, ...]
    executions: tuple[Execution, ...] = field(default_factory=tuple[Execution, ...])

    @property
    def parity(self) -> Execution | None:
        """The execution that rounds nothing."""
        return next((run for run in self.executions if run.exact), None)


class Executing:
    """Runs the variants below `matrix`, which were built from `checkpoint`. What is written goes below `room`."""

    def __init__(self, checkpoint: Path, matrix: Path, room: Path, browsing: Browsing) -> None:
        self.expected, self.matrix, self.room, self.browsing = Expected(checkpoint), matrix, room, browsing
        self._tokens: dict[Path, list[int]] = {}

    def row(self, folder: str) -> Row:
        """Everything of one variant."""
        package = self.matrix / folder
        verdict = cabochon.validate(package)
        size = sum(file.stat().st_size for file in package.rglob("*") if file.is_file())
        errors = tuple(str(finding) for finding in verdict.findings if finding.severity.name == "ERROR")
        return Row(folder, size, len(verdict.rules), errors, tuple(self._executions(package)))

    def _executions(self, package: Path) -> Iterator[Execution]:
        said = _built(package)
        if said["target"] == "openvino-epcontext":
            yield self._structure(package)
        elif said["target"] == "openvino-ir":
            yield from self._ir(package)
        else:
            yield from self._onnx(package, **said)

    def _onnx(self, package: Path, target: str, activations: str) -> Iterator[Execution]:
        ort = f"onnxruntime {version('onnxruntime')} CPU"
        here = NATIVE if target in ("default", "onnx-standard") else SUBSTITUTE
        stored = graphs(package)
        rounds = read_dequantized(*stored.values()).rounds
        twin = EXACT if activations == "f32" else ROUNDED
        widened = twins(package, self.room / package.parent.name / package.name)
        far = self._far(stored, widened, OnOnnxRuntime)
        if activations == "bf16":
            yield Execution(ort, SUBSTITUTE, "its bytes widened to f32", far, twin, exact=True)
        else:
            limit = None if rounds else OWN[activations]
            own = self._far(stored, stored, OnOnnxRuntime)
            yield Execution(ort, here, "rounding to int8" if rounds else "", own, limit)
            yield Execution(ort, TWIN, "", far, twin, exact=True)
        if (
            target == "onnx-standard" and not rounds
        ):  # blocks of 32, and the tiny checkpoint has rows of 8: see openvino-ir
            far = self._far(stored, stored, OnOpenVino)
            yield Execution(_openvino(), NATIVE, "", far, OWN[activations])
        yield from self._browsers(package, target, activations)

    def _browsers(self, package: Path, target: str, activations: str) -> Iterator[Execution]:
        """In the page: what is meant for WebGPU there and, as nothing here has shader-f16, else on wasm."""
        if activations == "bf16" or (target != "webgpu" and package.parent.name != "f32"):
            return
        devices = ("webgpu", "wasm") if (target, activations) == ("webgpu", "f32") else ("wasm",)
        for device in devices:
            runtime, ids = self.browsing.ids(package, device, PROMPT, NEW)
            equal = ids == self._ids(package)
            manner = NATIVE if device == target or target != "webgpu" else SUBSTITUTE
            yield Execution(runtime, manner, "the same tokens" if equal else f"{ids}", float(not equal), 0.0)

    def _ir(self, package: Path) -> Iterator[Execution]:
        """Component by component; one that keeps its caches itself also by the tokens of the one that does not."""
        source = graphs(self.matrix / "Q4_K_M" / "onnx-standard")
        far = self._far(source, graphs(package, "openvino_model.xml"), OnOpenVino)
        yield Execution(_openvino(), NATIVE, "", far, EXACT, exact=True)
        if package.name.endswith("stateful"):
            equal = self._ids(package) == self._ids(self.matrix / "openvino-ir")
            said = "with its states the tokens of openvino-ir" if equal else f"{self._ids(package)}"
            yield Execution(_openvino(), NATIVE, said, float(not equal), 0.0)

    def _structure(self, package: Path) -> Execution:
        said = json.loads((package / "evidence" / "epcontext.json").read_bytes())
        names = [(f"{part}/model.bin", f"{part}/openvino_model.bin") for part in COMPONENTS]
        same = all(
            (package / a).read_bytes() == (self.matrix / "openvino-ir" / b).read_bytes() for a, b in names
        )
        told = f"{said['how']}: the weights of openvino-ir" if same else "OTHER WEIGHTS THAN openvino-ir"
        return Execution("nothing here", STATIC, told, float(not same), 0.0)

    def _far(
        self, stored: Mapping[str, Path], run: Mapping[str, Path], runtime: Callable[[Path], object]
    ) -> float:
        return max(self.expected.differences(dict(stored), dict(run), runtime).values())  # type: ignore[arg-type]

    def _ids(self, package: Path) -> list[int]:
        if package not in self._tokens:
            exact = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}
            how = {"provider_options": exact} if "openvino" in package.name else {"provider": "cpu"}
            model = cabochon.load(package, threads=1, **how)
            made = model.generate(PROMPT, greedy=True, ignore_eos=True, max_new_tokens=NEW)
            self._tokens[package] = list(made.ids)
        return self._tokens[package]


def _built(package: Path) -> dict[str, str]:
    """Target, and the type of activations, as the record of the build and the decoder say."""
    target = json.loads((package / "provenance.json").read_bytes())["build"]["target"]
    if target.startswith("openvino"):
        return {"target": target}
    said = {item.key: item.value for item in read_graph(package / "decoder").metadata_props}
    return {"target": target, "activations": said.get("cabochon.activations", said["cabochon.precision"])}


def _openvino() -> str:
    return f"OpenVINO {version('openvino')} CPU"
