"""A target in memory with the whole port, for tests that run in milliseconds."""

from tests.values_target.session import ValuesTarget

__all__ = ["ValuesTarget"]
