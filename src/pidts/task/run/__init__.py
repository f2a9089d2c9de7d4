"""One run of a task: how it begins, continues after failures, and ends."""
