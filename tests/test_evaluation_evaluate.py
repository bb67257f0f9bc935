"""Perplexity and divergence of packages of all kinds, and what is refused."""

import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import cabochon
from cabochon.errors import PackageError, RequestError
from cabochon.evaluation import Evaluation, side
from cabochon.recipes import PRECISIONS
from cabochon.recipes.recipe_file import written
from packages import MINIATURE, TINY, Packages

HELDOUT = MINIATURE / "heldout.txt"
TEXT = HELDOUT.read_text("utf-8")[:3000]
# transformers 5.24.0 in f32 on the first windows of 511 tokens
WINDOWS, KNOWN = 4, 9.6488


def evaluate(package: Path, text: str | Path = TEXT, **options: Any) -> Evaluation:
    return cabochon.evaluate(package, text, threads=1, provider="cpu", **options)


def test_the_known_perplexity_and_what_halves_cost(packages: Packages) -> None:
    told: list[tuple[int, int]] = []
    exact, half = packages("miniature"), packages("miniature", precision="f16")
    found = evaluate(half, HELDOUT, against=exact, limit=WINDOWS, progress=lambda *n: told.append(n))
    assert found.against is not None and found.divergence is not None
    assert found.against.perplexity == pytest.approx(KNOWN, abs=1e-4)
    assert found.package.perplexity == pytest.approx(KNOWN, abs=2e-3)
    assert told == [(n + 1, WINDOWS) for n in range(WINDOWS)]
    assert (found.scored, found.windows, found.bos) == (WINDOWS * 511, WINDOWS, True)
    assert found.scored + found.left_out == 56_039
    assert found.protocol == (
        "4 windows of 511 tokens behind <bos>, all scored: 2,044 tokens; "
        "the other 53,995 tokens of the text are left out"
    )
    assert (found.package.weights.bits, found.against.weights.bits) == (16, 32)
    apart = found.divergence
    assert 1e-7 < apart.mean < 1e-5 and 0.99 < apart.agreement <= 1
    assert apart.log_ratio == pytest.approx(found.package.loss - found.against.loss)
    assert abs(apart.log_ratio) < 4 * apart.log_ratio_error < 1e-3
    assert list(apart.percentiles.values()) == sorted(apart.percentiles.values())
    assert apart.percentiles["99.9"] <= apart.worst.divergence < 1e-3


def with_zero_points(folder: Path) -> Path:
    """Q4_K_M as a recipe's file, as it would be stored if `default` asked for zero points."""
    lines = ['name = "with-zero-points"']
    for rule in written(rule for rule in PRECISIONS["Q4_K_M"].rules if "router" not in rule.weights):
        keys = {"symmetric": False, **rule}
        lines += ["[[rules]]", *(f"{key} = {json.dumps(value)}" for key, value in keys.items())]
    (folder / "recipe.toml").write_text("\n".join(lines))
    return folder / "recipe.toml"


def products(package: Path) -> set[tuple[int, bool]]:
    """Bits, and whether there are zero points, of what is multiplied in blocks."""
    nodes = onnx.load(package / "model.onnx", load_external_data=False).graph.node
    found = [node for node in nodes if node.op_type == "MatMulNBits"]
    return {(next(a.i for a in node.attribute if a.name == "bits"), len(node.input) > 3) for node in found}


def test_zero_points_would_gain_nothing_on_default(packages: Packages, tmp_path: Path) -> None:
    """They take longer (docs/recipes.md). Where the miniature loses more without them, `Storage` has to say so."""
    without = packages("miniature", precision="Q4_K_M")
    source, recipe = MINIATURE / "target", with_zero_points(tmp_path)
    with_them = cabochon.build(source, tmp_path / "out", precision=recipe, license="apache-2.0").path
    assert products(without) == {(4, False), (8, False)}
    assert products(with_them) == {(4, True), (8, False)}
    found = evaluate(without, HELDOUT, against=with_them, limit=WINDOWS)
    assert found.against is not None and found.package.weights.nbytes < found.against.weights.nbytes
    assert found.package.loss < found.against.loss + 0.005  # measured: 0.0065 less


def log_p(packages: Packages, precision: str, ids: list[int]) -> np.ndarray:
    logits = packages.model("tiny", "default", precision).forward(ids).logits.astype(np.float64)
    return logits - np.log(np.exp(logits).sum(1, keepdims=True))


