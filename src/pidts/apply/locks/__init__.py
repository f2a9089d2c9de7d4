"""Compares rows of the target with the rows that the source had, and decides what happens to rows that differ."""
