import json

import pytest

from cabochon.checkpoint import open_checkpoint
from cabochon.errors import PackageError, SourceError
from cabochon.package.side_files import require, travelling
from checkpoints import copy

ALL = {"tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja"}


def files(tmp_path, *absent):
    folder = copy(tmp_path / "source")
    for name in absent:
        (folder / name).unlink()
    return open_checkpoint(folder).files


def test_what_travels(tmp_path):
    found = files(tmp_path)
    assert set(travelling(found)) == ALL | {"config.json"}
    assert require(found, ()) == ()


@pytest.mark.parametrize(
    "absent, allowance, what",
    [
        ("tokenizer.json", "tokenizer", "tokenizer (tokenizer.json and tokenizer_config.json)"),
        ("tokenizer_config.json", "tokenizer", "tokenizer (tokenizer.json and tokenizer_config.json)"),
        ("generation_config.json", "generation_config", "generation_config.json"),
        ("chat_template.jinja", "chat_template", "chat template (chat_template.jinja, or in tokenizer_config.json)"),
    ],
)  # fmt: skip
def test_absence_is_an_error_unless_asked_for(tmp_path, absent, allowance, what):
    found = files(tmp_path, absent)
    with pytest.raises(PackageError) as caught:
        require(found, ())
    assert caught.value.message == f"the checkpoint has no {what}"
    assert caught.value.remedy.endswith(f"build with --allow-missing {allowance}")
    assert require(found, [allowance]) == (f"the package has no {what}",)


def test_all_that_is_absent_is_named_at_once(tmp_path):
    found = files(tmp_path, *ALL)
    with pytest.raises(PackageError, match=r"no tokenizer .*, no generation_config.json, no chat template"):
        require(found, ())
    with pytest.raises(PackageError, match=r"has no generation_config\.json\n"):
        require(found, ["tokenizer", "chat_template"])


def test_a_template_may_stand_in_tokenizer_config(tmp_path):
    folder = copy(tmp_path / "source")
    (folder / "chat_template.jinja").unlink()
    (folder / "tokenizer_config.json").write_text('{"chat_template": "{{ messages }}"}')
    assert require(open_checkpoint(folder).files, ()) == ()


def test_wrong_requests(tmp_path):
    with pytest.raises(
        PackageError, match="allow_missing names 'tokeniser'; expected one of tokenizer, gen"
    ) as caught:
        require(files(tmp_path), ["tokeniser"])
    assert caught.value.remedy == "correct the name, or leave --allow-missing out"


def test_of_named_templates_the_default_counts(tmp_path):
    folder = copy(tmp_path / "source")
    (folder / "chat_template.jinja").unlink()
    file = folder / "tokenizer_config.json"
    named = [{"name": "tools", "template": "{{"}, {"name": "default", "template": "{{ messages }}"}]
    file.write_text(json.dumps({"chat_template": named}))
    assert require(open_checkpoint(folder).files, ()) == ()
    for none in ([], ["x"], [{"name": "default"}], None, ""):
        file.write_text(json.dumps({"chat_template": none}))
        with pytest.raises(PackageError, match="has no chat template"):
            require(open_checkpoint(folder).files, ())


INSIDE = "tokenizer_config.json: chat_template"


@pytest.mark.parametrize(
    "name, content, at, message",
    [
        ("generation_config.json", b"", "", "is no JSON object: not JSON: Expecting value at line 1, column 1"),
        ("generation_config.json", b"[]", "", "is no JSON object: the top is a list"),
        ("tokenizer_config.json", b'{"a": "\xff"}', "", "is no JSON object: not UTF-8 text"),
        ("special_tokens_map.json", b"{", "", "is no JSON object: not JSON"),
        ("added_tokens.json", b"[" * 100_000, "", "is no JSON object: not usable JSON: nested too deeply"),
        ("tokenizer.json", b"", "", "is no tokenizer: "),
        ("tokenizer.json", b"{}", "", "is no tokenizer: "),
        ("chat_template.jinja", b"{% for m in messages %}", "", "is no template: Unexpected end of template"),
        ("chat_template.jinja", b"{{ messages | unheard }}", "", "is no template: No filter named 'unheard'"),
        ("chat_template.jinja", b"\xff", "", "is no template: 'utf-8' codec can't decode byte 0xff"),
        ("chat_template.jinja", b"{{ " + b"(" * 5000 + b")" * 5000 + b" }}", "", "is no template: maximum recursion"),
        ("tokenizer_config.json", b'{"chat_template": "{{"}', INSIDE, "is no template: "),
        ("tokenizer_config.json", b'{"chat_template": 5}', INSIDE, "is no template: "),
    ],
)  # fmt: skip
def test_what_no_runtime_could_read_is_refused(tmp_path, name, content, at, message):
    folder = copy(tmp_path / "source")
    if at:
        (folder / "chat_template.jinja").unlink()
    (folder / name).write_bytes(content)
    with pytest.raises(SourceError) as caught:
        require(open_checkpoint(folder).files, ("tokenizer", "generation_config", "chat_template"))
    assert caught.value.at == (at or name) and caught.value.message.startswith(message)
    assert caught.value.remedy == "download the file again, or take it from the base model"


@pytest.mark.parametrize(
    "key, value, message",
    [
        ("do_sample", 1, "is 1; expected true or false"),
        ("top_k", 64.0, "is 64.0; expected a whole number, 0 or more"),
        ("top_k", -1, "is -1; expected a whole number, 0 or more"),
        ("top_p", "0.9", "is '0.9'; expected a number from 0 to 1"),
        ("temperature", 10**400, "is 1000"),
        ("bos_token_id", [2], "is [2]; expected a whole number, 0 or more"),
        ("early_stopping", "sometimes", "is 'sometimes'; expected None or True or False or 'never'"),
    ],
)
def test_settings_that_are_of_another_type_are_refused(tmp_path, key, value, message):
    folder = copy(tmp_path / "source")
    (folder / "generation_config.json").write_text(json.dumps({key: value}))
    with pytest.raises(SourceError) as caught:
        require(open_checkpoint(folder).files, ())
    assert caught.value.at == f"generation_config.json: {key}" and caught.value.message.startswith(message)


def test_half_a_tokenizer_is_refused(tmp_path):
    folder = copy(tmp_path / "source")
    file = folder / "tokenizer.json"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(SourceError, match=r"tokenizer\.json: is no tokenizer: .*EOF while parsing"):
        require(open_checkpoint(folder).files, ())


@pytest.mark.parametrize(
    "text", ["{{ 'a' * 10**10 }}", "{% for i in [1] %}{% break %}{% endfor %}", "{{ 1 / 0 }}"]
)
def test_a_template_is_compiled_and_not_run(tmp_path, text):
    folder = copy(tmp_path / "source")
    (folder / "chat_template.jinja").write_text(text)
    assert require(open_checkpoint(folder).files, ()) == ()
