"""Ownership of rows that moves from zone to zone while tasks run."""
