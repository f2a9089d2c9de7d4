"""Carries out a batch, on Spark or without it: decode, apply, schema changes."""
