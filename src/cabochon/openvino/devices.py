"""Whether ONNX Runtime's OpenVINO provider finds a device here, asked of the onnxruntime that is installed."""

import platform
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from cabochon.package.facts import installed
from cabochon.package.layout import GRAPH, inside
from cabochon.validation.net import Net

__all__ = ["evidence"]

_PROVIDER = "OpenVINOExecutionProvider"
_PLUGIN, _MODULE, _NAME = "onnxruntime-ep-openvino", "onnxruntime_ep_openvino", "cabochon_openvino"
_LONGEST = 400  # characters of a message of onnxruntime
_TYPES = {"bfloat16": "uint16"}  # by its bits


def evidence(package: Path, nets: Mapping[str, Net]) -> dict[str, Any]:
    """What evidence/epcontext.json says: that each graph was run, or "structure only" with the reason."""
    import onnxruntime as ort

    providers, devices, reason = list[str](ort.get_available_providers()), list[Any](), ""
    try:
        if _PROVIDER not in providers:
            devices, reason = _plugged(ort)
        graphs = (
            {} if reason else {name: _run(ort, package, name, net, devices) for name, net in nets.items()}
        )
    finally:
        if devices:
            ort.unregister_execution_provider_library(_NAME)
    failed = [said for said in graphs.values() if said != "ran"]
    return {
        "how": "executed" if graphs and not failed else "structure only",
        "reason": reason or (failed[0] if failed else ""),
        "graphs": graphs,
        "providers": providers,
        "devices": [f"{device.ep_name} {device.device.type}" for device in devices],
        "machine": {
            "system": platform.system(),
            "architecture": platform.machine(),
            "processor": _processor(),
        },
        "versions": {
            name: found
            for name in ("onnxruntime", "onnxruntime-openvino", _PLUGIN, "openvino")
            if (found := installed(name))
        },
    }


def _plugged(ort: Any) -> tuple[list[Any], str]:
    """The devices of the provider that comes as a wheel of its own; where there are none, why."""
    release = installed(_PLUGIN)
    if release is None:
        return [], f"onnxruntime {ort.__version__} has no {_PROVIDER}, and {_PLUGIN} is not installed"
    try:
        module = import_module(_MODULE)
        ort.register_execution_provider_library(_NAME, module.get_library_path())
    except (
        Exception
    ) as error:  # an ImportError, or onnxruntime's, which raises a class of its own for each status
        return [], f"{_PLUGIN} {release} cannot be registered: {error}"[:_LONGEST]
    found = [device for device in ort.get_ep_devices() if device.ep_name == _PROVIDER]
    if found:
        return found, ""
    ort.unregister_execution_provider_library(_NAME)
    return [], f"{_PLUGIN} {release} lists no device on this machine, whose processor is {_processor()}"


def _run(ort: Any, package: Path, folder: str, net: Net, devices: list[Any]) -> str:
    """Load the node and run one step; "ran", or what went wrong."""
    options = ort.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    try:
        if devices:
            options.add_provider_for_devices(devices[:1], {})
        chosen = {} if devices else {"providers": [_PROVIDER]}
        session = ort.InferenceSession(package / inside(folder, GRAPH), options, **chosen)
        made = session.run(None, _feeds(net))
    except Exception as error:  # onnxruntime raises a class of its own for each status
        return f"{type(error).__name__}: {error}"[:_LONGEST]
    finite = all(np.isfinite(array).all() for array in made if array.dtype.kind == "f")
    return "ran" if finite else "it gives numbers that are none"


def _feeds(net: Net) -> dict[str, np.ndarray]:
    """Ones: one row, one of whatever has a name, and nothing before it."""
    return {
        port.name: np.ones(
            [size if isinstance(size, int) else 0 if "past" in size else 1 for size in port.shape],
            _TYPES.get(port.dtype, port.dtype),
        )
        for port in net.ports.inputs.values()
    }


def _processor() -> str:
    """The name of the processor, as the system says it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())
