"""One rank of test_zero3.py: trains a tiny model for a few steps under ZeRO-3, or alone with full logits.

Run as ``zero3_rank.py OUTPUT MODEL_DIR...`` with torchrun's environment. Rank r has batch r of every step; ``alone``
has them all. Rank 0 writes losses, gradient norms and generated tokens of each model as JSON.
"""

import json
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
import transformers
from grpo_scoring.logprobs import enable_scoring

PROMPT, COMPLETION, VOCABULARY, STEPS, SHARES = 9, 40, 320, 4, 2
# SGD: a step is as large as its gradient, so a wrong scale shows (Adam would hide it).
LEARNING_RATE = 0.02
# Completion tokens per row, by step and rank: ranks differ in their number of chunks, and one has no token at all.
LENGTHS = [
    [[40, 33, 7, 1], [2, 0, 1, 1]],
    [[12, 12, 12, 12], [0, 0, 0, 0]],
    [[0, 0, 0, 0], [40, 40, 40, 40]],
    [[5, 9, 0, 3], [40, 1, 1, 1]],
]


def batch(step: int, share: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Ids and mask (4, P + C), and a weight per completion token (4, C)."""
    generator = torch.Generator().manual_seed(100 * step + share)
    ids = torch.randint(3, VOCABULARY, (4, PROMPT + COMPLETION), generator=generator)
    mask = torch.ones_like(ids)
    for row, length in enumerate(LENGTHS[step][share]):
        mask[row, PROMPT + length :] = 0
    mask[0, :3] = 0
    return ids, mask, torch.randn(4, COMPLETION, generator=generator)


def loss_of(logprobs: torch.Tensor, mask: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return (logprobs * weight * mask[:, -COMPLETION:]).sum() / 50


def alone(folder: str) -> dict[str, list[float]]:
    """Full logits, plain torch, the mean of what the ranks have."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    losses, norms = [], []
    for step in range(STEPS):
        total = torch.zeros(())
        for share in range(SHARES):
            ids, mask, weight = batch(step, share)
            positions = (mask.cumsum(-1) - 1).clamp(min=0)
            logits = model(ids, attention_mask=mask, position_ids=positions).logits
            logprobs = (logits[:, -COMPLETION - 1 : -1] / 0.8).log_softmax(-1)
            logprobs = logprobs.gather(-1, ids[:, -COMPLETION:, None])[..., 0]
            total = total + loss_of(logprobs, mask, weight) / SHARES
        total.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)))
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total.item())
    return {"losses": losses, "norms": norms}


def sharded(folder: str) -> dict[str, list[float]]:
    """The same under ZeRO-3 through enable_scoring, with generation in between."""
    import deepspeed
    from transformers.integrations import HfDeepSpeedConfig

    config = {
        "train_micro_batch_size_per_gpu": 4,
        "steps_per_print": 10**9,
        "zero_allow_untested_optimizer": True,
        "gradient_clipping": 1.0,
        "zero_optimization": {
            "stage": 3,
            "stage3_param_persistence_threshold": 0,
            "reduce_bucket_size": 10**6,
        },
    }
    alive = HfDeepSpeedConfig(config)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).train()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    enable_scoring(model)
    engine, *_ = deepspeed.initialize(
        model=model, config=config, optimizer=torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    )
    losses, norms, tokens = [], [], []
    for step in range(STEPS):
        ids, mask, weight = batch(step, dist.get_rank())
        with torch.no_grad():
            generated = engine.module.generate(
                ids[:, :PROMPT],
                attention_mask=mask[:, :PROMPT],
                max_new_tokens=3,
                do_sample=False,
                synced_gpus=True,
                use_cache=True,
            )
        tokens.append(generated[:, PROMPT:].tolist())
        output = engine(
            input_ids=ids,
            attention_mask=mask,
            completion_length=COMPLETION,
            temperature=0.8,
            chunk_size=16,
            entropy=True,
        )
        assert output.entropy is not None
        loss = loss_of(output.logprobs, mask, weight)
        engine.backward(loss)
        engine.step()
        norms.append(float(engine.get_global_grad_norm()))
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(float(mean) / SHARES)
    held = sum(parameter.ds_tensor.numel() for parameter in model.parameters())
    whole = sum(parameter.ds_numel for parameter in model.parameters())
    engine.destroy()
    del alive
    return {"losses": losses, "norms": norms, "tokens": tokens, "held": held / whole}


def main(output: str, *folders: str) -> None:
    import deepspeed
    import deepspeed.ops

    torch.set_num_threads(1)
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # would be compiled
    deepspeed.init_distributed(dist_backend="gloo", timeout=timedelta(seconds=60))
    results = [sharded(folder) for folder in folders]
    if dist.get_rank() == 0:
        with open(output, "w") as file:
            json.dump(results, file)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
