"""The rule on media: encoders run, and the embedding puts what they give where the placeholders stand."""

from collections.abc import Iterator, Mapping

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
_ROWS, _COLUMNS, _FRAMES, _REDUCED = (
    2,
    3,
    16,
    4,
)  # a picture in tokens; frames of a clip, of which so many become one
_ID = 3  # a token beside the placeholders
Arrays = dict[str, np.ndarray]


@rule("BEH017", Severity.ERROR, _NEEDS)
def media_lost(package: Opened) -> Iterator[Found]:
    """What an encoder gives does not come to stand where its placeholders do.

    Causes: an encoder that does not run, that counts padding, or that takes one picture alone; an embedding that was
    built from a config with other ids, or that takes rows in another order.
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


def _tried(made: Bench, found: Assembled, name: str, port: str) -> Iterator[Found]:
    graph = found.graphs[name]
    try:
        feeds, rows = _inputs(found, name)
        features = made.runner(graph).run(feeds)[port]
        if len(features) != rows:
            yield Found(
                f"{graph.path}: outputs.{port}", f"{len(features)} rows of two inputs", f"{rows} rows"
            )
            return
        if what := _unplaced(made, found, name, port, features):
            at = f"{found.graphs['embedding'].path}: inputs.{port}"
            yield Found(at, what, f"the rows of {port}, in order, where {_PLACEHOLDERS[name]} stands")
    except UNDRIVEN as error:
        yield Found(getattr(error, "at", "") or graph.path, undriven(error), "a run on two small inputs")


def _inputs(found: Assembled, name: str) -> tuple[Arrays, int]:
    """Two pictures, one upright and one with padding, or two clips of different length; and the rows to expect."""
    rng = np.random.default_rng(SEED)
    if name == "audio_encoder":
        features = rng.standard_normal((2, _FRAMES, found.mels or 1)).astype(np.float32)
        real = np.arange(_FRAMES) < np.array([[_FRAMES], [_FRAMES // 2]])
        features *= real[..., None]
        return {"input_features": features, "input_features_mask": real}, (_FRAMES + _FRAMES // 2) // _REDUCED
    pooling = found.described(name).get("pooling_kernel_size")
    if not isinstance(pooling, int) or found.patch is None:
        raise PackageError("nothing says how patches are pooled", at="config.json: vision_config")
    shapes = [(_ROWS, _COLUMNS), (_COLUMNS, 1)]
    places = np.full((2, _ROWS * _COLUMNS * pooling**2, 2), -1, np.int64)
    for one, (height, width) in zip(places, shapes, strict=True):
        grid = np.mgrid[: height * pooling, : width * pooling][::-1].reshape(2, -1).T
        one[: len(grid)] = grid
    pixels = rng.random((*places.shape[:2], 3 * found.patch**2), np.float32)
    feeds = {"pixel_values": pixels, "pixel_position_ids": places}
    return feeds, sum(height * width for height, width in shapes)


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
