"""Reads the task file strictly into immutable values, and reports each mistake with its line."""
