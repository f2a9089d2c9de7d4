"""Source and target compared while both are written to, and differences repaired."""
