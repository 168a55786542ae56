"""The reference server: the frozen model's log-probabilities over HTTP."""
