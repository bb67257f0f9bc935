"""What weights in blocks keep of the trained miniature: perplexity and divergence over its whole held-out text.

    python -m bench.quality

docs/calibration.md has what calibration gains, on windows that it did not see.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import cabochon
from bench.table import Row
from cabochon.demo import MINIATURE
from cabochon.recipes import PRECISIONS

TEXT = MINIATURE / "heldout.txt"
PLAIN = 15.4362  # everything in 4 bits by plain rounding, activations in f32


def rows(work: Path, limit: int | None = None) -> Iterator[Row]:
    """A row for each precision on `default`; the aims are those of the whole text."""
    source, reference = MINIATURE / "target", work / "f32"
    cabochon.build(source, reference, precision="f32")
    whole = limit is None
    for name in [name for name, one in PRECISIONS.items() if one.quantized]:
        built = cabochon.build(source, work / name, precision=name)
        found = cabochon.evaluate(built.path, TEXT, against=reference, limit=limit, threads=2)
        apart = found.divergence
        assert apart is not None and found.against is not None
        ppl, judged = found.package.perplexity, whole and name == "Q4_K_M"
        yield Row(
            f"miniature as {name} on `default`, {found.windows} windows of its held-out text",
            f"perplexity {ppl:.4f}, KL {apart.mean:.5f}, same likeliest token {apart.agreement:.1%}, "
            f"{built.nbytes / 1e6:.2f} MB",
            f"f32: {found.against.perplexity:.4f}",
            aim=f"≤ {PLAIN}, all by plain rounding" if judged else "",
            met=ppl <= PLAIN if judged else None,
        )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        for row in rows(Path(place)):
            print(row.line(), flush=True)
