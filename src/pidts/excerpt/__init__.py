"""Reads a requested part of a log: from a server or files, between two places, for some tables."""
