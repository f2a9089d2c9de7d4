"""Applies statements to structures, and keeps the history of a source's structures."""
