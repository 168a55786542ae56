"""Clients and groups, as the unit tests have them."""

from tests.unit.refserver.conftest import connect, make_groups, until

__all__ = ["connect", "make_groups", "until"]
