"""Coordinates schema changes of shards: which shards have arrived, which wait, and which shard runs the statement."""
