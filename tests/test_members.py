"""The table of the README on the members of the family: what is derived is so, what was measured is right."""

import math
import re

import pytest

from family import MEMBERS
from members.__main__ import EXACT, README, faults, line, parts, table, without_figures
from members.derived import rows
from members.measured import Measured


@pytest.fixture(scope="module")
def told() -> list[list[str]]:
    """The cells of the README's rows."""
    _, old, _ = parts(README.read_text("utf-8"))
    return [row.strip("|\n ").split(" | ") for row in table(old)]


def test_every_member_and_its_assistant_has_a_row_that_its_config_gives(told: list[list[str]]) -> None:
    """Kinds, parameters, sizes and known answers, by the plan of the published config."""
    assert [tuple(cell.strip() for cell in cells[:-1]) for cells in told] == [row.cells for row in rows()]
    names = [name for member in MEMBERS for name in (member.name, f"{member.name}, assistant")]
    assert [cells[0] for cells in told] == names


def test_every_graph_of_a_member_was_measured_and_is_right(told: list[list[str]]) -> None:
    for row, cells in zip(rows(), told, strict=True):
        found = dict(re.findall(r"(\w+) (\d+e-\d+)", cells[-1]))
        video = {"video"} & found.keys()  # the same graph as images
        assert found.keys() - video == (
            {"logits"} if row.drafts else {"logits", *row.member.media} - {"video"}
        )
        assert all(float(value) <= EXACT for value in found.values()), cells


def test_what_is_wrong_is_said() -> None:
    found = Measured({"logits": 2e-4, "image_features": 1e-7}, {"logits": math.nan}, ["answers [1]"], 1.0)
    assert [*faults(found)] == ["logits differ by 2.0e-04", "logits differ by nan", "answers [1]"]
    with pytest.raises(ValueError, match="members:start"):
        parts("# cabochon")


def test_only_measured_figures_may_differ() -> None:
    row = next(rows())
    one, other = (line(row, Measured({"logits": x, "image_features": x}, {}, [], 0.0)) for x in (2e-6, 3e-5))
    assert one != other and without_figures(one) == without_figures(other)
    assert "logits 2e-06, image 2e-06 |" in one and "5,104,298,467" in without_figures(one)
