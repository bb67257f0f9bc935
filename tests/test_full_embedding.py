"""The embedding for any batch, any places of media and any counts of features: properties, on every target."""

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from full_graphs import ALL, TARGET, Components, Truth
from graphs import difference

EXACT = 1e-4  # measured: 4e-7
IMAGE, VIDEO, AUDIO, HIDDEN = 8, 13, 11, 64


@cache
def components(target: str, precision: str = "f32") -> Components:
    return Components(TARGET, target, precision)


@cache
def truth() -> Truth:
    return Truth(TARGET)


TOKEN = st.one_of(st.integers(0, 511), st.sampled_from([IMAGE, VIDEO, AUDIO]), st.just(IMAGE))


@st.composite
def batches(draw: st.DrawFn) -> np.ndarray:
    """ids [batch, tokens]; about half of them are placeholders."""
    shape = draw(st.tuples(st.integers(1, 4), st.integers(1, 12)))
    ids = draw(st.lists(TOKEN, min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]))
    return np.array(ids).reshape(shape)


def counts(ids: np.ndarray) -> tuple[int, int]:
    return int(np.isin(ids, [IMAGE, VIDEO]).sum()), int((ids == AUDIO).sum())


def features(ids: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """As many rows as there are placeholders, no two alike."""
    rng = np.random.default_rng(seed)
    images, sounds = (rng.standard_normal((n, HIDDEN), np.float32) for n in counts(ids))
    return images, sounds


@pytest.mark.parametrize("target", ALL)
@settings(max_examples=40, deadline=None)
@given(ids=batches(), seed=st.integers(0, 9))
def test_rows_are_what_they_are_alone(target: str, ids: np.ndarray, seed: int) -> None:
    """Row by row the oracle's, with the features that come next: no row gets those of another."""
    images, sounds = features(ids, seed)
    found = components(target).embed(ids, images, sounds)
    for row, tokens in enumerate(ids):
        (vision, audio), (before, heard) = counts(tokens), counts(ids[:row])
        its = images[before : before + vision], sounds[heard : heard + audio]
        x, extras = truth().embed(tokens, *its)
        assert extras is not None
        assert difference(found["inputs_embeds"][row], x) < EXACT
        assert difference(found["per_layer_inputs"][row], extras.reshape(len(x), -1)) < EXACT
        assert np.array_equal(found["inputs_embeds"][row, np.isin(tokens, [IMAGE, VIDEO])], its[0])
        assert np.array_equal(found["inputs_embeds"][row, tokens == AUDIO], its[1])


@pytest.mark.parametrize("target", ALL)
@settings(max_examples=25, deadline=None)
@given(ids=batches(), data=st.data())
def test_too_few_features_are_an_error(target: str, ids: np.ndarray, data: Any) -> None:
    """Never silence: where a medium has some features and a placeholder has none, the run stops."""
    images, sounds = features(ids, 0)
    several = [number for number, rows in enumerate((images, sounds)) if len(rows) > 1]
    if not several:
        return
    fewer, cut = [images, sounds], data.draw(st.sampled_from(several))
    fewer[cut] = fewer[cut][: data.draw(st.integers(1, len(fewer[cut]) - 1))]
    with pytest.raises(Exception, match=r"(?i)out of.* bounds|out of range|indices element"):
        components(target).embed(ids, *fewer)


@pytest.mark.parametrize("target", ALL)
def test_placeholders_without_any_features_are_padding(target: str) -> None:
    """As in transformers: a decoder may propose the token of an image, and then there is none."""
    nothing = np.zeros((0, HIDDEN), np.float32)
    proposed, padded = (
        components(target).embed(np.array([[5, token, 7]]), nothing, nothing) for token in (IMAGE, 0)
    )
    assert all(np.array_equal(proposed[name], padded[name]) for name in padded)


@pytest.mark.parametrize("target", ALL)
@settings(max_examples=15, deadline=None)
@given(ids=batches(), more=st.integers(1, 5))
def test_features_behind_the_last_place_change_nothing(target: str, ids: np.ndarray, more: int) -> None:
    """The graph does not look at them; the runtime counts, and refuses them (tests/test_runtime_full.py)."""
    images, sounds = features(ids, 1)
    rest = np.full((more, HIDDEN), np.nan, np.float32)
    exact, found = (
        components(target).embed(ids, np.concatenate([images, tail]), np.concatenate([sounds, tail]))
        for tail in (rest[:0], rest)
    )
    assert all(np.array_equal(exact[name], found[name]) for name in exact)


@pytest.mark.parametrize("target", ["default", "onnx-standard"])
@settings(max_examples=15, deadline=None)
@given(ids=batches(), seed=st.integers(0, 9))
def test_half_precision_stays_close(target: str, ids: np.ndarray, seed: int) -> None:
    """Measured: 6e-4 of the largest per-layer input; embeddings times 8 are exact."""
    images, sounds = (rows.astype(np.float16) for rows in features(ids, seed))
    found = components(target, "f16").embed(ids, images, sounds)
    exact = components(target).embed(ids, images.astype(np.float32), sounds.astype(np.float32))
    assert found["inputs_embeds"].dtype == found["per_layer_inputs"].dtype == np.float16
    assert difference(found["inputs_embeds"], exact["inputs_embeds"]) < 1e-3
    assert difference(found["per_layer_inputs"], exact["per_layer_inputs"]) < 2e-3
