"""Reading the model's small files: what is missing is named."""

from __future__ import annotations

from pathlib import Path

import pytest
import transformers
from grpo_api.v1alpha1 import ModelSpec
from grpo_trainer.errors import ConfigurationError
from grpo_trainer.interruptions import HubUnreachable
from grpo_trainer.policy import read_model_files


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r"^model\.name: there is no folder .*absent: is the volume mounted\?$"
    ):
        read_model_files(ModelSpec(name=str(tmp_path / "absent")))


@pytest.mark.parametrize("offline", [False, True])
def test_a_hub_that_does_not_answer_is_no_error_of_the_job(offline: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub's client is a stand-in: the real one takes most of a minute to give up."""

    def unreachable(*_: object, **__: object) -> None:
        raise OSError("We couldn't connect") from ConnectionRefusedError()

    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", unreachable)
    for name in ("TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", str(int(offline)))
    error, message = (ConfigurationError, "cannot be read") if offline else (HubUnreachable, "could not be reached")
    with pytest.raises(error, match=rf"^model\.name: org/model .*{message}"):
        read_model_files(ModelSpec(name="org/model"))
