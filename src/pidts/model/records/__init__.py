"""The keys of the records on the target, some of their contents, and the errors for records that cannot be read."""