@pytest.mark.parametrize("logits", [2**24, 5000])
def test_figures_are_those_of_whole_logits_however_few_are_held(
    packages: Packages, monkeypatch: pytest.MonkeyPatch, logits: int
) -> None:
    monkeypatch.setattr(side, "LOGITS", logits)
    window = 90
    found = evaluate(packages(precision="f16"), against=packages(), window=window, limit=2)
    bos, *ids = packages.model("tiny").prompt_ids(TEXT)
    losses, apart, same = [], [], []
    for n in range(2):
        fed = [bos, *ids[n * window : (n + 1) * window]]
        q, p = (log_p(packages, precision, fed)[:-1] for precision in ("f16", "f32"))
        losses.append(-q[np.arange(window), fed[1:]])
        apart.append((np.exp(p) * (p - q)).sum(1))
        same.append(p.argmax(1) == q.argmax(1))
    divergence = np.concatenate(apart)
    assert found.package.loss == pytest.approx(np.mean(losses), abs=1e-4)
    assert found.divergence is not None
    assert found.divergence.mean == pytest.approx(divergence.mean(), rel=0.05)
    assert found.divergence.percentiles["50"] == pytest.approx(np.median(divergence), rel=0.05)
    assert found.divergence.agreement == pytest.approx(np.mean(same), abs=0.02)
    worst = found.divergence.worst
    assert worst.divergence == pytest.approx(divergence.max(), rel=0.05)
    at = (worst.window - 1) * window + worst.position - 1
    assert divergence[at] > 0.9 * divergence.max()
    assert worst.token == packages.model("tiny").tokens.decode([ids[at]])


@pytest.mark.parametrize(
    "how",
    [
        ("tiny", "onnx-standard", "f32"),
        ("tiny", "cuda", "f32"),
        ("tiny-pair", "default", "f32"),
    ],
)
def test_every_target_and_the_target_of_a_pair_predict_the_same(
    packages: Packages, how: tuple[str, str, str]
) -> None:
    found = evaluate(packages(*how), against=packages(), window=90)
    assert found.divergence is not None
    assert found.divergence.mean < 1e-6 and found.divergence.agreement > 0.99
    assert found.package.target == how[1]
    assert found.package.package == (packages(*how) / "target" if "pair" in how[0] else packages(*how))


def test_a_full_package_reads_text_alone(packages: Packages) -> None:
    model = packages.model("tiny-full")
    found = evaluate(packages("tiny-full"), window=40, limit=1)
    fed = model.prompt_ids(TEXT)[:41]
    logits = model.forward(fed).logits[:-1].astype(np.float64)
    losses = np.log(np.exp(logits).sum(1)) - logits[np.arange(40), fed[1:]]
    assert found.package.loss == pytest.approx(losses.mean(), abs=1e-5)
    assert found.package.perplexity == math.exp(found.package.loss)


def test_a_graph_that_gives_the_last_logits_alone_is_asked_token_by_token(
    packages: Packages, tmp_path: Path
) -> None:
    made = cabochon.build(TINY / "text", tmp_path / "p", precision="f32", license="mit", logits_to_keep=1)
    found = evaluate(made.path, against=packages(), window=30, limit=1)
    assert found.divergence is not None and found.divergence.mean < 1e-6


def test_a_text_that_fills_no_window_is_scored_as_it_is(packages: Packages) -> None:
    found = evaluate(packages(), "In the beginning")
    assert (found.windows, found.left_out) == (1, 0)
    assert (
        found.protocol == f"1 window of {found.scored} tokens behind <bos>, all scored: {found.scored} tokens"
    )


def test_control_tokens_in_a_text_are_letters(packages: Packages) -> None:
    found = evaluate(packages(), "<bos><eos>")
    assert found.scored > 2


# what is refused


def copied(packages: Packages, place: Path, edit: Callable[[dict[str, Any]], None]) -> Path:
    """The miniature with another tokenizer."""
    package = shutil.copytree(packages("miniature"), place / "copy", copy_function=shutil.copy)
    file = package / "tokenizer.json"
    said = json.loads(file.read_text("utf-8"))
    edit(said["model"])
    file.write_text(json.dumps(said), "utf-8")
    return package


