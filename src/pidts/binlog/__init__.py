"""The binary log of MySQL and MariaDB: from bytes to events, transactions and Arrow batches, without any I/O."""

from pidts.binlog.decode import KeptDecoder, LargeSliceError, LogFacts, decode_event_groups, decode_slice
from pidts.binlog.events import Event, EventType, Format
from pidts.binlog.gtid_events import GtidEvent, gtid_list, previous_gtids
from pidts.binlog.scan import TransactionScanner
from pidts.binlog.statements import Control, Query
from pidts.binlog.stream import decode_stream
from pidts.binlog.table_map import TableMap, table_name
from pidts.binlog.walk import FILE_HEAD, MAGIC, LogWalker, iter_raw, whole_events
