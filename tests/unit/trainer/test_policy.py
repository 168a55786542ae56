"""Reading the model's small files: what is missing is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from grpo_api.v1alpha1 import ModelSpec
from grpo_trainer.errors import ConfigurationError
from grpo_trainer.policy import read_model_files


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r"^model\.name: there is no folder .*absent: is the volume mounted\?$"
    ):
        read_model_files(ModelSpec(name=str(tmp_path / "absent")))
