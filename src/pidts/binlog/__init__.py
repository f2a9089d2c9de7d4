"""The binary log of MySQL and MariaDB: from bytes to events, transactions and Arrow batches; no files, no sockets."""

from pidts.binlog.changes import changes
from pidts.binlog.decode import RowDecoder, decode_slice
from pidts.binlog.events import Event, EventType, Format, type_name
from pidts.binlog.gtid_events import GtidEvent, gtid_list, previous_gtids
from pidts.binlog.scan import TransactionScanner
from pidts.binlog.statements import Control, Query
from pidts.binlog.table_map import TableMap, table_name
from pidts.binlog.walk import MAGIC, LogWalker, iter_raw, rotate_target

__all__ = [
    "MAGIC",
    "Control",
    "Event",
    "EventType",
    "Format",
    "GtidEvent",
    "LogWalker",
    "Query",
    "RowDecoder",
    "TableMap",
    "TransactionScanner",
    "changes",
    "decode_slice",
    "gtid_list",
    "iter_raw",
    "previous_gtids",
    "rotate_target",
    "table_name",
    "type_name",
]