def swapped(model: dict[str, Any]) -> None:
    vocabulary = model["vocab"]
    a, b = (next(token for token, its in vocabulary.items() if its == id) for id in (290, 291))
    vocabulary[a], vocabulary[b] = vocabulary[b], vocabulary[a]


def unmerged(model: dict[str, Any]) -> None:
    del model["merges"][-500:]


def unchanged(_: dict[str, Any]) -> None:
    """Other bytes, nothing else."""


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (swapped, r"token '.+' has id 29[01] and id 29[01]; expected one vocabulary"),
        (
            unmerged,
            r"the text becomes \d+ and \d+ tokens, which differ from number \d+ on; expected the same",
        ),
    ],
)
def test_other_tokenizers_are_refused(
    packages: Packages, tmp_path: Path, edit: Callable[[dict[str, Any]], None], said: str
) -> None:
    ours, theirs = packages("miniature"), copied(packages, tmp_path, edit)
    with pytest.raises(RequestError) as refused:
        evaluate(ours, against=theirs, limit=1)
    assert re.fullmatch(said, refused.value.message)
    assert refused.value.at == f"{ours}, {theirs}"
    assert refused.value.remedy == "compare packages of one model"


def test_a_tokenizer_may_be_laid_out_otherwise(packages: Packages, tmp_path: Path) -> None:
    found = evaluate(packages("miniature"), against=copied(packages, tmp_path, unchanged), window=30, limit=1)
    assert found.divergence is not None and found.divergence.mean == 0


def test_other_vocabularies_are_refused(packages: Packages) -> None:
    with pytest.raises(RequestError, match="logits of 512 and of 2048 ids; expected one vocabulary"):
        evaluate(packages(), against=packages("miniature"))


def test_a_drafter_is_refused_on_either_side(packages: Packages) -> None:
    said = "expected a pair, as a drafter generates nothing alone"
    with pytest.raises(PackageError, match=said):
        evaluate(packages("tiny-drafter"))
    with pytest.raises(PackageError, match=said):
        evaluate(packages(), against=packages("tiny-drafter"))


@pytest.mark.parametrize(
    ("options", "at", "said"),
    [
        ({"window": 0}, "window", "a window of 0 tokens, all windows; expected at least one of each"),
        ({"limit": 0}, "limit", "a window of 511 tokens, 0 windows; expected at least one of each"),
    ],
)
def test_no_windows_are_refused(packages: Packages, options: dict[str, int], at: str, said: str) -> None:
    with pytest.raises(RequestError) as refused:
        evaluate(packages(), **options)
    assert (refused.value.message, refused.value.at) == (said, at)


def test_windows_beyond_the_positions_are_refused(packages: Packages) -> None:
    text = TEXT * 8
    with pytest.raises(RequestError, match=r"windows of 4097 tokens; .* has 4096 positions") as refused:
        evaluate(packages("miniature"), text, window=4097, limit=1)
    assert refused.value.remedy == "ask for a window of at most 4096"


def test_a_package_without_a_tokenizer_is_refused(packages: Packages, tmp_path: Path) -> None:
    package = shutil.copytree(packages(), tmp_path / "p")
    (package / "tokenizer.json").unlink()
    with pytest.raises(
        PackageError, match=r"has no tokenizer.json; expected one, as a text is what is scored"
    ):
        evaluate(package)


def test_logits_that_are_no_numbers_are_refused_with_their_place(packages: Packages, tmp_path: Path) -> None:
    package = shutil.copytree(packages(), tmp_path / "p", copy_function=shutil.copy)
    graph = onnx.load(package / "model.onnx", load_external_data=False).graph
    norm = next(tensor for tensor in graph.initializer if tensor.name == "model.norm.weight")
    entries = {entry.key: entry.value for entry in norm.external_data}
    data = bytearray((package / "model.onnx.data").read_bytes())
    start = int(entries["offset"])
    data[start : start + 4] = np.float32(np.nan).tobytes()
    (package / "model.onnx.data").write_bytes(data)
    with pytest.raises(PackageError, match="of 512 logits are NaN or infinite; expected finite") as refused:
        evaluate(package, window=20, limit=2)
    assert refused.value.at == f"{package}: window 1, position 1"
    with pytest.raises(PackageError):
        evaluate(packages(), against=package, window=20, limit=1)
