"""Reads a requested part of a log, from a server or from files: the changes of some tables between two places."""
