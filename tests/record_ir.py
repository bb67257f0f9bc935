"""Records packages that OpenVINO converted: `python tests/record_ir.py`, a minute. Needs what `make parity` needs.

Writes tests/data/ir.tar.xz: every file but those of weights, of which the sizes are in the archive's sizes.json. They
are small models with random weights; irs.py puts the packages together again.
"""

import io
import json
import lzma
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import cabochon
from drafters import random_drafter
from full_graphs import random_full

ARCHIVE = Path(__file__).parent / "data" / "ir.tar.xz"
TEXT = {
    "num_hidden_layers": 2,
    "layer_types": ["sliding_attention", "full_attention"],
    "num_kv_shared_layers": 0,
}
LAYERS = {"num_hidden_layers": 1}
# name of the package -> kind, precision, target, whether it is stateful
PACKAGES = {
    "text": ("text", "Q4_K_M", "openvino-ir", False),
    "stateful": ("text", "f32", "openvino-ir", True),
    "wrapped": ("text", "Q4_K_M", "openvino-epcontext", False),
    "full": ("full", "f32", "openvino-ir", False),
    "drafter": ("drafter", "f32", "openvino-ir", False),
}


def made(folder: Path) -> dict[str, Path]:
    """The packages, below `folder`."""
    from cabochon.openvino import convert

    whole = random_full(folder / "whole", text=TEXT, vision=LAYERS, without=["audio_config"])
    layers = ["sliding_attention", "full_attention"]
    small = {"num_hidden_layers": 2, "num_kv_shared_layers": 2, "layer_types": layers}
    sources = {
        "text": whole,
        "full": whole,
        "drafter": random_drafter(folder / "assistant", None, 0, **small),
    }
    found = dict[str, Path]()
    for name, (kind, precision, target, stateful) in PACKAGES.items():
        standard = folder / f"{kind}-{precision}"
        if not standard.exists():
            said: dict[str, Any] = dict(
                model=kind, target="onnx-standard", precision=precision, license="apache-2.0"
            )
            cabochon.build(sources[kind], standard, **said)
        found[name] = folder / name
        convert(standard, found[name], to=target, stateful=stateful, command=("cabochon", "convert"))
    return found


def record() -> None:
    """Write the archive."""
    sizes = dict[str, int]()
    with tempfile.TemporaryDirectory() as folder, io.BytesIO() as held:
        with tarfile.open(fileobj=held, mode="w") as archive:
            for package in made(Path(folder)).values():
                for file in sorted(path for path in package.rglob("*") if path.is_file()):
                    name = file.relative_to(folder).as_posix()
                    if file.suffix == ".bin":
                        sizes[name] = file.stat().st_size
                    else:
                        _add(archive, name, file.read_bytes())
            _add(archive, "sizes.json", json.dumps(sizes, indent=1).encode())
        ARCHIVE.write_bytes(lzma.compress(held.getvalue(), preset=9 | lzma.PRESET_EXTREME))


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)  # of no time and of nobody: the archive is the same again
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))


if __name__ == "__main__":
    record()
