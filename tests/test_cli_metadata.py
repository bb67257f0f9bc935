"""cabochon metadata: help, conversion in words and as JSON, the schema, errors."""

import json
from pathlib import Path

import pytest

from packages import Packages
from test_cli import call, succeed


@pytest.mark.parametrize("command", ["convert", "schema"])
def test_help(command: str) -> None:
    text = succeed("metadata", command, "--help")
    assert f"cabochon metadata {command}" in text and "--dialect" in text
    assert text == succeed("metadata", command, "-h")


def test_the_commands_are_listed() -> None:
    text = succeed("metadata", "--help")
    assert " convert " in text and " schema " in text
    assert " metadata " in succeed("--help")


def test_convert(packages: Packages, tmp_path: Path) -> None:
    text = succeed(
        "metadata", "convert", packages("miniature"), "--dialect", "v1.8", "--out", tmp_path / "words"
    )
    assert text.splitlines()[0] == f"{tmp_path / 'words'}: v1.8"
    assert "- inference_metadata.annotated.yaml is left out" in text
    text = succeed(
        "metadata",
        "convert",
        packages("miniature"),
        "--dialect",
        "v1.8",
        "--out",
        tmp_path / "json",
        "--json",
    )
    found = json.loads(text)
    assert (found["path"], found["dialect"], found["copied"]) == (str(tmp_path / "json"), "v1.8", None)
    assert (tmp_path / "json" / "inference_metadata.yaml").read_text().startswith("schema_version: v1.8\n")


def test_schema() -> None:
    schema = json.loads(succeed("metadata", "schema", "--dialect", "v1.3"))
    assert (
        schema["title"] == "inference_metadata v1.3"
        and "rank" not in schema["$defs"]["TensorContract"]["properties"]
    )


def test_wrong_use(tmp_path: Path) -> None:
    assert call("metadata", "schema", "--dialect", "v2").returncode == 2
    done = call("metadata", "convert", tmp_path, "--dialect", "v1.8", "--out", tmp_path / "out", "--json")
    assert done.returncode == 1 and json.loads(done.stdout)["error"]["kind"] == "PackageError"
