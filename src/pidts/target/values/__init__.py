"""A target in memory: the whole port, for tests that run in milliseconds."""
