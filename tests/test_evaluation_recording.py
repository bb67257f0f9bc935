"""An evaluation kept with its package: evidence, the model card, checksums; and the command that does it."""

import json
import shutil
from pathlib import Path

import pytest

import cabochon
from cabochon import sums
from cabochon.evaluation import Evaluation, record
from cabochon.evaluation.recording import section
from packages import Packages
from test_cli import call, succeed

TEXT = "In the beginning God created the heaven and the earth. " * 9


def measured(package: Path, against: Path | None = None, text: str | Path = TEXT) -> Evaluation:
    return cabochon.evaluate(package, text, against=against, window=40, threads=1, provider="cpu")


@pytest.fixture
def package(packages: Packages, tmp_path: Path) -> Path:
    return shutil.copytree(packages(precision="f16"), tmp_path / "half", copy_function=shutil.copy)


def passes(package: Path) -> bool:
    verdict = cabochon.validate(package)
    assert not verdict.findings, verdict.findings
    return verdict.passed and not sums.verify(package)


def test_figures_are_kept_and_the_package_stays_valid(packages: Packages, package: Path) -> None:
    before = (package / "README.md").read_text("utf-8")
    found = measured(package, packages())
    assert record(found) == "evidence/evaluation.json"
    kept = json.loads((package / "evidence" / "evaluation.json").read_text("utf-8"))
    assert (kept["target"], kept["precision"]) == ("default", "f16")
    assert kept["sha256"] == {n: sums.read(package)[n] for n in ("model.onnx", "model.onnx.data")}
    assert kept["against"]["name"] == "tiny-default-f32"
    assert kept["against"]["sha256"]["model.onnx"] == sums.read(packages())["model.onnx"]
    assert kept["package"]["perplexity"] == found.package.perplexity
    assert found.divergence is not None
    assert kept["divergence"] == json.loads(json.dumps(found.divergence.as_json()))
    assert str(package) not in json.dumps(kept)
    card = (package / "README.md").read_text("utf-8")
    head, rest = card.split("## Quality\n")
    table, evidence = rest.split("## Evidence\n")
    assert f"{head}## Evidence\n{evidence}" == before
    assert f"| Perplexity | {found.package.perplexity:.4f} | {found.against.perplexity:.4f} |" in table  # pyright: ignore
    assert passes(package)


def test_what_is_measured_again_takes_the_place_of_what_was(packages: Packages, package: Path) -> None:
    record(measured(package, packages()))
    last = measured(package)
    record(last)
    card = (package / "README.md").read_text("utf-8")
    assert card.count("## Quality") == 1 and section(last) in card and "KL divergence" not in card
    assert "against" not in json.loads((package / "evidence" / "evaluation.json").read_text("utf-8"))
    assert passes(package)


def test_evidence_of_other_weights_is_found_out(packages: Packages, package: Path) -> None:
    record(measured(package))
    other = shutil.copytree(packages(), package.parent / "other", copy_function=shutil.copy)
    shutil.copy(package / "evidence" / "evaluation.json", other / "evidence")
    sums.note(other, "evidence/evaluation.json")
    assert "HON018" in {finding.code for finding in cabochon.validate(other, quick=True).findings}


def test_a_package_without_a_card_keeps_evidence_alone(package: Path) -> None:
    (package / "README.md").unlink()
    record(measured(package))
    assert (package / "evidence" / "evaluation.json").is_file() and not (package / "README.md").exists()


def test_a_card_without_a_section_on_evidence_gets_it_at_its_end(package: Path) -> None:
    (package / "README.md").write_text("# A card\n\nMine.\n", "utf-8")
    found = measured(package)
    record(found)
    record(found)
    assert (package / "README.md").read_text("utf-8") == f"# A card\n\nMine.\n\n{section(found).rstrip()}\n"


def test_the_target_of_a_pair_keeps_its_own(packages: Packages, tmp_path: Path) -> None:
    pair = shutil.copytree(packages("tiny-pair"), tmp_path / "pair", copy_function=shutil.copy)
    record(measured(pair))
    assert (pair / "target" / "evidence" / "evaluation.json").is_file()
    assert passes(pair)


def test_the_command(packages: Packages, package: Path, tmp_path: Path) -> None:
    file = tmp_path / "words|.txt"
    file.write_text(TEXT, "utf-8")
    asked = ("eval", package, "--text", file, "--against", packages(), "--window", "40", "--threads", "1")
    found = json.loads(succeed(*asked, "--json", "--record"))
    expected = measured(package, packages(), file)
    assert found == json.loads(json.dumps(expected.as_json()))
    assert found["package"]["package"] == str(package) and found["text"]["name"] == "words|.txt"
    assert passes(package)
    text = succeed(*asked)
    assert text.startswith(f"words|.txt: {expected.protocol}\n")
    assert f"{expected.package.perplexity:.4f}" in text and "same likeliest token: " in text
    assert "± " in text and "most: " in text
    assert "bits a weight" in text and "16.00" in text and "32.00" in text
    assert "evaluation.json" not in text and "evaluation.json" in succeed(*asked, "--record")


def test_the_command_says_what_is_wrong(package: Path, tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("")
    done = call("eval", package, "--text", tmp_path / "t.txt")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"cabochon: {tmp_path / 't.txt'}: empty; expected a text\n  -> " in done.stderr
    assert call("eval", package).returncode == 2
    assert call("eval", package, "--text", tmp_path / "t.txt", "--window", "0").returncode == 2
