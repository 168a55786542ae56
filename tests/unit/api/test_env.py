"""The environment contract."""

import pytest
from grpo_api import env
from hypothesis import given
from hypothesis import strategies as st


@given(st.sampled_from([True, False, None]))
def test_the_gather_flag_comes_back(value: bool | None):
    assert env.parse_gather_flag(env.gather_flag(value)) is value


def test_any_other_word_is_refused_with_the_words_that_are_not():
    with pytest.raises(ValueError, match=r"DS3_GATHER_FOR_GENERATION is 'yes'.*true, false or auto"):
        env.parse_gather_flag("yes")


def test_reserved_names_are_the_contracts():
    names = {value for name, value in vars(env).items() if name == value}
    assert set(env.RESERVED) == names
