"""Handles the special cases of merged tables: rows that move between shards, extra columns, the owners of rows."""
