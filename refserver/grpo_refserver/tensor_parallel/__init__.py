"""One copy of the model over several devices: a process per device, of which rank 0 serves."""
