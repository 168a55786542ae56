"""The GRPO trainer on DeepSpeed."""
