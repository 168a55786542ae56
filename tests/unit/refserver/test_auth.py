import os

import pytest
from grpo_refserver.auth import TokenFile
from grpo_refserver.settings import ConfigurationError


def test_only_the_token_is_allowed(tmp_path):
    file = tmp_path / "token"
    file.write_text("s3cret\n")
    token = TokenFile(file)
    assert token.allows("Bearer s3cret")
    assert token.allows("bearer s3cret")
    for wrong in (
        None,
        "",
        "s3cret",
        "Basic s3cret",
        "Bearer",
        "Bearer ",
        "Bearer s3cre",
        "Bearer s3cret2",
        "Bearer é",
    ):
        assert not token.allows(wrong), wrong


def test_a_rotated_token_counts_at_once_and_a_vanished_one_stays(tmp_path):
    file = tmp_path / "token"
    file.write_text("old")
    token = TokenFile(file)
    file.write_text("newer")
    assert token.allows("Bearer newer")
    assert not token.allows("Bearer old")
    os.remove(file)
    assert token.allows("Bearer newer")
    file.write_text("")
    assert token.allows("Bearer newer")
    assert not token.allows("Bearer ")


def test_a_file_without_a_token_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        TokenFile(tmp_path / "none")
    (tmp_path / "empty").write_text(" \n")
    with pytest.raises(ConfigurationError, match="is empty"):
        TokenFile(tmp_path / "empty")
