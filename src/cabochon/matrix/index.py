"""OUT/README.md: what stands in the folder of a matrix, in tables, and how it is used; read off the packages alone."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from cabochon import __version__, files
from cabochon.dialects import TARGETS
from cabochon.errors import PackageError
from cabochon.matrix.present import Package, present
from cabochon.matrix.usage import usages
from cabochon.matrix.variants import EPCONTEXT, IR
from cabochon.package.page import bullets, front_matter, page, table

__all__ = ["INDEX", "index", "refuse_other", "write_index"]

INDEX = "README.md"
_EMPTY = "# Nothing stands here yet\n"
_OURS = "as packages of cabochon"

_CHECKS = (
    "`sha256sum -c SHA256SUMS` in the folder of a variant, or `cabochon validate FOLDER`. Its `evidence/` has what was "
    "measured on it, its `provenance.json` how it was built."
)
_PRECISIONS = {
    "f32": "32-bit floats: what others are measured against",
    "f16": "16-bit floats",
    "bf16": "bfloat16, as checkpoints are published",
    "Q8": "8 bits in blocks of 32",
    "Q4_K_M": "4 bits in blocks of 32, the most sensitive weights and encoders 8 bits",
    "NF4": "NF4 in blocks of 64 in the products of the decoder; tables are f16",
}
_TARGETS = {
    "default": ("ONNX Runtime and onnxruntime-genai on the CPU", "none: the CPU"),
    "onnx-standard": ("any conformant ONNX runtime: ai.onnx alone, no `com.microsoft`", "none: the CPU"),
    "cuda": ("ONNX Runtime and onnxruntime-genai on CUDA", "`cuda`"),
    "webgpu": ("onnxruntime-web in a browser; WebGPU", "`webgpu`"),
    IR: ("OpenVINO, its intermediate representation", "-"),
    EPCONTEXT: ("ONNX Runtime with OpenVINO's execution provider", "-"),
}


def refuse_other(out: Path) -> None:
    """Raise PackageError where a file that is no index stands in its place: a README, or the card of a package."""
    path = out / INDEX
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return
    except OSError as error:
        raise PackageError(f"cannot be read: {error}", at=str(path), remedy="choose another OUT") from error
    if text != _EMPTY and _OURS not in text:
        raise PackageError(
            "is no index of a matrix, which would take its place",
            at=str(path),
            remedy="choose another OUT, or move the file away",
        )


def write_index(out: Path) -> Path:
    """Write the index of what stands below `out` now; of several runs that do, one after the other. Returns its path.

    Raises PackageError where it cannot be written.
    """
    path = out / INDEX
    with files.alone(path):
        files.replace(path, index(present(out)).encode())
    return path


def index(packages: Sequence[Package]) -> str:
    """The text of the index of these packages."""
    if not packages:
        return _EMPTY
    sections = {
        "Variants": _variants(packages),
        "Usage": "\n\n".join(["Paths are below this folder.", *(usage.text for usage in usages(packages))]),
        "What to know": bullets(_caveats(packages)),
        "Checks": _CHECKS,
        "License": _license(packages),
    }
    return page(_head(packages), _introduction(packages), sections)


def _head(packages: Sequence[Package]) -> str:
    source = packages[0].record["target"]
    tags = ["onnxruntime-genai", *(["openvino"] if any(p.variant.target == IR for p in packages) else [])]
    full = packages[0].full
    return front_matter(
        source["license"],
        [source["id"]] if source["id"] else [],
        *(tag for tag in tags if tag not in ("onnx", "onnxruntime")),
        pipeline="image-text-to-text" if full else "text-generation",
    )


def _introduction(packages: Sequence[Package]) -> str:
    source, first = packages[0].record["target"], packages[0]
    name = (
        f"[`{source['id']}`]({source['source_url']})"
        if source["id"]
        else f"`{source['name']}` (a local folder)"
    )
    revision = f" @ `{source['revision']}`" if source["revision"] else ""
    kind = "Every variant has a graph for each component of the model" if first.full else "Text alone"
    pair = ", and a drafter with its target" if first.pair else ""
    return "\n".join(
        [
            f"# {source['name']}: {len(packages)} variants",
            "",
            f"{name}{revision}, {_OURS} {__version__}. {kind}{pair}.",
        ]
    )


def _variants(packages: Sequence[Package]) -> str:
    each = sum(package.nbytes for package in packages)
    once = sum({digest: n for package in packages for digest, n in package.sizes.items()}.values())
    return "\n\n".join(
        [
            "Each folder is `<precision>/<target>`, or one of OpenVINO's.",
            "### Precisions",
            table(("Precision", "Weights", "Bits per weight"), _precisions(packages)),
            "### Targets",
            table(("Target", "Runs on", "Provider in `genai_config.json`"), _targets(packages)),
            "### Matrix",
            table(("Folder", "Precision", "Target", "Size"), _rows(packages)),
            f"{each:,} bytes in all; {once:,} where files that are the same are kept once, as hard links keep them.",
        ]
    )


def _precisions(packages: Iterable[Package]) -> Iterator[tuple[str, str, str]]:
    names = dict.fromkeys(package.variant.precision for package in packages)
    for name in names:
        stored = [p.build("stored") for p in packages if p.variant.precision == name]
        bits = sorted({f"{said['bits_per_weight']:.2f}" for said in stored if said}, key=float)
        yield f"`{name}`", _PRECISIONS[name], "-".join(dict.fromkeys((bits[0], bits[-1]))) if bits else ""


def _targets(packages: Iterable[Package]) -> Iterator[tuple[str, str, str]]:
    for name in dict.fromkeys(package.variant.target for package in packages):
        yield f"`{name}`", *_TARGETS[name]


def _rows(packages: Iterable[Package]) -> Iterator[tuple[str, ...]]:
    for package in packages:
        variant = package.variant
        state = ", stateful" if variant.stateful else ""
        yield (
            f"[`{variant.folder}`]({variant.folder})",
            variant.precision,
            f"{variant.target}{state}",
            _size(package.nbytes),
        )


def _size(nbytes: int) -> str:
    for unit, factor in (("GB", 10**9), ("MB", 10**6)):
        if nbytes >= factor:
            return f"{nbytes / factor:.2f} {unit}"
    return f"{nbytes / 1000:.1f} kB"


def _caveats(packages: Iterable[Package]) -> Iterator[str]:
    for package in packages:
        target = TARGETS.get(package.variant.target)
        if target:
            methods = {said.get("method") for said in package.build("recipe") or ()}
            known = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}[package.build("dtype")]
            if caveat := target.caveat(known, methods=[method for method in methods if method]):
                yield f"`{package.folder}`: {caveat}."
    yield "The names of precisions are those of recipes, not of llama.cpp's formats."


def _license(packages: Sequence[Package]) -> str:
    source = packages[0].record["target"]
    return f"`{source['license']}` ({source['license_evidence']}). See `SOURCE_LICENSE.md` of each variant."
