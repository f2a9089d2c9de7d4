"""Runs the source's schema changes on the target, in parallel to the batches of rows."""
