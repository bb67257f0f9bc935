"""Packages converted to OpenVINO, without OpenVINO: those that record_ir.py recorded, put together again."""

import json
import lzma
import tarfile
from io import BytesIO
from pathlib import Path

from cabochon import sums
from cabochon.files import sha256
from packages import alone

ARCHIVE = Path(__file__).parent / "data" / "ir.tar.xz"
FILL = b"\x3c"  # of weights: 0.0115 in f32, 1.06 in f16, and no two weights are told apart by what they hold


class Recorded:
    """The packages by name, below `root`: "text", "stateful", "wrapped", "full", "drafter". Nobody writes into one."""

    def __init__(self, root: Path) -> None:
        self.root = root / "converted"

    def __call__(self, name: str, *_: str) -> Path:
        with alone(self.root):
            if not self.root.exists():
                made = self.root.with_suffix(".making")
                _unpack(made)
                made.rename(self.root)
        return self.root / name


def _unpack(folder: Path) -> None:
    with tarfile.open(fileobj=BytesIO(lzma.decompress(ARCHIVE.read_bytes()))) as archive:
        archive.extractall(folder, filter="data")
    for name, size in json.loads((folder / "sizes.json").read_bytes()).items():
        (folder / name).write_bytes(FILL * size)
    for package in (path for path in folder.iterdir() if path.is_dir()):
        record = json.loads((package / "provenance.json").read_bytes())
        for name, said in record["files"].items():
            said["sha256"] = sha256(package / name)
        (package / "provenance.json").write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n")
        sums.write(package, {})
