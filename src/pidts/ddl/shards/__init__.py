"""Coordinates schema changes of shards: which shards have arrived, which wait, and which one runs the statement."""
