"""Handles what only merged tables have: rows that move between shards, extra columns, keys that several shards have."""
