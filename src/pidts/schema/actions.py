"""The changes that an ALTER TABLE, or a CREATE TABLE, makes, one class per clause.

A column's type may be *open*, that is, not complete yet:

- `charset` is None if the column inherits the charset of its table;
- a text type may have the size that the statement requests (`text(100)`);
- `collation` may be only a part of a name (`bin`, `uca1400_ai_ci`), to which the charset has to be added.

`pidts.schema.charset_rules` completes an open type.
"""

from __future__ import annotations

from dataclasses import dataclass

from pidts.model.advice import RESYNC, SKIP
from pidts.model.errors import Halted, Where
from pidts.model.table import Column, Key, TableName
from pidts.schema.computed import GeneratedExpression


@dataclass(frozen=True, slots=True)
class AddColumn:
    """Adds a column: after the column `after`, as the first column, or (with neither) as the last column."""

    column: Column
    after: str | None = None
    first: bool = False
    if_not_exists: bool = False
    computed: GeneratedExpression | None = None
    """The expression of a generated column, if every session would compute the same values from it."""


@dataclass(frozen=True, slots=True)
class DropColumn:
    """Drops a column, and removes it from all keys."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class ModifyColumn:
    """Gives a column a new definition under the same name: attributes that the clause does not repeat are lost."""

    column: Column
    after: str | None = None
    first: bool = False
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class ChangeColumn:
    """Gives a column a new definition, and perhaps a new name."""

    old: str
    column: Column
    after: str | None
    first: bool
    if_exists: bool


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """Gives a column a new name; the definition stays."""

    old: str
    new: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class SetDefault:
    """Gives a column a new default; `default` None removes the default."""

    column: str
    default: str | None
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class AddKey:
    """Adds a key. A key without a name gets a name by the servers' rule.

    `supports_foreign_key`: the server creates this key for a foreign key, if no other key begins with its columns.
    """

    key: Key
    if_not_exists: bool = False
    supports_foreign_key: bool = False
    prefixes: tuple[int | None, ...] = ()
    """The length of each column in the key; empty: all columns in full length."""
    rule: str = ""
    """The rule by which the foreign key itself changes rows (`ON DELETE CASCADE`)."""


@dataclass(frozen=True, slots=True)
class DropKey:
    """Drops a key by its name; the primary key's name is PRIMARY.

    The dropped key may be a key over expressions. A structure has no such keys.
    """

    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropConstraint:
    """Drops a constraint. Only the server knows its kind.

    A unique key is dropped from the structure. Checks and foreign keys are not part of a structure.
    """

    name: str


@dataclass(frozen=True, slots=True)
class RenameKey:
    """Gives a key a new name; its columns stay."""

    old: str
    new: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class RenameTo:
    """Gives the table a new name."""

    name: TableName


@dataclass(frozen=True, slots=True)
class SetCharset:
    """Sets the charset that columns inherit when they are added later; `charset` None means the database's charset."""

    charset: str | None
    collation: str | None


@dataclass(frozen=True, slots=True)
class ConvertCharset:
    """Rewrites all text columns in a charset; `charset` None means the database's charset."""

    charset: str | None
    collation: str | None


@dataclass(frozen=True, slots=True)
class SetComment:
    """Sets the table's comment."""

    text: str


@dataclass(frozen=True, slots=True)
class PartitionRows:
    """Rows leave or enter the table without row events (DROP, TRUNCATE, EXCHANGE PARTITION, IMPORT TABLESPACE)."""

    text: str
    what: str
    other: TableName | None = None
    """The table from which rows are moved in, or to which rows are moved out."""
    makes_other: bool = False
    """Whether a partition becomes the new table `other`."""
    takes_other: bool = False
    """Whether `other` becomes a partition, and no longer exists as a table."""

    def refused(self, table: TableName) -> Halted:
        """Returns the error for a target that cannot make this change."""
        other = f", and with {self.other}" if self.other is not None else ""
        return Halted(
            "ddl-moves-rows",
            f"{self.what} removes rows from the table, or adds rows to it, without writing them to the log",
            where=Where(table=str(table)),
            todo=f"Make the same change on the target{other}; then run {SKIP}. Or skip the statement now, and copy the "
            f"table again: {RESYNC}",
        )


@dataclass(frozen=True, slots=True)
class AlterOption:
    """A clause that does not change the structure: engine, statistics, checks, foreign keys, partitioning."""

    text: str
    what: str


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
