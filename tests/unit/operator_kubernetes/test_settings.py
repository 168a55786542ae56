import pytest
from grpo_operator.kubernetes.settings import Settings, SettingsError


def test_an_empty_environment_gives_the_defaults():
    assert Settings.from_environment({}) == Settings()
    assert Settings.from_environment({"GRPO_OPERATOR_NAMESPACES": "", "OTHER": "x"}) == Settings()


def test_every_kind_of_value_is_read():
    settings = Settings.from_environment(
        {
            "GRPO_OPERATOR_NAMESPACES": "a, b",
            "GRPO_OPERATOR_TRAINER_IMAGE": "mirror/trainer:1",
            "GRPO_OPERATOR_IMAGE_PULL_SECRETS": "one,two",
            "GRPO_OPERATOR_WORKERS": "3",
            "GRPO_OPERATOR_RESYNC": "0.5",
            "GRPO_OPERATOR_LIMITS_BACKOFF": "0.25",
        }
    )
    assert settings.namespaces == ("a", "b")
    assert settings.trainer_image == "mirror/trainer:1"
    assert settings.image_pull_secrets == ("one", "two")
    assert settings.workers == 3
    assert settings.resync == 0.5
    assert settings.limits.backoff == 0.25
    assert settings.limits.recheck == Settings().limits.recheck


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("GRPO_OPERATOR_WORKERS", "many", "must be a number"),
        ("GRPO_OPERATOR_RESYNC", "0", "must be above 0"),
        ("GRPO_OPERATOR_LIMITS_GONE", "-1", "must be above 0"),
        ("GRPO_OPERATOR_IMAGE_PULL_POLICY", "Sometimes", "must be one of Always"),
    ],
)
def test_a_bad_value_is_refused_by_name(name: str, value: str, said: str):
    with pytest.raises(SettingsError, match=said) as refusal:
        Settings.from_environment({name: value})
    assert name in str(refusal.value)
