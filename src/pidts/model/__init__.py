"""The nouns of the product: immutable, typed, without I/O. Every other package imports this one."""

from pidts.model.batch import CHANGE_FIELDS, ChangeBatch, change_schema
from pidts.model.checkpoint import Checkpoint, DdlJournal, DdlState, Rendered
from pidts.model.cutover import Check, Constraint, Cutover, CutoverStage, ForeignKey
from pidts.model.errors import (
    ConfigError,
    DecodeError,
    Fenced,
    Halted,
    PidtsError,
    PrecheckFailed,
    RowsUnknown,
    ServerDown,
    StructureChanged,
    Transient,
    Where,
)
from pidts.model.event import ChangeEvent, DataChange, Op, SchemaEvent
from pidts.model.gtid import (
    Gtid,
    GtidSet,
    MariaDbGtid,
    MariaDbGtidSet,
    MySqlGtid,
    MySqlGtidSet,
    parse_gtid,
    parse_gtid_set,
    with_gtids,
)
from pidts.model.halt import DdlOrder, Halt, OrderKind
from pidts.model.lsn import Lsn, Position
from pidts.model.on_divergence import OnDivergence
from pidts.model.record_key import (
    DroppedBy,
    LeftBy,
    MissedBy,
    OfGroups,
    OfSource,
    RecordKey,
    record_key,
    record_text,
)
from pidts.model.row_lock import HeldChanges, Moment, RowLock
from pidts.model.shard_lock import Arrival, Member, ShardLock
from pidts.model.sieve import KeptRows, Sieve, SieveOf
from pidts.model.table import Column, Key, Table, TableName
from pidts.model.target_records import Moved, Shadow, Spoken, Tombstone
from pidts.model.transaction import Extent, LogEntry, PreparedExtent, Transaction, Xa, XaStep, xa_not_received
from pidts.model.types import ColumnType, Kind

__all__ = [
    "CHANGE_FIELDS",
    "Arrival",
    "ChangeBatch",
    "ChangeEvent",
    "Check",
    "Checkpoint",
    "Column",
    "ColumnType",
    "ConfigError",
    "Constraint",
    "Cutover",
    "CutoverStage",
    "DataChange",
    "DdlJournal",
    "DdlOrder",
    "DdlState",
    "DecodeError",
    "DroppedBy",
    "Extent",
    "Fenced",
    "ForeignKey",
    "Gtid",
    "GtidSet",
    "Halt",
    "Halted",
    "HeldChanges",
    "KeptRows",
    "Key",
    "Kind",
    "LeftBy",
    "LogEntry",
    "Lsn",
    "MariaDbGtid",
    "MariaDbGtidSet",
    "Member",
    "MissedBy",
    "Moment",
    "Moved",
    "MySqlGtid",
    "MySqlGtidSet",
    "OfGroups",
    "OfSource",
    "OnDivergence",
    "Op",
    "OrderKind",
    "PidtsError",
    "Position",
    "PrecheckFailed",
    "PreparedExtent",
    "RecordKey",
    "Rendered",
    "RowLock",
    "RowsUnknown",
    "SchemaEvent",
    "ServerDown",
    "Shadow",
    "ShardLock",
    "Sieve",
    "SieveOf",
    "Spoken",
    "StructureChanged",
    "Table",
    "TableName",
    "Tombstone",
    "Transaction",
    "Transient",
    "Where",
    "Xa",
    "XaStep",
    "change_schema",
    "parse_gtid",
    "parse_gtid_set",
    "record_key",
    "record_text",
    "with_gtids",
    "xa_not_received",
]
