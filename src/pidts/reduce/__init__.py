"""The net effect of many changes: what a batch does to each row of its target, and which worker writes it."""

from pidts.reduce.buckets import buckets
from pidts.reduce.net_change import Counts, NetChange
from pidts.reduce.net_changes import net_changes
from pidts.reduce.watched import ANYTHING, UniqueKey, watched_columns

__all__ = ["ANYTHING", "Counts", "NetChange", "UniqueKey", "buckets", "net_changes", "watched_columns"]
