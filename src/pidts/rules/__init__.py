"""Which tables and changes a task takes, by DM's rules: pure decisions over names and columns."""

from pidts.rules.allow_list import SYSTEM_SCHEMAS, AllowList

__all__ = ["SYSTEM_SCHEMAS", "AllowList"]
