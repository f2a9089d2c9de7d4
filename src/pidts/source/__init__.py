"""Reads MySQL and MariaDB servers as sources: their log, rows and structures, and checks whether they are suitable.

`connection` logs in, `position` tells where the log stands, `dump` streams it, `structures` and `rows` read tables,
`prechecks` says what has to be changed first. `values` is a source in memory with the same log and rows.
"""

from pidts.source.block import Block, Shape
from pidts.source.connection import ServerInfo, Session, SourceConfig, connect, query, server_info
from pidts.source.dump import BinlogStream
from pidts.source.failures import StructureChanged
from pidts.source.finding import Finding, demand, login_finding
from pidts.source.log_proof import event_at, gtids_before
from pidts.source.position import binary_logs, log_end, position, settled
from pidts.source.prechecks import check_source
from pidts.source.replica import replica_id
from pidts.source.rows import highest_key, last_key, select_range
from pidts.source.structures import (
    clock_is_utc,
    is_system,
    is_utc,
    read_structure,
    read_structures,
    schema_charsets,
    source_dialect,
)
from pidts.source.values import ValuesSource

__all__ = [
    "BinlogStream",
    "Block",
    "Finding",
    "ServerInfo",
    "Session",
    "Shape",
    "SourceConfig",
    "StructureChanged",
    "ValuesSource",
    "binary_logs",
    "check_source",
    "clock_is_utc",
    "connect",
    "demand",
    "event_at",
    "gtids_before",
    "highest_key",
    "is_system",
    "is_utc",
    "last_key",
    "log_end",
    "login_finding",
    "position",
    "query",
    "read_structure",
    "read_structures",
    "replica_id",
    "schema_charsets",
    "select_range",
    "server_info",
    "settled",
    "source_dialect",
]
