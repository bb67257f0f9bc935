"""Templates that misbehave end in an error of ours, soon and in little memory."""

import pytest

from cabochon.errors import PackageError, RequestError
from cabochon.runtime.sandbox import Template

LOOP = "{% for i in range(90000) %}{% for j in range(90000) %}{{ text }}{% endfor %}{% endfor %}"


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("{{ 1/0 }}", "ZeroDivisionError"),
        ("{{ 10.0**400 }}", "OverflowError"),
        ("{{ range(10**9) }}", "OverflowError"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
        ("{{ 'a' * 10**10 }}", "OverflowError: * gives more than"),
        ("{{ 10**10 * 'a' }}", "OverflowError: * gives more than"),
        ("{{ [1] * 10**10 }}", "OverflowError: * gives more than"),
        ("{{ 10**(10**10) }}", "OverflowError: ** gives more than"),
        (LOOP, "OverflowError: more than"),
        ("{{ text.nothing.at_all }}", "UndefinedError"),
        ("{{ ''.__class__.__mro__ }}", "SecurityError"),
    ],
)
def test_a_template_that_fails(source: str, error: str):
    with pytest.raises(RequestError) as caught:
        Template(source, at="chat_template.jinja").render({"text": "x" * 1000})
    assert str(caught.value).startswith(f"chat_template.jinja: the template fails on these messages: {error}")


@pytest.mark.parametrize("source", ["{% if %}", "{{ 'a", "{{ " + "(" * 5000 + " }}"])
def test_a_template_that_does_not_compile(source: str):
    with pytest.raises(PackageError, match=r"chat_template\.jinja: not a template"):
        Template(source, at="chat_template.jinja")


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ 'ab' * 3 }}", "ababab"),
        ("{{ 2 ** 10 * 3 }}", "3072"),
        ("{{ 2 ** -1 }}", "0.5"),
        ("{{ 1.5 * 2 }}", "3.0"),
    ],
)
def test_arithmetic_is_left_alone(source: str, text: str):
    assert Template(source, at="").render({}) == text
