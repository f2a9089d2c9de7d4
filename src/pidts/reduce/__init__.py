"""The net effect of many changes: what a batch does to each row of its target, and which worker writes it."""

from pidts.reduce.buckets import TWO_WORKERS, buckets
from pidts.reduce.collision_columns import ANYTHING, UniqueKey, watched_columns
from pidts.reduce.column_presence import with_whole_keys
from pidts.reduce.net_change import Counts, NetChange
from pidts.reduce.net_changes import net_changes

__all__ = [
    "ANYTHING",
    "TWO_WORKERS",
    "Counts",
    "NetChange",
    "UniqueKey",
    "buckets",
    "net_changes",
    "watched_columns",
    "with_whole_keys",
]
