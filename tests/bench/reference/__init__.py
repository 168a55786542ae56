"""The reference server's benchmark: every way to score side by side, in one run. See `__main__`."""
