"""The files of a package that a runtime reads."""

import json
from pathlib import Path

import pytest

from cabochon.errors import PackageError
from cabochon.runtime.folder import open_folder


def folder(path: Path, **files: object):
    (path / "model.onnx").touch()
    for name, content in files.items():
        (path / f"{name}.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return open_folder(path)


@pytest.mark.parametrize(
    ("files", "ids"),
    [
        ({"generation_config": {"eos_token_id": [1, 6]}, "config": {"eos_token_id": 1}}, {1, 6}),
        ({"generation_config": {"eos_token_id": 6}, "config": {"text_config": {"eos_token_id": 1}}}, {1, 6}),
        ({"config": {"eos_token_id": [3], "text_config": {"eos_token_id": 1}}}, {1, 3}),
        ({"generation_config": {"eos_token_id": None}}, set()),
        ({}, set()),
    ],
)
def test_eos_is_the_union(tmp_path: Path, files: dict[str, object], ids: set[int]):
    assert folder(tmp_path, **files).eos_token_ids == ids


def test_text_config_in_both_spellings(tmp_path: Path):
    assert folder(tmp_path, config={"hidden_size": 8}).text_config == {"hidden_size": 8}
    assert folder(tmp_path, config={"text_config": {"hidden_size": 9}}).text_config == {"hidden_size": 9}


def test_what_is_not_followed_is_said(tmp_path: Path):
    read = folder(
        tmp_path, generation_config={"num_beams": 4, "top_k": 3, "pad_token_id": 0, "penalty_alpha": None}
    )
    assert read.remarks == ("generation_config.json: num_beams = 4 is not followed",)


def test_the_template_file_goes_before_the_tokenizers(tmp_path: Path):
    both = {"chat_template": [{"name": "rag", "template": "no"}, {"name": "default", "template": "inner"}]}
    assert folder(tmp_path, tokenizer_config=both).template == "inner"
    assert folder(tmp_path, tokenizer_config={"chat_template": "plain"}).template == "plain"
    (tmp_path / "chat_template.jinja").write_text("outer")
    assert open_folder(tmp_path).template == "outer"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"config": "{"}, "config.json: not JSON"),
        ({"config": "[" * 100_000}, "config.json: not JSON"),
        ({"generation_config": "[]"}, "generation_config.json: a list; expected an object"),
        ({"generation_config": {"temperature": "hot"}}, "generation_config.json: temperature: 'hot'; expected"),
        ({"generation_config": {"max_new_tokens": "5"}}, "generation_config.json: max_new_tokens: '5'; expected"),
        ({"generation_config": {"eos_token_id": [[1]]}}, "generation_config.json: eos_token_id: [[1]]; expected"),
        ({"config": {"text_config": 5}}, "config.json: text_config: 5; expected an object"),
        ({"config": {"num_attention_heads": "x"}}, "config.json: num_attention_heads: 'x'; expected a whole number"),
        ({"config": {"text_config": {"bos_token_id": -3}}}, "config.json: text_config: bos_token_id: -3; expected"),
        ({"tokenizer_config": {"chat_template": 5}}, "tokenizer_config.json: chat_template: 5; expected a template"),
        ({"tokenizer_config": {"chat_template": ["x"]}}, "tokenizer_config.json: chat_template: ['x']"),
        ({"tokenizer_config": {"chat_template": [{"name": "default"}]}}, "tokenizer_config.json: chat_template: [{"),
        ({"tokenizer_config": {"model_specific_special_tokens": [1]}}, "model_specific_special_tokens: [1]; expected"),
    ],
)  # fmt: skip
def test_broken_files_are_named(tmp_path: Path, files: dict[str, object], message: str):
    with pytest.raises(PackageError) as caught:
        folder(tmp_path, **files)
    assert message in str(caught.value)


def test_a_template_is_text(tmp_path: Path):
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(PackageError, match=r"chat_template\.jinja: not UTF-8 text"):
        folder(tmp_path)


def test_numbers_are_read_as_such_and_null_is_absent(tmp_path: Path):
    read = folder(tmp_path, generation_config={"top_k": 50.0, "seed": 3, "min_p": None})
    assert (read.generation["top_k"], type(read.generation["top_k"]), read.remarks) == (50, int, ())


def test_no_package(tmp_path: Path):
    with pytest.raises(PackageError, match=r"holds no model\.onnx"):
        open_folder(tmp_path)
    with pytest.raises(PackageError, match="is not a folder"):
        open_folder(tmp_path / "absent")
