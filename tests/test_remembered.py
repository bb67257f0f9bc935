"""What tests remember is what would be worked out."""

from dataclasses import replace
from pathlib import Path

import pytest

import remembered
from broken import CANONICAL, How, copied, edit_document, edit_graph, edit_weight, groups, remove, resum
from cabochon.validation import Verdict, validate
from packages import Packages

CHANGES: dict[str, How] = {
    "nothing": lambda package: None,
    "a weight": edit_weight("model.norm.weight", lambda data: data.reverse()),
    "a graph": edit_graph(lambda proto: proto.graph.node.pop()),
    "a document": edit_document(lambda document: groups(document).popitem()),
    "no document": remove(CANONICAL),
}


def judged(package: Path) -> Verdict:
    return replace(validate(package), seconds=0.0)


@pytest.mark.parametrize("change", CHANGES)
def test_a_verdict_is_that_of_who_remembers_nothing(
    packages: Packages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    validate(packages())
    package = copied(packages(), tmp_path / "p")
    CHANGES[change](package)
    resum(package)
    found = judged(package)
    assert judged(package) == found
    with monkeypatch.context() as patch:
        remembered.forget(patch)
        assert judged(package) == found
    assert bool(found.findings) is (change not in ("nothing", "a weight")), found.findings
