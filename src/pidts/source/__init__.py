"""Reads the log, the rows and the structures of MySQL and MariaDB servers, and checks whether a task can use a server.

`connection` logs in, `position` finds positions in the log, `dump` streams the log, `structures` and `rows` read
tables, and `prechecks` reports what has to change before a task runs.
"""

from pidts.model import StructureChanged
from pidts.source.connection import ServerInfo, Session, SourceConfig, connect, query, server_info
from pidts.source.dump import BinlogStream
from pidts.source.failures import SOURCE_BUSY
from pidts.source.finding import Finding, demand
from pidts.source.log_proof import event_at, gtids_before, log_events
from pidts.source.packets import Block, BlockShape
from pidts.source.position import binary_logs, log_end, position, settled
from pidts.source.prechecks import check_source
from pidts.source.rows import highest_key, select_range
from pidts.source.structures import (
    read_structure,
    read_structures,
    schema_charsets,
    source_dialect,
    table_names,
)
