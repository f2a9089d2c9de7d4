"""The nouns of the product: immutable, typed, without I/O. Every other package imports this one."""

from pidts.model.batch import ChangeBatch, byte_size, change_schema, image_column
from pidts.model.checkpoint import Checkpoint, DdlJournal, DdlState, KeyNote, RenderedChange, epoch_before_first
from pidts.model.cutover import (
    CheckConstraint,
    Constraint,
    ConstraintKind,
    Cutover,
    CutoverCommand,
    CutoverServer,
    CutoverStage,
    ExpressionKey,
    ForeignKey,
    OnUpdate,
)
from pidts.model.early_filter import EarlyFilter, EarlyFilterOf, KeptRows
from pidts.model.errors import (
    TRANSACTION_TOO_LARGE,
    ConfigError,
    DatabaseMissing,
    DecodeError,
    Fenced,
    Halted,
    OtherCheckpoint,
    PidtsError,
    PrecheckFailed,
    RowsUnknown,
    ServerDown,
    StructureChanged,
    Transient,
    ValuesGenerated,
    Where,
)
from pidts.model.event import DataChange, Op, SchemaEvent
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
from pidts.model.halt import CommandKind, DdlCommand, Halt
from pidts.model.log_file import LogFile, LogPlace
from pidts.model.logged import LoggedChanges
from pidts.model.lsn import Lsn, Position
from pidts.model.on_divergence import OnDivergence
from pidts.model.range_owner import RangeOwner
from pidts.model.records.record_key import (
    DroppedColumnsKey,
    MergedTablesKey,
    MissedChangesKey,
    RecordKey,
    RemainingRowsKey,
    SourceTablesKey,
    record_key,
    record_text,
)
from pidts.model.records.target_records import (
    EarlyRemoval,
    LeftOut,
    LoggedStatement,
    MovedKey,
    Shadow,
    Tombstone,
    Tombstones,
)
from pidts.model.row_lock import HeldChanges, RowLock, SourceTransaction
from pidts.model.shard_lock import Arrival, Member, ShardLock
from pidts.model.table import Column, Key, Table, TableName
from pidts.model.transaction import (
    CommittedEventGroups,
    Extent,
    LogEntry,
    PreparedExtent,
    Transaction,
    Xa,
    XaStep,
    xa_not_received,
)
from pidts.model.types import ColumnType, Kind
