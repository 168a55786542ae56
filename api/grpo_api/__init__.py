"""The contracts every part shares: GRPOJob models, environment names, exit codes, progress."""
