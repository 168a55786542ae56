"""The Kubernetes adapter: observes a job's children, and carries out what `grpo_operator.plan` answers."""
