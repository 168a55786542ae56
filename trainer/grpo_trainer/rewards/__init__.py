"""Reward functions: those built in, and the runner that calls them in a process of its own.

This package imports neither torch nor transformers, so that the worker process starts fast and stays small.
"""
