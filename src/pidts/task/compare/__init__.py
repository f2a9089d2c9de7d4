"""Compares source and target while programs write to both, and repairs differences."""
