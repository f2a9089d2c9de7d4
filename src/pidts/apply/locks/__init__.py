"""Compares rows of the target with what the source says they were, and decides about rows that differ."""
