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


@pytest.mark.parametrize("value", [True, "1", None, -0.5, 1.5, float("nan"), 10**400])
def test_only_a_number_within_its_bounds_is_one(value):
    with pytest.raises(ConfigError) as caught:
        section(share=value).number("share", minimum=0.0, maximum=1.0, why="a share")
    assert f"is {value!r:.100}; expected a number from 0 to 1: a share" in str(caught.value)


def test_a_number_may_have_to_be_above_its_bound():
    assert section(rate=0).number("rate", minimum=0.0, maximum=1.0) == 0.0
    assert section().number("rate", 5e-324, minimum=0.0, maximum=1.0, above=True) == 5e-324
    with pytest.raises(ConfigError, match="is 0; expected a number above 0 to 1"):
        section(rate=0).number("rate", minimum=0.0, maximum=1.0, above=True)


@pytest.mark.parametrize(
    "value", [0.5, [1.0], [1, 2, 3], [1, True], [1, "2"], [1, float("inf")], [1, 10**400]]
)
def test_only_so_many_finite_numbers_are_numbers(value):
    with pytest.raises(ConfigError, match="expected 2 numbers"):
        section(mean=value).numbers("mean", 2)


def test_numbers_may_be_absent():
    assert section(mean=None).numbers("mean", 2) is section().numbers("mean", 2) is None
    assert section(mean=[1, 2.5]).numbers("mean", 2) == (1.0, 2.5)


@pytest.mark.parametrize("value", [0, "relu", None, [False]])
def test_other_values_are_refused_with_the_reason(value):
    with pytest.raises(ConfigError) as caught:
        section(bias=value).refuse_other("bias", (False, "none"), "there is no bias")
    assert str(caught.value).startswith(
        f"config.json: text_config: bias: is {value!r}; expected False or 'none': there is no bias"
    )


def test_allowed_values_and_absent_ones_are_not_refused():
    section(bias=False, cap=None).refuse_other("bias", (False,), "")
    section(cap=None).refuse_other("cap", (None,), "")
    section().refuse_other("bias", (False,), "")


def test_null_may_mean_what_absent_means():
    lenient = Section({"size": None, "inner": {"on": None}}, "file.json", null_is_absent=True)
    assert lenient.integer("size", 3) == 3
    assert lenient.section("inner").flag("on", True) is True
    lenient.refuse_other("size", (3,), "")
    with pytest.raises(ConfigError, match="size: is missing"):
        lenient.integer("size")
