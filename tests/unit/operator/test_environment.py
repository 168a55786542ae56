"""What the containers are told."""

import itertools
import json

from grpo_api import env
from grpo_operator import environment

from tests.unit.operator.world import PLACES, make_job


def test_the_contract_is_set_whole_but_for_the_rank():
    made = environment.trainer_environment(make_job(), 3, PLACES)
    assert set(made) == set(env.RESERVED) - {env.PET_NODE_RANK}
    assert made[env.GRPO_ATTEMPT] == "3"
    assert made[env.PET_MASTER_ADDR] == "demo-trainer-3-0.demo-trainer"


def test_the_gather_flag_has_three_values():
    for value, text in ((True, "true"), (False, "false"), (None, "auto")):
        changes = {} if value is None else {"generation__ds3GatherForGeneration": value}
        made = environment.trainer_environment(make_job(**changes), 0, PLACES)
        assert made[env.DS3_GATHER_FOR_GENERATION] == text


def test_the_config_has_the_jobs_identity_and_defaults():
    config = json.loads(environment.config_json(make_job()))
    assert config["metadata"] == {"name": "demo", "namespace": "ns", "uid": "uid-1"}
    assert config["spec"]["optimization"]["beta"] == 0.04
    assert "status" not in config


def test_the_reference_takes_the_trained_models_name_type_and_revision():
    job = make_job(model__revision="abc", model__dtype="bfloat16", model__trustRemoteCode=True)
    made = environment.reference_arguments(job, PLACES)
    told = dict(zip(made[::2], made[1::2], strict=False))
    assert (told["--model"], told["--dtype"], told["--revision"]) == ("org/model", "bfloat16", "abc")
    assert (told["--host"], told["--port"], told["--token-file"]) == ("0.0.0.0", "8000", "/etc/grpo/token")
    assert made[-1] == "--trust-remote-code"


def test_the_engines_servers_get_their_own_arguments():
    changes = {
        "model__revision": "abc",
        "model__trustRemoteCode": True,
        "reference__dtype": "float32",
        "reference__tensorParallelSize": 2,
        "reference__maxBatchTokens": 4096,
    }
    vllm = environment.reference_arguments(make_job(reference__engine="vllm", **changes), PLACES)
    told = dict(itertools.pairwise(vllm))
    assert (told["--model"], told["--revision"], told["--tokenizer-revision"]) == ("org/model", "abc", "abc")
    assert (told["--host"], told["--port"], told["--dtype"]) == ("0.0.0.0", "8000", "float32")
    assert (told["--tensor-parallel-size"], told["--max-num-batched-tokens"]) == ("2", "4096")
    assert {"--no-enable-prefix-caching", "--trust-remote-code"} <= set(vllm)

    sglang = environment.reference_arguments(make_job(reference__engine="sglang", **changes), PLACES)
    told = dict(itertools.pairwise(sglang))
    assert (told["--model-path"], told["--revision"], told["--dtype"]) == ("org/model", "abc", "float32")
    assert (told["--host"], told["--port"], told["--log-level"]) == ("0.0.0.0", "8000", "warning")
    assert (told["--tp-size"], told["--chunked-prefill-size"]) == ("2", "4096")
    assert "--trust-remote-code" in sglang


def test_another_reference_model_has_its_own_revision():
    job = make_job(model__revision="abc", reference__model="org/other", reference__deterministic=True)
    made = environment.reference_arguments(job, PLACES)
    assert "--revision" not in made
    assert "--deterministic" in made
    assert "org/other" in made


def test_a_reference_over_several_gpus_is_told_how_many():
    assert "--tensor-parallel-size" not in environment.reference_arguments(make_job(), PLACES)
    made = environment.reference_arguments(make_job(reference__tensorParallelSize=4), PLACES)
    assert made[made.index("--tensor-parallel-size") + 1] == "4"


def test_versions_are_looked_for_in_the_runs_folder_where_the_reference_is_replaced():
    assert "--versions-root" not in environment.reference_arguments(make_job(), PLACES)
    made = environment.reference_arguments(make_job(reference__sync={"everySteps": 5}), PLACES)
    assert made[made.index("--versions-root") + 1] == f"{PLACES.output_dir}/versions"
