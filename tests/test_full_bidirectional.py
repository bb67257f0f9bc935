"""The 31B kind in memory against the oracle: images that see each other on sliding layers, on every target.

Vision tokens attend both ways within their image, but within the window of 8; values from keys; no per-layer inputs.
"""

import itertools
from pathlib import Path

import numpy as np
import pytest

from full_graphs import ALL, ANYWHERE, LEFT_JUSTIFIED, Components, Truth, big, padded, picture
from graphs import difference

EXACT = 1e-4  # measured: 2e-6
TABLE = [(12, 9), (3, 21), (9, 9), (3, 3), (3, 27)]  # columns and rows of patches: 12, 7, 9, 1 and 9 tokens
COUNTS = [12, 7, 9, 1, 9]

Case = tuple[Components, Truth, np.ndarray]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return big(tmp_path_factory.mktemp("big"), seed=1)


@pytest.fixture(scope="module")
def truth(folder: Path) -> Truth:
    return Truth(folder)


@pytest.fixture(scope="module")
def rows(truth: Truth) -> np.ndarray:
    """Features of five images."""
    return truth.images(*padded([picture(truth, *size, seed) for seed, size in enumerate(TABLE)], 108))


@pytest.fixture(scope="module", params=ALL)
def model(request: pytest.FixtureRequest, folder: Path) -> Components:
    return Components(folder, request.param)


@pytest.fixture(scope="module", params=ANYWHERE)
def anywhere(request: pytest.FixtureRequest, folder: Path) -> Components:
    return Components(folder, request.param)


@pytest.fixture(scope="module", params=LEFT_JUSTIFIED)
def left_justified(request: pytest.FixtureRequest, folder: Path) -> Components:
    return Components(folder, request.param)


def prompt(*parts: int) -> np.ndarray:
    """Text of so many tokens, or for a negative number that image, between its two marks."""
    rng, ids = np.random.default_rng(len(parts)), [2]
    for part in parts:
        ids += rng.integers(24, 512, part).tolist() if part >= 0 else [7, *[8] * COUNTS[-part - 1], 9]
    return np.array(ids)


def features(rows: np.ndarray, *images: int) -> np.ndarray:
    """Those of some images, in order."""
    ends = np.cumsum(COUNTS)
    return np.concatenate([rows[ends[i - 1] - COUNTS[i - 1] : ends[i - 1]] for i in images] or [rows[:0]])


PROMPTS = {
    "text": ((20,), ()),
    "an image longer than the window": ((5, -1, 9), (1,)),
    "five images": ((2, -1, 3, -2, -3, 1, -4, -5, 12), (1, 2, 3, 4, 5)),
    "an image at the end": ((9, -3), (3,)),
}


@pytest.mark.parametrize("name", PROMPTS)
def test_one_pass(model: Components, truth: Truth, rows: np.ndarray, name: str) -> None:
    parts, images = PROMPTS[name]
    ids, its = prompt(*parts), features(rows, *images)
    expected = truth.logits(ids, its)
    found = model.forward(ids, its)
    assert difference(found["logits"][0], expected) < EXACT
    assert difference(model.forward(ids, its, keep=3)["logits"][0], expected[-3:]) < EXACT


def test_an_image_without_words_around_it(model: Components, truth: Truth, rows: np.ndarray) -> None:
    """No mark before it or behind it; and two images without a word between them are one block, as in transformers."""
    for ids, its in (
        ([8] * 12, features(rows, 1)),
        ([8] * 12 + [13] * 7, features(rows, 1, 2)),
        ([2, *[8] * 21, 3], features(rows, 1, 5)),
    ):
        assert difference(model.forward(ids, its)["logits"][0], truth.logits(ids, its)) < EXACT


def test_chunks_between_images_and_cached_steps_behind_them(
    model: Components, truth: Truth, rows: np.ndarray
) -> None:
    """Cuts anywhere but within an image; then text token by token."""
    ids, its = prompt(3, -1, 4, -2, 6), features(rows, 1, 2)
    first, second = np.flatnonzero(ids == 7) + 1
    cuts = [0, 2, first, first + 12, second - 2, second, second + 7, *range(second + 8, len(ids) + 1)]
    expected, past, logits = truth.logits(ids, its), None, []
    for start, end in itertools.pairwise(cuts):
        before, part = ids[:start], ids[start:end]
        used = (before == 8).sum()
        step = model.forward(part, its[used : used + (part == 8).sum()], past=past)
        past = model.past(step)
        logits.append(step["logits"][0])
    assert difference(np.concatenate(logits), expected) < EXACT


