"""Decides how a full copy advances: which key ranges are read next, and when a range that was read is settled."""
