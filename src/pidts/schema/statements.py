"""The statements that a log can contain: one class for each kind that replication distinguishes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from pidts.model.table import Table, TableName
from pidts.schema.actions import Action, PartitionRows, RenameTo


@dataclass(frozen=True, slots=True)
class CreateTable:
    """Creates a table. `structure` may be open; `pidts.schema.evolve.apply_statement` completes it."""

    table: TableName
    structure: Table
    if_not_exists: bool
    or_replace: bool
    constraints: tuple[Action, ...] = field(default=(), compare=False)
    """Foreign keys and checks, which are not part of a structure."""
    first_number: int = field(default=1, compare=False)
    """The first number of the table's AUTO_INCREMENT column."""

    @property
    def tables(self) -> tuple[TableName, ...]:
        """Returns all tables that the statement names."""
        return (self.table,)


@dataclass(frozen=True, slots=True)
class CreateTableLike:
    """Creates a new, empty table with another table's structure."""

    table: TableName
    like: TableName
    if_not_exists: bool = False
    or_replace: bool = False

    @property
    def tables(self) -> tuple[TableName, ...]:
        """Returns all tables that the statement names."""
        return (self.table, self.like)


@dataclass(frozen=True, slots=True)
class DropTable:
    """Drops one or more tables."""

    tables: tuple[TableName, ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class TruncateTable:
    """Removes all rows of a table, without row events."""

    table: TableName

    @property
    def tables(self) -> tuple[TableName, ...]:
        """Returns all tables that the statement names."""
        return (self.table,)


@dataclass(frozen=True, slots=True)
class AlterTable:
    """Changes one table's structure; CREATE INDEX and DROP INDEX also become an `AlterTable`."""

    table: TableName
    actions: tuple[Action, ...]
    if_exists: bool = False
    mariadb: bool | None = field(default=False, compare=False)
    """Whether a MariaDB server has converted the rows: MySQL and MariaDB convert some values differently.

    None means that each server has converted its own rows.
    """
    cuts_fractions: bool | None = field(default=None, compare=False)
    """Whether the session cut further digits of a second off, or rounded them (False); None: it is not known."""
    is_in_utc: bool | None = field(default=None, compare=False)
    """Whether the session's time zone was UTC; None: it is not known."""
    zeroes_unreal_days: bool | None = field(default=None, compare=False)
    """Whether the session stored the zero date in place of a day such as February 31; None: it is not known."""
    ignore: bool = field(default=False, compare=False)
    """Whether the server changed values that did not fit, even in strict mode (`ALTER IGNORE TABLE`)."""

    @property
    def tables(self) -> tuple[TableName, ...]:
        """Returns all tables that the statement names."""
        renamed = (action.name for action in self.actions if isinstance(action, RenameTo))
        others = (action.other for action in self.actions if isinstance(action, PartitionRows) and action.other)
        return (self.table, *renamed, *others)


@dataclass(frozen=True, slots=True)
class RenameTable:
    """Renames tables by pairs of an old and a new name, one pair after the other. So a swap needs a third name."""

    pairs: tuple[tuple[TableName, TableName], ...]
    if_exists: bool = False

    @property
    def tables(self) -> tuple[TableName, ...]:
        """Returns all tables that the statement names, each once."""
        return tuple(dict.fromkeys(name for pair in self.pairs for name in pair))


@dataclass(frozen=True, slots=True)
class CreateDatabase:
    """Creates a database. If `charset` and `collation` are None, the server's charset and collation are used."""

    name: str
    charset: str | None = None
    collation: str | None = None
    if_not_exists: bool = False
    or_replace: bool = False
    tables: tuple[TableName, ...] = ()


@dataclass(frozen=True, slots=True)
class AlterDatabase:
    """Sets the default charset of future tables. `default` means the server's charset; None changes nothing."""

    name: str
    charset: str | None = None
    collation: str | None = None
    tables: tuple[TableName, ...] = ()


@dataclass(frozen=True, slots=True)
class DropDatabase:
    """Drops a database with all its tables; `tables` is empty, since the statement does not name them."""

    name: str
    if_exists: bool = False
    tables: tuple[TableName, ...] = ()


@dataclass(frozen=True, slots=True)
class IgnoredStatement:
    """A statement that replication of tables can ignore."""

    reason: str
    tables: tuple[TableName, ...] = ()


@dataclass(frozen=True, slots=True)
class SequenceChange(IgnoredStatement):
    """Creates, alters or drops SEQUENCE objects of MariaDB, which are not tables and are not replicated."""

    made: tuple[TableName, ...] = ()
    there: tuple[TableName, ...] = ()
    """`made`: the sequences that the statement creates. `there`: the sequences that it alters."""
    unless_table: tuple[TableName, ...] = ()
    """The names in a CREATE SEQUENCE IF NOT EXISTS, which does nothing if there is a table of this name."""
    gone: tuple[TableName, ...] = ()


@dataclass(frozen=True, slots=True)
class StatementDml:
    """A statement in the log that changed rows without row events, since its session did not use row format."""

    verb: str
    tables: tuple[TableName, ...] = ()


@dataclass(frozen=True, slots=True)
class Unknown:
    """A statement that cannot be parsed exactly. `tables` are the tables that it seems to name."""

    sql: str
    reason: str
    tables: tuple[TableName, ...] = ()


Statement = (
    CreateTable
    | CreateTableLike
    | DropTable
    | TruncateTable
    | AlterTable
    | RenameTable
    | CreateDatabase
    | AlterDatabase
    | DropDatabase
    | IgnoredStatement
    | StatementDml
    | Unknown
)


def retargeted(statement: Statement, name_of: Callable[[TableName], TableName]) -> Statement:
    """Returns the statement with each table renamed by `name_of`."""
    match statement:
        case CreateTable(table=table, structure=structure):
            return replace(statement, table=name_of(table), structure=structure.renamed(name_of(table)))
        case CreateTableLike(table=table, like=like):
            return replace(statement, table=name_of(table), like=name_of(like))
        case DropTable(tables=tables):
            return replace(statement, tables=tuple(map(name_of, tables)))
        case TruncateTable(table=table):
            return replace(statement, table=name_of(table))
        case AlterTable(table=table, actions=actions):
            moved = (RenameTo(name_of(item.name)) if isinstance(item, RenameTo) else item for item in actions)
            return replace(statement, table=name_of(table), actions=tuple(moved))
        case RenameTable(pairs=pairs):
            return replace(statement, pairs=tuple((name_of(old), name_of(new)) for old, new in pairs))
        case _:
            return statement
