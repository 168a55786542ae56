import logging
import shutil

import pytest
import torch
import transformers
from grpo_refserver.model import load, pick_device
from grpo_refserver.settings import ConfigurationError, HubUnreachable, Settings
from grpo_scoring.tokenizer_hash import tokenizer_hash


def test_what_is_loaded_is_known(model_path):
    loaded = load(Settings(model=str(model_path), model_version="step-7", device="cpu"))
    assert (loaded.name, loaded.version) == (str(model_path), "step-7")
    assert (loaded.vocab_size, loaded.max_sequence_length) == (320, 256)
    assert (loaded.dtype, loaded.device) == ("float32", "cpu")
    assert loaded.tokenizer_hash == tokenizer_hash(transformers.AutoTokenizer.from_pretrained(model_path))
    assert not loaded.model.training
    assert not any(parameter.requires_grad for parameter in loaded.model.parameters())


def test_dtype_and_attention_are_as_asked(model_path):
    loaded = load(
        Settings(model=str(model_path), dtype="bfloat16", attn_implementation="eager", max_sequence_length=100)
    )
    assert (loaded.dtype, loaded.max_sequence_length) == ("bfloat16", 100)
    assert loaded.model.config._attn_implementation == "eager"


def test_a_folder_without_tokenizer_serves_with_a_warning(model_path, tmp_path, caplog):
    for name in ("config.json", "model.safetensors"):
        shutil.copy(model_path / name, tmp_path)
    assert load(Settings(model=str(tmp_path))).tokenizer_hash is None
    assert "no tokenizer" in caplog.text


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match=r"^--model: there is no folder .*absent: is the volume mounted\?$"):
        load(Settings(model=str(tmp_path / "absent")))


@pytest.mark.parametrize(("offline", "error"), [("0", HubUnreachable), ("1", ConfigurationError)])
def test_a_hub_that_does_not_answer_is_no_wrong_setting(offline, error, monkeypatch, tmp_path, caplog):
    """The hub's client is a stand-in: the real one takes most of a minute to give up."""

    def unreachable(*_, **__):
        raise OSError("We couldn't connect") from ConnectionRefusedError()

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", unreachable)
    for name in ("TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", offline)
    caplog.set_level("INFO", "grpo_refserver")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match="--model org/model cannot be loaded") as caught:
        load(Settings(model="org/model"))
    assert f"there is no folder org/model in {tmp_path}, so it was looked for at the hub" in str(caught.value)
    assert "no such folder: looking at the hub" in caplog.text  # before the client's long retries


def test_a_truncated_or_broken_model_is_refused(model_path, tmp_path):
    shutil.copy(model_path / "config.json", tmp_path)
    weights = (model_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    with pytest.raises(ConfigurationError, match="cannot be loaded"):
        load(Settings(model=str(tmp_path)))
    model = transformers.AutoModelForCausalLM.from_pretrained(model_path)
    with torch.no_grad():
        model.model.norm.weight.fill_(float("nan"))
    model.save_pretrained(tmp_path / "nan")
    with pytest.raises(ConfigurationError, match="not finite"):
        load(Settings(model=str(tmp_path / "nan")))


def test_a_folder_without_config_is_told_so(tmp_path):
    with pytest.raises(ConfigurationError, match=r"the folder has no config\.json: expected are config\.json and safe"):
        load(Settings(model=str(tmp_path)))


def test_libraries_that_load_log_in_our_form(model_path):
    load(Settings(model=str(model_path)))
    for library in ("huggingface_hub", "transformers"):
        assert not logging.getLogger(library).handlers
        assert logging.getLogger(library).propagate


@pytest.mark.parametrize("name", ["foo", "cuda:x", "cpu:y", "meta", "", "cuda:99"])
def test_devices_that_are_not_there_are_named(name):
    with pytest.raises(ConfigurationError, match=f"^--device {name}"):
        pick_device(name)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_the_first_one_is_taken_and_a_batch_too_large_is_refused(model_path):
    assert load(Settings(model=str(model_path))).device == "cuda:0"
    with pytest.raises(ConfigurationError, match="--max-batch-tokens"):
        load(Settings(model=str(model_path), max_batch_tokens=2**34))
