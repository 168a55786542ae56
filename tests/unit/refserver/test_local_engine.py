"""Staging and swapping with real models, without HTTP."""

import copy
import dataclasses
import json
import shutil
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
import transformers
from grpo_refserver.engine import Refusal, VersionError
from grpo_refserver.local_engine import LocalEngine, take_memory
from grpo_refserver.settings import Settings
from grpo_scoring.logprobs import completion_logprobs


@pytest.fixture
def settings(model_path, tmp_path) -> Settings:
    return Settings(model=str(model_path), versions_root=tmp_path / "versions")


@pytest.fixture
def engine(settings) -> LocalEngine:
    return LocalEngine.start(settings)


@pytest.fixture
def groups(make_groups):
    return make_groups((20, [30, 1, 12]), (3, [9, 9]))


def expected(path: Path, groups) -> np.ndarray:
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    return completion_logprobs(model, groups).values


def check(engine: LocalEngine, version: str, path: Path, groups) -> None:
    assert engine.info.version == version
    np.testing.assert_allclose(engine.score(groups, 1.0).values, expected(path, groups), atol=2e-6, rtol=2e-6)


def test_a_version_takes_the_place_of_the_old_one_and_base_comes_back(engine, model_path, make_version, groups):
    path = make_version("step-5")
    before = engine.info
    old = weakref.ref(before.model.model.embed_tokens)
    before = dataclasses.replace(before, model=None)
    staged = engine.stage("step-5", path)
    check(engine, "base", model_path, groups)
    engine.swap(staged)
    assert old() is None, "the old weights are freed with the swap"
    check(engine, "step-5", path, groups)
    assert engine.info.name == before.name
    assert engine.info.vocab_size == before.vocab_size
    assert engine.info.shares_prompts
    engine.swap(engine.stage("base", None))
    check(engine, "base", model_path, groups)


def test_a_version_is_scored_in_the_servers_dtype_and_class(model_path, tmp_path, make_version):
    engine = LocalEngine.start(Settings(model=str(model_path), dtype="bfloat16", versions_root=tmp_path / "versions"))
    engine.swap(engine.stage("step-5", make_version("step-5")))
    assert engine.info.model.dtype is torch.bfloat16
    assert type(engine.info.model) is transformers.LlamaForCausalLM
    assert not engine.info.model.training
    assert not any(parameter.requires_grad for parameter in engine.info.model.parameters())


def test_shards_are_read(engine, model, tmp_path, groups):
    path = tmp_path / "versions" / "sharded"
    model.save_pretrained(path, max_shard_size="50KB")
    assert (path / "model.safetensors.index.json").exists()
    engine.swap(engine.stage("sharded", path))
    check(engine, "sharded", path, groups)


def rewrite(path: Path, change) -> None:
    """Changes the tensors of a saved model."""
    tensors = safetensors.torch.load_file(path / "model.safetensors")
    change(tensors)
    safetensors.torch.save_file(tensors, path / "model.safetensors", {"format": "pt"})


def configure(path: Path, **values: object) -> None:
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | values))


def cut(path: Path) -> None:
    weights = (path / "model.safetensors").read_bytes()
    (path / "model.safetensors").write_bytes(weights[: len(weights) // 2])


def put_nan(tensors) -> None:
    tensors["model.layers.1.mlp.up_proj.weight"][3, 5] = float("nan")


NORM = "model.layers.0.input_layernorm.weight"


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (cut, "damaged or cut off"),
        (lambda path: (path / "model.safetensors").write_bytes(b""), "damaged or cut off"),
        (lambda path: rewrite(path, lambda tensors: tensors.pop(NORM)), f"lacks {NORM}"),
        (lambda path: rewrite(path, lambda tensors: tensors.update(odd=torch.ones(2))), "has the unknown odd"),
        (
            lambda path: rewrite(path, lambda tensors: tensors.update({NORM: torch.ones(65)})),
            f"has another shape of {NORM}",
        ),
        (lambda path: rewrite(path, put_nan), "NaN or infinity in model.layers.1.mlp.up_proj.weight"),
        (lambda path: configure(path, vocab_size=400), "vocab_size is 400, and 320 in"),
        (lambda path: configure(path, num_hidden_layers=3), "num_hidden_layers is 3, and 2"),
        (lambda path: configure(path, model_type="qwen2"), "model_type is qwen2, and llama"),
        (lambda path: configure(path, head_dim=32), "has another shape of"),
        (lambda path: configure(path, max_position_embeddings=100), "max_position_embeddings 100"),
        (lambda path: configure(path, quantization_config={"quant_method": "fp8"}), "quantized"),
        (lambda path: (path / "config.json").write_text("{"), "config.json"),
        (lambda path: (path / "config.json").unlink(), "config.json"),
        (lambda path: (path / "model.safetensors").rename(path / "pytorch_model.bin"), "pickles"),
    ],
)
def test_a_bad_folder_is_refused_and_nothing_changes(engine, model_path, make_version, groups, spoil, why):
    path = make_version("step-5")
    spoil(path)
    with pytest.raises(VersionError) as caught:
        engine.stage("step-5", path)
    assert why in str(caught.value)
    assert caught.value.refusal is Refusal.BAD
    check(engine, "base", model_path, groups)
    shutil.rmtree(path)
    engine.swap(engine.stage("step-5", make_version("step-5")))
    check(engine, "step-5", path, groups)


