"""The commands of `grpo`, one file each; each has a click command named `command`."""
