"""What holds for every member of the family on every target: ports, one pass, steps, rows, evicted caches, kept
positions, and the drafter on the keys that the member leaves. In f32, against the NumPy oracle."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pytest

import checkpoints
from drafters import Drafter
from drafters import Truth as DrafterTruth
from family import MEMBERS, Member
from full_graphs import ALL, LEFT_JUSTIFIED, Arrays, Components, Truth, padded, picture
from graphs import difference

EXACT = 1e-4
WINDOW = 8
COLUMNS, ROWS = 4, 3  # soft tokens of the image: more than a window holds


@dataclass(frozen=True, eq=False)
class Subject:
    """A member's components for a target, and what the oracle says of one image in a row of words."""

    member: Member
    target: str
    whole: Components
    truth: Truth

    @cached_property
    def image(self) -> tuple[np.ndarray, np.ndarray]:
        vision = self.whole.config.vision
        assert vision
        return picture(self.truth, COLUMNS * vision.pooling_kernel_size, ROWS * vision.pooling_kernel_size)

    @cached_property
    def features(self) -> np.ndarray:
        """By the oracle, so that a fault of the encoder is one fault and not all of them."""
        pixels, places = self.image
        return self.truth.images(pixels[None], places[None])

    @cached_property
    def ids(self) -> np.ndarray:
        """Words, the image, words."""
        words = np.random.default_rng(7).integers(30, 500, 31)
        soft = np.full(len(self.features), self.truth.tokens["image"])
        return np.concatenate([words[:9], soft, words[9:]])

    @cached_property
    def logits(self) -> np.ndarray:
        return self.truth.logits(self.ids, self.features)

    @cached_property
    def seen(self) -> int:
        """Tokens up to the last of the image."""
        return 9 + len(self.features)

    def forward(self, ids: Any, images: np.ndarray | None = None, **how: Any) -> Arrays:
        return self.whole.forward(ids, images, **how)

    def past(self, outputs: Arrays, evict: int = 0) -> Any:
        layers = self.whole.text.layers
        return {
            i: tuple(each[:, :, evict if layers[i].window else 0 :] for each in pair)
            for i, pair in self.whole.past(outputs).items()
        }


@pytest.fixture(scope="module")
def truths() -> dict[str, Truth]:
    return {member.folder: Truth(checkpoints.TINY / member.folder) for member in MEMBERS}


@pytest.fixture(
    scope="module", params=[(m, t) for m in MEMBERS for t in ALL], ids=lambda p: f"{p[0].folder}-{p[1]}"
)
def subject(request: pytest.FixtureRequest, truths: dict[str, Truth]) -> Subject:
    member, target = request.param
    folder = checkpoints.TINY / member.folder
    return Subject(member, target, Components(folder, target), truths[member.folder])


def test_ports_are_those_of_the_geometry(subject: Subject) -> None:
    """Read off config.json by the oracle: owners, heads of keys, sizes of heads; and media that the member takes."""
    g, ports = subject.truth.geometry, {v.name: v.shape for v in subject.whole.model("decoder").graph.inputs}
    owners = g.first or g.L
    expected = {
        f"past_key_values.{i}.{part}": (g.kv[i], g.hd[i]) for i in range(owners) for part in ("key", "value")
    }
    found = {name: (shape[1], shape[3]) for name, shape in ports.items() if name.startswith("past")}
    assert found == expected
    extras = bool(g.c.get("hidden_size_per_layer_input"))
    assert ("per_layer_inputs" in ports, "input_ids" in ports) == (extras, subject.truth.bidirectional)
    features = [port for port in subject.whole.ports("embedding") if port.endswith("_features")]
    assert features == [f"{name}_features" for name in ("image", "audio") if name in subject.member.media]


def test_images_and_one_pass(subject: Subject) -> None:
    """Alone and padded; an image is seen both ways where the member does that."""
    pixels, places = padded([subject.image], len(subject.image[0]) + 9)
    assert difference(subject.whole.images(pixels, places), subject.features) < EXACT
    found = subject.forward(subject.ids, subject.features)
    assert difference(found["logits"][0], subject.logits) < EXACT


def test_steps_and_chunks_with_caches_evicted_to_the_window(subject: Subject) -> None:
    ids, start = subject.ids, subject.seen + 3
    found = subject.forward(ids[:start], subject.features)
    evicted = start - (WINDOW - 1)
    past, logits = subject.past(found, evicted), []
    for begin, end in (
        (start, start + 1),
        (start + 1, start + 2),
        (start + 2, start + 7),
        (start + 7, len(ids)),
    ):
        found = subject.forward(ids[begin:end], past=past, mask=np.ones(end))
        drop = end - evicted - (WINDOW - 1)
        past, evicted = subject.past(found, drop), evicted + drop
        logits.append(found["logits"][0])
    sliding = next(i for i in subject.whole.text.owners if subject.whole.text.layers[i].window)
    assert past[sliding][0].shape[2] == WINDOW - 1
    assert difference(np.concatenate(logits), subject.logits[start:]) < EXACT


@pytest.mark.parametrize("keep", [1, 4])
def test_kept_positions(subject: Subject, keep: int) -> None:
    found = subject.forward(subject.ids, subject.features, keep=keep)
    assert difference(found["logits"][0], subject.logits[-keep:]) < EXACT
    owner = subject.whole.text.owners[-1]
    assert found[f"present.{owner}.key"].shape[2] == len(subject.ids)


def test_rows_of_other_lengths(subject: Subject) -> None:
    """A row of words beside one with the image, padded in front, or behind where the target wants it so."""
    ids, words = subject.ids, subject.ids[subject.seen :]
    width, behind = len(ids), subject.target in LEFT_JUSTIFIED
    gap = width - len(words)
    where = slice(0, len(words)) if behind else slice(gap, width)
    rows, mask = np.zeros((2, width), np.int64), np.zeros((2, width), np.int64)
    rows[0, where], mask[0, where] = words, 1
    rows[1], mask[1] = ids, 1
    found = subject.forward(rows, subject.features, mask=mask)["logits"]
    assert difference(found[1], subject.logits) < EXACT
    assert difference(found[0, where], subject.truth.logits(words)) < EXACT


def test_the_drafter_on_the_keys_of_the_member(subject: Subject) -> None:
    """Those of its last layer of each kind that owns some, after a prompt with the image."""
    folder = checkpoints.TINY / subject.member.assistant
    text, kept = subject.whole.text, subject.forward(subject.ids, subject.features)
    last = {text.layers[i].kind: i for i in text.owners}
    shared = {kind: (kept[f"present.{i}.key"], kept[f"present.{i}.value"]) for kind, i in last.items()}
    hidden = kept[f"hidden_states.{len(text.layers) - 1}"][0, -1]
    embedded = subject.whole.embed([[int(subject.logits[-1].argmax())]])["inputs_embeds"][0, 0]
    inputs = np.concatenate([embedded, hidden])
    expected = DrafterTruth(folder).step(inputs, shared)
    found = Drafter(folder, subject.target).run(inputs[None, None], shared)
    for ours, theirs in zip(found, expected, strict=True):
        assert difference(ours[0, 0], theirs) < EXACT
