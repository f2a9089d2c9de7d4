"""What the records on the target have in common: their keys, the rows they describe, and rows that cannot be read."""
