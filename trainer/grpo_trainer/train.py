"""A whole run on one rank: set up, restore, loop, save."""

from __future__ import annotations

import contextlib
import logging
import socket
from dataclasses import dataclass

from grpo_api.exit_codes import ExitCode
from grpo_api.progress import Termination
from grpo_api.v1alpha1 import Spec

from grpo_trainer.boundary import Boundary
from grpo_trainer.checkpoint import Checkpoints
from grpo_trainer.config import Settings
from grpo_trainer.dataset import PromptDataset, load_prompts
from grpo_trainer.distributed import Communicator, connect
from grpo_trainer.final_model import save_final_model
from grpo_trainer.gather import choose_gather
from grpo_trainer.generation import Generator, sampling_config
from grpo_trainer.loop import Loop, TrainState
from grpo_trainer.policy import ModelFiles, Policy, load_policy, read_model_files
from grpo_trainer.progress import ProgressBoard, ProgressServer
from grpo_trainer.prompts import eos_token_ids, pad_token_id
from grpo_trainer.reference.check import check_agreement, is_half
from grpo_trainer.reference.connect import Reference, connect_reference
from grpo_trainer.reference_sync import ReferenceSync, asked_version
from grpo_trainer.report import Report
from grpo_trainer.rewards.runner import RewardRunner
from grpo_trainer.rollouts import Rollout, Rollouts, Tokens
from grpo_trainer.sampler import PromptSampler, total_optimizer_steps
from grpo_trainer.versions import BASE

logger = logging.getLogger(__name__)

