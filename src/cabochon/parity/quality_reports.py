"""What a quantized package was made of and what it keeps: dequantized.json and quality.json."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cabochon.evidence import write
from cabochon.parity.evidence import Verdict
from cabochon.parity.prompts import Prompt
from cabochon.parity.quality import Quality, figures

__all__ = ["FORWARD", "LIMIT", "STEPS", "Rows", "kept", "quantized", "weights"]

Rows = Sequence[tuple[str, Sequence[tuple[Prompt, Quality]]]]
"""By how a package was run, its prompts."""
LIMIT = 0.5
"""How far a weight in blocks may be from the checkpoint's. 4 bits move normal weights by 0.1; another weight, or the
right one in another order of bytes, is 1.4 away."""
FORWARD = "logits of one forward pass, every position of every prompt, against the original checkpoint"
STEPS = (
    "logits of all steps of all rounds of the original pair, on hidden states and keys of the original target, against "
    "the original drafter"
)
AGAINST = ", which computes in f32: what quantization changes. Reported, not judged"
FIGURES = {
    "max_relative_difference": "largest |difference| of a logit, by the largest |logit| of the original in that prompt",
    "mean_relative_difference": "mean |difference| of a logit, by the same",
    "mean_kl_divergence": "nats a position, of the package's distribution from the original's",
    "top1_agreement": "share of positions with the same likeliest token",
}


def quantized(
    package: Path,
    differences: Mapping[str, float],
    tried: Rows,
    facts: Mapping[str, Any],
    what: str = FORWARD,
) -> Iterator[Verdict]:
    """Both files, written into the package, and their verdicts."""
    for level, name, (document, line) in (
        ("weights", "dequantized.json", weights(differences, facts)),
        ("quality", "quality.json", kept(tried, facts, what)),
    ):
        yield Verdict(level, document.get("passed", True), line, write(package, name, document))


def kept(tried: Rows, facts: Mapping[str, Any], what: str = FORWARD) -> tuple[dict[str, Any], str]:
    """quality.json and its one line: `tried` by how the package was run."""
    trials = [
        {
            "how": how,
            **figures([found for _, found in rows]),
            "prompts": [{**prompt.described(), **found.described()} for prompt, found in rows],
        }
        for how, rows in tried
    ]
    first = trials[0]
    line = (
        f"top-1 agreement {first['top1_agreement']:.1%}, KL divergence {first['mean_kl_divergence']:.3g} nats a "
        f"position, relative difference {first['mean_relative_difference']:.2e} in the mean, "
        f"{first['max_relative_difference']:.2e} at most; reported, not judged"
    )
    return {
        "level": "quality",
        "what": what + AGAINST,
        "figures": FIGURES,
        **facts,
        "reported_only": trials,
    }, line


def weights(differences: Mapping[str, float], facts: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """dequantized.json and its one line: whether the weights in blocks are the checkpoint's at all."""
    passed = bool(differences) and all(apart <= LIMIT for apart in differences.values())
    name, most = max(differences.items(), key=lambda item: np.nan_to_num(item[1], nan=np.inf))
    document = {
        "level": "weights",
        "what": "weights in blocks, as read back from the graphs' bytes, against the checkpoint's",
        "passed": passed,
        "limit": LIMIT,
        "limit_chosen": "tells the right weight from any other, and from the right one in another order of bytes; "
        "how well it is kept, quality.json says",
        **facts,
        "relative_rms_difference": dict(differences),
    }
    return document, f"{len(differences)} in blocks, at most {most:.3g} from the checkpoint's ({name})"
