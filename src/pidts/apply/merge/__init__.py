"""Handles what only merged tables have: rows that move between shards, extra columns, several owners of rows."""