def test_memory_that_does_not_suffice_now_may_later(engine, make_version, monkeypatch):
    """The allocator is a stand-in: filling the machine would harm whatever else runs on it."""

    def full(*_, **__):
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory")

    path = make_version("step-5")
    monkeypatch.setattr(transformers.LlamaForCausalLM, "_load_pretrained_model", full)
    with pytest.raises(VersionError, match="not enough memory") as caught:
        engine.stage("step-5", path)
    assert caught.value.refusal is Refusal.UNAVAILABLE


def test_forwards_never_run_while_a_model_is_being_made(model_path, tmp_path, make_version, groups, monkeypatch):
    """transformers changes torch's default dtype for the whole process meanwhile."""
    engine = LocalEngine.start(Settings(model=str(model_path), dtype="bfloat16", versions_root=tmp_path / "versions"))
    path, plain = make_version("step-5"), transformers.LlamaForCausalLM.__init__
    making, scored = threading.Event(), threading.Event()
    during: list[torch.dtype] = []

    def slow(self, config) -> None:
        assert torch.get_default_dtype() is torch.bfloat16, "else nothing is to be kept apart"
        making.set()
        scored.wait(0.3)  # what would be scored meanwhile is: the event comes, or the time is up
        plain(self, config)

    def record(*_: object) -> None:
        during.append(torch.get_default_dtype())
        if making.is_set():
            scored.set()

    monkeypatch.setattr(transformers.LlamaForCausalLM, "__init__", slow)
    engine.info.model.model.register_forward_pre_hook(record)
    staging = threading.Thread(target=engine.stage, args=("step-5", path))
    staging.start()
    assert making.wait(60)
    while staging.is_alive():
        engine.score(groups, 1.0)
    staging.join()
    assert during, "the old version was scored by"
    assert set(during) == {torch.float32}


def overwrite(path: Path) -> None:
    """Zeroes a file's weights in place."""
    with (path / "model.safetensors").open("r+b") as file:
        header = 8 + int.from_bytes(file.read(8), "little")
        size = file.seek(0, 2)
        file.seek(header)
        file.write(bytes(size - header))


def test_what_is_loaded_no_longer_needs_its_files(model_path, tmp_path, make_version, groups):
    """transformers maps files: without a copy the weights would become what is written there later."""
    base = tmp_path / "base"
    shutil.copytree(model_path, base)
    path = make_version("step-5")
    engine = LocalEngine.start(Settings(model=str(base), versions_root=tmp_path / "versions"))
    wanted = expected(path, groups)
    staged = engine.stage("step-5", path)
    overwrite(base)
    check(engine, "base", model_path, groups)
    overwrite(path)
    engine.swap(staged)
    np.testing.assert_allclose(engine.score(groups, 1.0).values, wanted, atol=2e-6, rtol=2e-6)


def test_memory_of_the_old_model_is_taken_over(model, make_version, groups):
    """As on a GPU: the new weights lie where the old ones lay, tied ones once, and no second copy stays."""
    for tied in (False, True):
        config = copy.deepcopy(model.config)
        config.tie_word_embeddings = tied
        old, new = (transformers.LlamaForCausalLM(config).eval() for _ in range(2))
        wanted = completion_logprobs(new, groups).values
        memory = {name: parameter.data_ptr() for name, parameter in old.named_parameters()}
        take_memory(new, old)
        assert {name: parameter.data_ptr() for name, parameter in new.named_parameters()} == memory
        assert np.array_equal(completion_logprobs(new, groups).values, wanted)
        assert (new.lm_head.weight is new.model.embed_tokens.weight) is tied


def test_an_engine_that_swaps_in_place_serves_the_new_weights(engine, model_path, make_version, groups, monkeypatch):
    monkeypatch.setattr(LocalEngine, "_in_place", True)
    path = make_version("step-5")
    memory = next(engine.info.model.parameters()).data_ptr()
    staged = engine.stage("step-5", path)
    check(engine, "base", model_path, groups)
    engine.swap(staged)
    check(engine, "step-5", path, groups)
    assert next(engine.info.model.parameters()).data_ptr() == memory
