"""Schema changes of shards, coordinated: which shards have arrived, which wait, and which one runs the statement."""
