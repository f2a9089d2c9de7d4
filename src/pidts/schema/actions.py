"""The changes that an ALTER TABLE (or a CREATE TABLE, which alters an empty table) makes, one class per clause.

A column's type may be *open*: what it inherits from its table is not filled in (`charset` None), a text type may carry
the size it was asked for (`text(100)`), and `collation` may name a kind that needs the charset (`bin`,
`uca1400_ai_ci`). `pidts.schema.charset_rules` closes it.
"""

from __future__ import annotations

from dataclasses import dataclass

from pidts.model.errors import Halted, Where
from pidts.model.table import Column, Key, TableName
from pidts.schema.computed import Computed


@dataclass(frozen=True, slots=True)
class AddColumn:
    """A new column: behind another one, first, or last if neither is asked."""

    column: Column
    after: str | None = None
    first: bool = False
    if_not_exists: bool = False
    computed: Computed | None = None
    """The expression of a generated column, where another session computes the same by it."""


@dataclass(frozen=True, slots=True)
class DropColumn:
    """The column leaves all keys, too."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class ModifyColumn:
    """A new definition under the same name: all that the clause does not repeat is gone."""

    column: Column
    after: str | None = None
    first: bool = False
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class ChangeColumn:
    """A new definition, and perhaps a new name."""

    old: str
    column: Column
    after: str | None = None
    first: bool = False
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """The definition stays."""

    old: str
    new: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class SetDefault:
    """`default` None takes the default away."""

    column: str
    default: str | None
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class AddKey:
    """A key without a name gets one as servers give it.

    A key that a foreign key brings along (`supports_foreign_key`) appears only if no other key begins with its columns.
    """

    key: Key
    if_not_exists: bool = False
    supports_foreign_key: bool = False
    prefixes: tuple[int | None, ...] = ()
    """The length of each column in the key; empty: all of all columns."""
    rule: str = ""
    """The way in which the foreign key changes rows by itself (`ON DELETE CASCADE`)."""


@dataclass(frozen=True, slots=True)
class DropKey:
    """Drops a key by its name; the primary key's is PRIMARY.

    Keys over expressions are no part of a structure, but have names, too.
    """

    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropConstraint:
    """Drops a constraint whose kind only the server knows.

    A unique key is dropped; a check or foreign key is no part of a structure.
    """

    name: str


@dataclass(frozen=True, slots=True)
class RenameKey:
    """The columns stay."""

    old: str
    new: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class RenameTo:
    """The table moves."""

    name: TableName


@dataclass(frozen=True, slots=True)
class SetCharset:
    """Sets the charset that columns added from now on inherit; `charset` None: the database's."""

    charset: str | None
    collation: str | None


@dataclass(frozen=True, slots=True)
class ConvertCharset:
    """Rewrites all text columns in a charset; `charset` None: the database's."""

    charset: str | None
    collation: str | None


@dataclass(frozen=True, slots=True)
class SetComment:
    """The table's comment."""

    text: str


@dataclass(frozen=True, slots=True)
class PartitionRows:
    """Rows leave or enter the table without row events (DROP, TRUNCATE, EXCHANGE PARTITION, IMPORT TABLESPACE)."""

    text: str
    what: str = ""
    other: TableName | None = None
    """The table that they come from or go to."""
    makes_other: bool = False
    """Whether a partition becomes that table."""
    takes_other: bool = False
    """Whether that table becomes a partition, and is gone."""

    def refused(self, table: TableName) -> Halted:
        """Returns the error of a target that is to follow this."""
        other = f", and with {self.other}" if self.other is not None else ""
        return Halted(
            "ddl-moves-rows",
            f"{self.what} takes rows out of the table or brings some in without writing them to the log",
            where=Where(table=str(table)),
            todo=f"Do the same on the target{other}; then: pidts ddl skip. Or copy again",
        )


@dataclass(frozen=True, slots=True)
class AlterOption:
    """A clause that changes no structure: engine, statistics, checks, foreign keys, partitioning."""

    text: str
    what: str = ""


Action = (
    AddColumn
    | DropColumn
    | ModifyColumn
    | ChangeColumn
    | RenameColumn
    | SetDefault
    | AddKey
    | DropKey
    | DropConstraint
    | RenameKey
    | RenameTo
    | SetCharset
    | ConvertCharset
    | SetComment
    | PartitionRows
    | AlterOption
)
