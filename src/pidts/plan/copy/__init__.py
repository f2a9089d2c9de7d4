"""Decides how a full copy progresses: which key ranges are read next, and when a range need not be read again."""
