"""Computes the net effect of many changes on each row of the target, and chooses the worker that writes the row."""

from pidts.reduce.buckets import TWO_WORKERS, buckets, spread_by
from pidts.reduce.collision_columns import ANYTHING, UniqueKey, watched_columns
from pidts.reduce.column_presence import with_whole_keys
from pidts.reduce.net_change import Counts, ExpectedRows, NetChange
from pidts.reduce.net_changes import net_changes
