"""The run of mistakes (`make mutations`): its table and its list in the docs, and one mistake of each component."""

import re
from pathlib import Path

import pytest

from mutations.comparisons import Comparisons
from mutations.running import LIMIT, changed, shown
from mutations.table import MUTATIONS

DOCS = Path(__file__).parents[1] / "docs" / "mutations.md"
COMPONENTS = (
    "vision_encoder", "audio_encoder", "embedding", "decoder", "experts", "vision_embedder", "audio_embedder"
)  # fmt: skip


@pytest.fixture(scope="module")
def comparisons(tmp_path_factory: pytest.TempPathFactory) -> Comparisons:
    return Comparisons(tmp_path_factory.mktemp("mutations"), "default")


def test_every_mistake_changes_a_line_of_the_formulas() -> None:
    """A formula that was put otherwise would leave its mistakes behind."""
    for mutation in MUTATIONS:
        assert all(right != wrong for _, right, wrong in mutation.changes)
        for change in mutation.changes:
            compile(changed(change), mutation.what, "exec")


def test_mistakes_have_names_of_their_own() -> None:
    names = [(m.component, m.what) for m in MUTATIONS]
    assert len(set(names)) == len(names)
    assert {m.component for m in MUTATIONS} == set(COMPONENTS)


def test_a_line_that_is_not_there_is_an_error() -> None:
    with pytest.raises(LookupError, match=r"cabochon\.gemma4\.vision says 0 times: no such line"):
        changed(("gemma4.vision", "no such line", ""))


@pytest.mark.parametrize("component", COMPONENTS)
def test_right_formulas_are_right_and_a_mistake_shows(comparisons: Comparisons, component: str) -> None:
    """The formula is as it was afterwards."""
    mistake = next(m for m in MUTATIONS if m.component == component)
    assert max(far for _, far in comparisons.of(component)) < LIMIT / 10
    assert shown(comparisons, mistake)[1] > LIMIT
    assert max(far for _, far in comparisons.of(component)) < LIMIT / 10


def test_the_docs_list_every_mistake_as_seen() -> None:
    """docs/mutations.md is written by `make mutations ARGS=--write`."""
    rows = re.findall(r"^\| (\w+) \| (.+) \| (.+) \| (\S+) \|$", DOCS.read_text(), re.M)
    listed = {(component, what): float(far) for component, what, _, far in rows if component in COMPONENTS}
    assert set(listed) == {(m.component, m.what) for m in MUTATIONS}, "run `make mutations ARGS=--write`"
    assert min(listed.values()) > LIMIT
