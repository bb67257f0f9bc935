import pytest

from cabochon.checkpoint import open_checkpoint
from cabochon.errors import PackageError
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
    with pytest.raises(PackageError, match="allow_missing names 'tokeniser'; expected one of tokenizer, gen"):
        require(files(tmp_path), ["tokeniser"])
    folder = copy(tmp_path / "other")
    (folder / "chat_template.jinja").unlink()
    for text in ("{", "[]"):
        (folder / "tokenizer_config.json").write_text(text)
        with pytest.raises(PackageError, match="is not a JSON object"):
            require(open_checkpoint(folder).files, ())
