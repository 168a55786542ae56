"""The rules of the plan, one file each; every one is a pure function of what was observed."""
