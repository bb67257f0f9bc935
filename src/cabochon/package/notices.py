"""SOURCE_LICENSE.md and runtime-requirements.txt of a package."""

from typing import Any

from cabochon import __version__
from cabochon.package.facts import Facts, installed

__all__ = ["requirements", "source_license"]

_WHEELS = {
    "CPUExecutionProvider": "onnxruntime",
    "CUDAExecutionProvider": "onnxruntime-gpu",
    "WebGpuExecutionProvider": "onnxruntime-webgpu",
}


def source_license(facts: Facts[Any]) -> str:
    """The text of SOURCE_LICENSE.md."""
    lines = [f"# License of {facts.name}", "", f"`{facts.license.id}`: {facts.license.evidence}."]
    if facts.url:
        lines += ["", f"Source: {facts.url}"]
    if facts.license.text is not None:
        lines += ["", "Its licence file, as it came with the checkpoint:", "", facts.license.text.rstrip()]
    elif facts.license.id == "gemma":
        lines += ["", "Terms: https://ai.google.dev/gemma/terms"]
    else:
        lines += [
            "",
            "The checkpoint came without a licence file; its text is not repeated here from memory.",
        ]
    return "\n".join(lines) + "\n"


def requirements(facts: Facts[Any]) -> str:
    """The text of runtime-requirements.txt: the wheels that were installed where the package was built."""
    wheel = _WHEELS[facts.target.provider]
    pinned = [f"{name}=={found}" for name in (wheel, "numpy", "tokenizers") if (found := installed(name))]
    lines = [
        f"# Installed where cabochon {__version__} built this package; evidence/ says what was run with it."
    ]
    if installed(wheel) is None:
        lines.append(f"# {facts.target.provider} comes with {wheel}, which was not installed there.")
    if caveat := facts.caveat:
        lines.append(f"# {facts.precision.name} on {facts.target.name}: {caveat}.")
    return "\n".join([*lines, *pinned]) + "\n"
