"""The rule on media: encoders run, and the embedding puts what they give where the placeholders stand."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from cabochon.errors import PackageError
from cabochon.validation.assembled import MEDIA, Assembled, assembled
from cabochon.validation.execution.bench import Bench, bench
from cabochon.validation.execution.driven import SEED
from cabochon.validation.execution.runner import UNDRIVEN, undriven
from cabochon.validation.findings import Severity
from cabochon.validation.graph import Graph
from cabochon.validation.opened import Opened
from cabochon.validation.rules import Found, Skipped, rule

__all__: list[str] = []

_NEEDS = ("document", "graphs", "execute")
_PLACEHOLDERS = {"vision_encoder": "image_token_id", "audio_encoder": "audio_token_id"}
_ROWS, _COLUMNS, _FRAMES = 2, 3, 16  # a picture in tokens; frames of a clip
_ALIKE = 0.1  # relative: of rows that are the same but for the order of sums, in the coarsest type
_ID = 3  # a token beside the placeholders
Arrays = dict[str, np.ndarray]


@rule("BEH017", Severity.ERROR, _NEEDS)
def media_lost(package: Opened) -> Iterator[Found]:
    """What an encoder gives does not come to stand where its placeholders do.

    Causes: an encoder that does not run, that counts padding or looks at it, or that takes one picture alone; an
    embedding that was built from a config with other ids, or that takes rows in another order.
    Remedy: build the package again: encoders and embedding are made together.
    """
    found = assembled(package)
    if found is None:
        raise Skipped("there are no encoders")
    made = bench(package)
    if made.unfeedable:
        raise Skipped(made.unfeedable)
    for name, port in MEDIA.items():
        if name in found.graphs and "embedding" in found.graphs:
            yield from _tried(made, found, name, port)


@dataclass(frozen=True)
class _Two:
    """Two inputs of an encoder, the second of which is padded; it alone, without padding; the rows that each gives."""

    both: Arrays
    second: Arrays
    rows: tuple[int, int]


def _tried(made: Bench, found: Assembled, name: str, port: str) -> Iterator[Found]:
    graph = found.graphs[name]
    try:
        two = _pictures(found) if name == "vision_encoder" else _clips(found)
        features = made.runner(graph).run(two.both)[port]
        if len(features) != sum(two.rows):
            what = f"{len(features)} rows of two inputs"
            yield Found(f"{graph.path}: outputs.{port}", what, f"{sum(two.rows)} rows")
            return
        alone = made.runner(graph).run(two.second)[port]
        if (apart := _apart(features[two.rows[0] :], alone)) > _ALIKE:
            what = f"{apart:.2g} (relative) from the second of two inputs alone"
            yield Found(
                f"{graph.path}: outputs.{port}", what, "the same rows beside another and without padding"
            )
            return
        if what := _unplaced(made, found, name, port, features):
            at = f"{found.graphs['embedding'].path}: inputs.{port}"
            yield Found(at, what, f"the rows of {port}, in order, where {_PLACEHOLDERS[name]} stands")
    except UNDRIVEN as error:
        yield Found(getattr(error, "at", "") or graph.path, undriven(error), "a run on two small inputs")


def _apart(one: np.ndarray, other: np.ndarray) -> float:
    if one.shape != other.shape:
        return np.inf
    first, second = (rows.astype(np.float32) for rows in (one, other))
    return float(np.abs(first - second).max() / max(float(np.abs(second).max()), 1e-9))


def _pictures(found: Assembled) -> _Two:
    """A picture and a smaller one, upright."""
    if found.seeing is None or found.patch is None:
        raise PackageError("nothing says how patches are pooled", at="config.json: vision_config")
    pooling, rng = found.seeing.pooling_kernel_size, np.random.default_rng(SEED)
    shapes = [(_ROWS, _COLUMNS), (_COLUMNS, 1)]
    places = np.full((2, _ROWS * _COLUMNS * pooling**2, 2), -1, np.int64)
    for one, (height, width) in zip(places, shapes, strict=True):
        grid = np.mgrid[: height * pooling, : width * pooling][::-1].reshape(2, -1).T
        one[: len(grid)] = grid
    pixels = rng.random((*places.shape[:2], 3 * found.patch**2), np.float32)
    rows = (_ROWS * _COLUMNS, _COLUMNS)
    feeds = {"pixel_values": pixels, "pixel_position_ids": places}
    return _Two(feeds, {name: value[1:, : rows[1] * pooling**2] for name, value in feeds.items()}, rows)


def _clips(found: Assembled) -> _Two:
    """A clip and one of half its length."""
    if found.hearing is None or found.frame is None:
        raise PackageError("nothing says how frames become tokens", at="config.json: audio_config")
    half = _FRAMES // 2
    features = np.random.default_rng(SEED).standard_normal((2, _FRAMES, found.frame)).astype(np.float32)
    real = np.arange(_FRAMES) < np.array([[_FRAMES], [half]])
    feeds = {"input_features": features * real[..., None], "input_features_mask": real}
    rows = (_FRAMES // found.hearing.reduction, half // found.hearing.reduction)
    return _Two(feeds, {name: value[1:, :half] for name, value in feeds.items()}, rows)


def _unplaced(made: Bench, found: Assembled, name: str, port: str, features: np.ndarray) -> str:
    """How the embedding of two rows of a batch differs from what it should be; "" where it does not."""
    graph = found.graphs["embedding"]
    token = found.config.get(_PLACEHOLDERS[name])
    if not isinstance(token, int):
        return f"config.json has no {_PLACEHOLDERS[name]}"
    ids = np.full((2, len(features) + 1), _ID, np.int64)
    here = np.zeros(ids.shape, bool)
    half = len(features) // 2
    here[0, 1 : 1 + half] = here[1, : len(features) - half] = True
    ids[here] = token
    given = {"input_ids": ids, **_nothing(graph, port), port: features}
    embedded = made.runner(graph).run(given)["inputs_embeds"]
    plain = made.runner(graph).run({"input_ids": np.full_like(ids, _ID), **_nothing(graph, "")})[
        "inputs_embeds"
    ]
    wanted = plain.copy()
    wanted[here] = features
    wrong = np.argwhere((embedded != wanted).any(-1))
    return (
        ""
        if not len(wrong)
        else f"{len(wrong)} of {ids.size} places with other rows, first {wrong[0].tolist()}"
    )


def _nothing(graph: Graph, given: str) -> Mapping[str, np.ndarray]:
    """No rows of the other media."""
    return {
        name: np.zeros([d if isinstance(d, int) else 0 for d in port.shape], port.dtype)
        for name, port in graph.ports.inputs.items()
        if name not in ("input_ids", given)
    }
