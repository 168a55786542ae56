"""`grpo operator`: the Kubernetes adapter's own command."""

from grpo_operator.kubernetes.main import command

__all__ = ["command"]
