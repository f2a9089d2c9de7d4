"""Writes a first task file from the two servers' catalogs."""
