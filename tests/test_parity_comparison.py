"""Two packages side by side."""

import json
from pathlib import Path

import pytest

from cabochon.errors import ParityError
from cabochon.parity import compare
from packages import Packages


def test_a_package_equals_itself(packages: Packages) -> None:
    found = compare(packages(), packages(), threads=1)
    assert found.ports == found.metadata == {}
    assert len(found.pairs) >= 10
    for pair in found.pairs:
        assert (pair.relative, pair.agreement, pair.equal_tokens) == (0, 1, 32)
    assert all(a == b for a, b in found.sizes.values())


def test_targets_and_precisions_differ_where_they_must(packages: Packages, tmp_path: Path) -> None:
    a, b = packages(precision="bf16"), packages(target="cuda")
    found = compare(a, b, threads=1, scratch=tmp_path)
    assert found.metadata["cabochon.target"] == ("default", "cuda")
    assert found.metadata["cabochon.precision"] == ("bf16", "f32")
    assert "cabochon.sliding_window" not in found.metadata
    assert found.ports["logits"][0][0] == "bfloat16"
    assert found.ports["logits"][1][0] == "float"
    half, full = found.sizes["model.onnx.data"]
    assert half is not None
    assert full is not None
    assert 1.5 < full / half < 2, "small tensors stand on pages of their own"
    assert max(pair.relative for pair in found.pairs) < 2e-3
    assert sum(pair.equal_tokens for pair in found.pairs) >= 0.9 * 32 * len(found.pairs)
    json.dumps(found.as_json())
    assert list(tmp_path.iterdir()) == []


def test_other_vocabularies_do_not_compare(packages: Packages) -> None:
    with pytest.raises(ParityError, match="vocabularies of 512 and 2048 entries"):
        compare(packages(), packages("miniature"))
