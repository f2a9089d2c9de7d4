"""Decides, without I/O, when a schema change of shards may run on the merged table, and compares shards' structures."""
