"""The operator: plan, the adapters that carry it out, and the command line."""
