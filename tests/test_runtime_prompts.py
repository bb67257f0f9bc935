"""Prompts of every kind become ids."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cabochon.errors import PackageError, RequestError
from cabochon.runtime import Model
from cabochon.runtime.folder import open_folder
from cabochon.runtime.prompts import Prompts, is_batch
from packages import Packages

CHAT = [{"role": "user", "content": "Hello"}]


@pytest.mark.parametrize(
    ("prompt", "batch"),
    [
        ("text", False),
        ([2, 3], False),
        (CHAT, False),
        ([], False),
        (np.array([2, 3]), False),
        (["text"], True),
        ([[2, 3], [4]], True),
        ([CHAT, CHAT], True),
        ([np.array([2])], True),
    ],
)
def test_a_list_of_prompts_is_a_batch(prompt: Any, batch: bool):
    assert is_batch(prompt) is batch


def test_text_gets_one_bos_and_its_control_tokens_only_when_they_are_meant(model: Model):
    plain = model.prompt_ids("Hello")
    assert plain[0] == 2 and plain.count(2) == 1
    assert model.prompt_ids("<bos>Hello", parse_special=True) == plain
    typed = model.prompt_ids("<bos>Hello<turn|>")
    assert (typed.count(2), typed.count(6)) == (1, 0)


def test_messages_go_through_the_template(model: Model):
    ids = model.prompt_ids(CHAT)
    assert ids[:2] == [2, 5] and ids.count(2) == 1
    assert ids == model.prompt_ids("<|turn>user\nHello<turn|>\n<|turn>model\n", parse_special=True)


def test_ids_are_taken_as_they_are(model: Model):
    assert model.prompt_ids([7, 2, 2, 8]) == model.prompt_ids(np.array([7, 2, 2, 8])) == [7, 2, 2, 8]


def test_a_bos_outside_the_vocabulary_is_named(packages: Packages, tmp_path: Path):
    folder = shutil.copytree(packages(), tmp_path / "p")
    (folder / "config.json").write_text('{"bos_token_id": 512}')
    with pytest.raises(PackageError, match=r"config\.json: bos_token_id: 512; expected a token id below 512"):
        Prompts(open_folder(folder), vocabulary=512)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([2, 512], "prompt[1]: 512; expected a token id from 0 to 511\n  -> take the ids of this package"),
        ([2, -1], "prompt[1]: -1; expected a token id"),
        ([2, 1.5], "prompt[1]: 1.5; expected a token id"),
        ([2, "x"], "prompt[1]: 'x'; expected a token id"),
        (np.zeros((1, 2), int), "prompt[0]: [0, 0]; expected a token id"),
        (5, "prompt: 5; expected text, messages or token ids"),
        (None, "prompt: None; expected text"),
        ([2, True], "prompt[1]: True; expected a token id"),
        (b"abc", "prompt: b'abc'; expected text, messages or token ids"),
        ("a\udcff", "prompt: '\\udcff' at character 1; expected Unicode text"),
        ([{"role": "user", "content": "\ud83d"}], "prompt: '\\ud83d' at character 5; expected Unicode text"),
    ],
)
def test_what_is_no_prompt_is_refused(model: Model, prompt: Any, message: str):
    with pytest.raises(RequestError) as caught:
        model.prompt_ids(prompt)
    assert message in str(caught.value)
