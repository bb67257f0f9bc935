import pytest

from cabochon.errors import ConfigError
from cabochon.section import Section


def section(**values):
    return Section(values, "config.json: text_config")


@pytest.mark.parametrize("value", [True, "512", 512.0, None, 0, -1, [512], 2**31])
def test_only_a_whole_number_is_an_integer(value):
    with pytest.raises(ConfigError) as caught:
        section(size=value).integer("size")
    assert caught.value.at == "config.json: text_config: size"
    assert f"is {value!r}; expected a whole number, 1 or more, 2147483647 at most" in str(caught.value)


@pytest.mark.parametrize(
    "value", [True, "1e-6", None, 0, -1.0, float("inf"), float("nan"), 1e39, 1e-39, 10**400]
)
def test_only_a_number_above_0_is_positive(value):
    with pytest.raises(ConfigError, match="expected a number above 0"):
        section(eps=value).positive("eps")


@pytest.mark.parametrize("value", [0, 1, "true", None])
def test_only_true_and_false_are_flags(value):
    with pytest.raises(ConfigError, match="expected true or false"):
        section(on=value).flag("on", False)


@pytest.mark.parametrize("value", [None, [], "x", 1])
def test_only_an_object_is_a_section(value):
    with pytest.raises(ConfigError, match="expected an object"):
        section(inner=value).section("inner")


def test_right_values_come_back_unchanged():
    values = section(size=512, eps=1, on=True, none=None, zero=0, inner={"a": 3})
    assert values.integer("size") == 512
    assert values.positive("eps") == 1.0
    assert values.flag("on", False) is True
    assert values.flag("absent", False) is False
    assert values.integer("absent", 7) == 7
    assert (
        values.optional_integer("none")
        is values.optional_integer("zero")
        is values.optional_integer("absent")
        is None
    )
    assert values.optional_integer("size") == 512
    inner = values.section("inner")
    assert (inner.integer("a"), inner.at) == (3, "config.json: text_config: inner")


def test_a_missing_key_is_named():
    with pytest.raises(ConfigError, match="hidden_size: is missing"):
        section().integer("hidden_size")


@pytest.mark.parametrize("value", [False, "0", 1.5, -1])
def test_an_optional_integer_is_still_typed(value):
    with pytest.raises(ConfigError, match="expected a whole number"):
        section(size=value).optional_integer("size")


def test_unknown_keys_are_named_all_at_once_with_what_they_may_have_meant():
    with pytest.raises(ConfigError) as caught:
        section(hiden_size=1, foo=2, head_dim=3).refuse_unknown(["hidden_size", "head_dim"])
    message = str(caught.value)
    assert (
        "unknown keys 'hiden_size' (did you mean 'hidden_size'?), 'foo'; known keys: head_dim, hidden_size"
        in message
    )
    assert caught.value.at == "config.json: text_config"
