"""Schema changes of shards, pure: when one may run on the merged table, and how structures of shards compare."""
