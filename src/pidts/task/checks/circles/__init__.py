"""Checks whether other tasks carry, or have carried, the changes of a task back to its source."""
