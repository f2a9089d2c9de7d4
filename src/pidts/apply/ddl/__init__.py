"""One schema change on the target, exactly once."""
