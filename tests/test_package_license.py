import pytest

from cabochon.errors import SourceError
from cabochon.package.license import License, find_license, front_matter

APACHE = (
    "                                 Apache License\n                           Version 2.0, January 2004\n"
)
SILENT = "the source's README.md does not name one licence"
UNREADABLE = "the front matter of the source's README.md cannot be read"
NO_CARD, NO_FILE = "the source has no README.md", "there is no licence file"
NOT_GIVEN = "and no --license was given"


def folder(tmp_path, **texts):
    files = {}
    for name, text in texts.items():
        path = tmp_path / name.replace("_", ".")
        path.write_text(text)
        files[path.name] = path
    return files


@pytest.mark.parametrize(
    "texts, asked, identifier, evidence",
    [
        ({"README_md": "---\nlicense: gemma\n---\n# x"}, None, "gemma", "the source's README.md: license: gemma"),
        ({"README_md": "---\nlicense: x\n---", "LICENSE": APACHE}, "mit", "x", "the source's README.md: license: x"),
        ({"LICENSE": APACHE}, "mit", "apache-2.0", "the source's LICENSE"),
        ({"LICENSE_txt": "Gemma Terms of Use\n..."}, None, "gemma", "the source's LICENSE.txt"),
        ({"LICENSE": "Do as you like."}, None, "other", "the source's LICENSE, which is none that is known here"),
        ({"README_md": "# no front matter"}, "mit", "mit", f"given as --license mit; {SILENT}, and {NO_FILE}"),
        ({"README_md": "---\nlicense: [a]\n---\n"}, "mit", "mit", f"given as --license mit; {SILENT}, and {NO_FILE}"),
        ({"README_md": "---\nlicense: {\n---\n"}, "mit", "mit", f"given as --license mit; {UNREADABLE}, and {NO_FILE}"),
        ({"README_md": "---\nlicense: {\n---\n", "LICENSE": APACHE}, "mit", "apache-2.0", "the source's LICENSE"),
        ({"README_md": "---\nlicense: {\n---\n"}, None, "unknown", f"{UNREADABLE}, {NO_FILE}, {NOT_GIVEN}"),
        ({"README_md": "---\n---\n"}, None, "unknown", f"{SILENT}, {NO_FILE}, {NOT_GIVEN}"),
        ({}, "mit", "mit", f"given as --license mit; {NO_CARD}, and {NO_FILE}"),
        ({}, None, "unknown", f"{NO_CARD}, {NO_FILE}, {NOT_GIVEN}"),
    ],
)  # fmt: skip
def test_who_says_it(tmp_path, texts, asked, identifier, evidence):
    found = find_license(folder(tmp_path, **texts), asked)
    assert (found.id, found.evidence) == (identifier, evidence)


def test_the_text_travels_even_if_the_card_names_it(tmp_path):
    files = folder(tmp_path, README_md="---\nlicense: apache-2.0\n---\n", LICENSE=APACHE)
    assert find_license(files) == License("apache-2.0", "the source's README.md: license: apache-2.0", APACHE)


@pytest.mark.parametrize("text", ["", "# title", "\xff", "---\n---\n", "---\n# nothing\n---\n"])
def test_a_card_may_have_no_front_matter(tmp_path, text):
    (tmp_path / "README.md").write_bytes(text.encode("latin-1"))
    assert front_matter(tmp_path / "README.md") == {}


@pytest.mark.parametrize(
    "text",
    [
        "---\nlicense: x",
        "---\n- a\n- b\n---\n",
        "---\na: 1\na: 2\n---\n",
        "---\n{: ]\n---\n",
        "---\nlicense: \x00\n---\n",
        "---\nlicense: 2020-13-45\n---\n",
        "---\nlicense: !!timestamp x\n---\n",
        "---\nlicense: !!int x\n---\n",
        "---\nlicense: " + "[" * 5000 + "\n---\n",
    ],
)
def test_front_matter_that_cannot_be_read_is_none(tmp_path, text):
    (tmp_path / "README.md").write_bytes(text.encode("latin-1"))
    assert front_matter(tmp_path / "README.md") is None


def test_front_matter_is_data_not_code(tmp_path):
    (tmp_path / "README.md").write_text("---\nlicense: !!python/object/apply:os.getcwd []\n---\n")
    assert front_matter(tmp_path / "README.md") is None


def test_a_license_of_a_gigabyte_is_none(tmp_path):
    with (tmp_path / "LICENSE").open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(SourceError, match="has 1073741824 bytes; expected a text"):
        find_license({"LICENSE": tmp_path / "LICENSE"})
