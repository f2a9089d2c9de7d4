"""Gives tables of PostgreSQL what the source has, at a cutover: constraints, automatic timestamps, counters."""
