"""cabochon: a Gemma 4 checkpoint in, an ONNX package out, and the runtime that drives it.

    import cabochon

    cabochon.build("google/gemma-4-E2B-it", "e2b", target="default", precision="f16")
    model = cabochon.load("e2b")
    print(model.generate("Why is the sky blue?").text)

Importing this module imports nothing heavy: each name below is fetched when it is first asked for.
"""

from importlib import import_module
from os import PathLike, environ, fspath
from typing import TYPE_CHECKING, Any

from cabochon.deferred import defer

if TYPE_CHECKING:
    from . import errors
    from .calibration import calibrate
    from .checkpoint import open_checkpoint
    from .errors import CabochonError
    from .evaluation import evaluate
    from .matrix import build_matrix
    from .package import Built
    from .planning import plan
    from .runtime import load
    from .validation import inspect, validate

__version__ = "0.1.0"
__all__ = [
    "CabochonError",
    "__version__",
    "build",
    "build_matrix",
    "calibrate",
    "errors",
    "evaluate",
    "inspect",
    "load",
    "open_checkpoint",
    "plan",
    "validate",
]

ROOMS = {
    "CabochonError": "errors",
    "build_matrix": "matrix",
    "calibrate": "calibration",
    "evaluate": "evaluation",
    "inspect": "validation",
    "load": "runtime",
    "open_checkpoint": "checkpoint",
    "plan": "planning",
    "validate": "validation",
}

# Official builds of onnxruntime (from 1.29) and onnxruntime-genai report to Microsoft over HTTPS what they load and run
# and keep an id of the machine and a database for it, unless this is set before they are imported. Set to 0 they may.
environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

defer("sympy", "onnx_ir._symbolic_shapes")  # which names functions of sympy at its top


def build(
    source: "str | PathLike[str]",
    out: "str | PathLike[str]",
    *,
    target: str = "default",
    stateful: bool = False,
    **options: Any,
) -> "Built":
    """Build the package `out` from the checkpoint `source`; `options` are those of `cabochon.package.build`.

    A package of "openvino-ir" or "openvino-epcontext" is built for onnx-standard and converted, as
    `cabochon.openvino.build_converted` says; of the former the decoder may be `stateful`. Raises what these raise.
    """
    # as __getattr__ does: an import statement would count as one by every room that asks for the version
    if target.startswith("openvino-"):
        make = import_module(".openvino", __name__).build_converted
        return make(fspath(source), fspath(out), target=target, stateful=stateful, **options)
    if stateful:
        raise import_module(".errors", __name__).TargetError(
            f"stateful is asked for {target!r}; packages of openvino-ir alone can be"
        )
    return import_module(".package", __name__).build(fspath(source), fspath(out), target=target, **options)


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module(".errors", __name__)
    if name not in ROOMS:
        raise AttributeError(f"module 'cabochon' has no attribute {name!r}; it has {', '.join(__all__)}")
    value = getattr(import_module("." + ROOMS[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
