"""Decides how a full copy progresses: which key ranges are read next, and when a read range is settled."""