def test_a_cut_within_an_image_shows(model: Components, truth: Truth, rows: np.ndarray) -> None:
    """Why no image may be split: what comes later cannot be seen."""
    ids, its = prompt(3, -1, 4), features(rows, 1)
    first = model.forward(ids[:10], its[:5])
    rest = model.forward(ids[10:], its[5:], past=model.past(first))
    found = np.concatenate([first["logits"][0], rest["logits"][0]])
    assert difference(found, truth.logits(ids, its)) > 100 * EXACT


BATCH = [((4, -1, 3), (1,)), ((9,), ()), ((1, -2, 2, -4, 5), (2, 4)), ((30,), ()), ((-5, 2), (5,))]


def batch(rows: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray], int]:
    """Prompts of different lengths and images, their features, and the longest."""
    prompts = [prompt(*parts) for parts, _ in BATCH]
    return prompts, [features(rows, *images) for _, images in BATCH], max(map(len, prompts))


@pytest.mark.parametrize("filler", [0, 8], ids=["padding", "placeholders in padding"])
def test_ragged_rows_padded_in_front(
    anywhere: Components, truth: Truth, rows: np.ndarray, filler: int
) -> None:
    """Padding that reads like an image would need features of its own: it is given zeros, and changes nothing."""
    prompts, its, longest = batch(rows)
    ids = np.stack([np.pad(p, (longest - len(p), 0), constant_values=filler) for p in prompts])
    mask = np.stack([np.pad(np.ones_like(p), (longest - len(p), 0)) for p in prompts])
    given = [
        np.zeros((longest - len(p), rows.shape[1]), np.float32)[: longest if filler == 8 else 0]
        for p in prompts
    ]
    fed = np.concatenate([part for pair in zip(given, its, strict=True) for part in pair])
    found = anywhere.forward(ids, fed, mask=mask)["logits"]
    for row, (tokens, own) in enumerate(zip(prompts, its, strict=True)):
        assert difference(found[row, longest - len(tokens) :], truth.logits(tokens, own)) < EXACT


def test_ragged_rows_padded_behind(left_justified: Components, truth: Truth, rows: np.ndarray) -> None:
    """And the steps behind them: each row goes on behind its own last token."""
    model = left_justified
    prompts, its, longest = batch(rows)
    ids = np.stack([np.pad(p, (0, longest - len(p))) for p in prompts])
    mask = np.stack([np.pad(np.ones_like(p), (0, longest - len(p))) for p in prompts])
    first = model.forward(ids, np.concatenate(its), mask=mask)
    more = [list(p) for p in prompts]
    for row, (tokens, own) in enumerate(zip(prompts, its, strict=True)):
        assert difference(first["logits"][row, : len(tokens)], truth.logits(tokens, own)) < EXACT
    past = model.past(first)
    for step in range(3):
        new = np.array([[40 + 7 * step + row] for row in range(len(prompts))])
        lengths = np.array([len(m) for m in more]) + 1
        mask = (np.arange(longest + step + 1) < lengths[:, None]).astype(np.int64)
        out = model.forward(new, mask=mask, past=past)
        past = model.past(out)
        for row, own in enumerate(its):
            more[row].append(int(new[row, 0]))
            assert difference(out["logits"][row], truth.logits(more[row], own)[-1:]) < EXACT


@pytest.mark.parametrize("target", ["default", "onnx-standard"])
def test_half_precision_stays_close(folder: Path, truth: Truth, rows: np.ndarray, target: str) -> None:
    """Measured: 3e-3 of the largest logit."""
    parts, images = PROMPTS["five images"]
    ids, its = prompt(*parts), features(rows, *images)
    found = Components(folder, target, "f16").forward(ids, its.astype(np.float16))["logits"]
    assert found.dtype == np.float16
    assert difference(found[0], truth.logits(ids, its)) < 2e-2