ALONE_MARGIN_SECONDS = 60.0
"""Added to what a rank may rightly take alone, before the others give it up."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """What is read before the weights: small, and the same on all ranks."""

    files: ModelFiles
    dataset: PromptDataset
    sampler: PromptSampler
    total_steps: int


def train(settings: Settings, board: ProgressBoard) -> Termination:
    """Train to the last step and save the model; return the reason to end with.

    Raises:
        AgreedFault, Interruption, PermanentError, or whatever went wrong.
    """
    spec = settings.spec
    with contextlib.ExitStack() as stack:
        if settings.ranks.is_main and settings.progress_port is not None:
            stack.enter_context(ProgressServer(board, settings.progress_port))
        communicator = connect(
            settings.ranks,
            rendezvous_timeout_seconds=spec.trainer.rendezvous_timeout_seconds,
            collective_timeout_seconds=spec.trainer.collective_timeout_seconds,
            alone_seconds=_alone_seconds(spec),
        )
        rewards = RewardRunner(spec.rewards.functions)
        stack.callback(rewards.close)
        inputs = communicator.agree(lambda: _read_inputs(spec))
        communicator.agree(rewards.start)
        policy = load_policy(spec, inputs.files, communicator, inputs.total_steps)
        _tell_shard(policy, communicator)

        reference = connect_reference(
            settings,
            communicator,
            vocabulary_size=policy.module.get_input_embeddings().num_embeddings,
            tokenizer=inputs.files.tokenizer,
            dtype=inputs.files.dtype,
        )
        if reference is not None:
            stack.callback(reference.client.close)
        checkpoints = Checkpoints(settings, communicator, policy)
        state = checkpoints.restore() or TrainState()
        sync = None
        if spec.reference.sync is not None:
            sync = ReferenceSync(settings, communicator, policy, inputs.files.tokenizer, checkpoints)
            sync.begin(state)
        tokens = Tokens(
            pad=pad_token_id(inputs.files.tokenizer),
            eos=eos_token_ids(policy.module.generation_config, inputs.files.tokenizer),
        )
        report = Report(
            settings,
            communicator,
            board,
            reward_names=rewards.names,
            eos_token_ids=tokens.eos,
            batches_per_epoch=inputs.sampler.batches_per_epoch,
            total_steps=inputs.total_steps,
            resumed_at=state.step,
        )
        stack.callback(report.close)
        rollouts = Rollouts(
            spec,
            communicator,
            policy,
            inputs.files.tokenizer,
            tokens,
            inputs.dataset,
            inputs.sampler,
            _generator(settings, policy, tokens, communicator).generate,
            rewards,
            None if reference is None else reference.client,
            on_phase=board.phase,
            version_of=lambda name: asked_version(settings, name),
        )

        def on_rollout(state: TrainState, rollout: Rollout) -> None:
            if reference is not None and reference.is_initial_policy and state.batch == 0 and state.reference == BASE:
                _compare_with_reference(policy, rollout, reference, spec, communicator)
            report.rollout(state, rollout)

        boundary = Boundary(settings, communicator, checkpoints, sync, board, inputs.total_steps, state)
        loop = Loop(
            spec,
            communicator,
            policy,
            rollouts,
            total_steps=inputs.total_steps,
            on_rollout=on_rollout,
            on_step=report.step,
            on_boundary=boundary,
        )
        state = loop.run(state)
        model_path = None
        if spec.checkpoint.save_final_model:
            board.phase("checkpointing")
            model_path = str(save_final_model(policy, inputs.files.tokenizer, settings.output_dir, communicator))
        board.update(phase="finished", model_path=model_path, eta_seconds=0.0)
        communicator.close()
        return Termination(
            reason="Succeeded",
            message=f"trained {state.step} of {inputs.total_steps} steps",
            rank=settings.ranks.rank,
            exit_code=ExitCode.SUCCEEDED,
            step=state.step,
            model_path=model_path,
        )


def _read_inputs(spec: Spec) -> Inputs:
    files = read_model_files(spec.model)
    dataset = load_prompts(spec.dataset, files.tokenizer)
    sampler = PromptSampler(
        len(dataset),
        spec.generation_batch_size // spec.generation.num_generations,
        seed=spec.dataset.seed,
        shuffle=spec.dataset.shuffle,
    )
    optimization = spec.optimization
    total_steps = optimization.max_steps
    if total_steps <= 0:
        total_steps = total_optimizer_steps(
            sampler.batches_per_epoch,
            optimization.num_train_epochs,
            steps_per_generation=spec.steps_per_generation,
            num_iterations=optimization.num_iterations,
            gradient_accumulation_steps=optimization.gradient_accumulation_steps,
        )
    return Inputs(files, dataset, sampler, total_steps)


def _compare_with_reference(
    policy: Policy, rollout: Rollout, reference: Reference, spec: Spec, communicator: Communicator
) -> None:
    """Before the first step: the same model must give the same log-probabilities here and there."""
    batch = next(rollout.batch.split(spec.steps_per_generation))
    with policy.inference():
        ours = policy.logprobs(batch.input_ids, batch.attention_mask, batch.completion_length).logprobs.cpu()
    policy.release_weights()
    theirs = batch.ref_logps
    assert theirs is not None
    half = is_half(policy.dtype, reference.dtype)
    communicator.agree(lambda: check_agreement(ours, theirs, batch.mask, half=half))


def _generator(settings: Settings, policy: Policy, tokens: Tokens, communicator: Communicator) -> Generator:
    spec = settings.spec
    rows = spec.optimization.per_device_train_batch_size * spec.steps_per_generation
    longest = spec.dataset.max_prompt_length + spec.generation.max_completion_length
    return Generator(
        policy,
        sampling_config(spec.generation, pad_token_id=tokens.pad, eos_token_ids=tokens.eos),
        gather=choose_gather(settings.gather, policy, rows, longest, communicator),
        world_size=communicator.world_size,
    )


def _tell_shard(policy: Policy, communicator: Communicator) -> None:
    held, total = policy.held_parameters()
    logger.info(
        "rank %d of %d on %s: holds %d of %d parameters",
        communicator.rank, communicator.world_size, socket.gethostname(), held, total,
    )  # fmt: skip


def _alone_seconds(spec: Spec) -> float:
    """How long a rank may rightly be busy alone while the others wait for it."""
    rewards = sum(function.timeout_seconds for function in spec.rewards.functions)
    reference = spec.reference.request_timeout_seconds if spec.uses_reference else 0
    return rewards + reference + ALONE_MARGIN_SECONDS
