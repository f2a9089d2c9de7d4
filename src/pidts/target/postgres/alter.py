"""Renders schema changes of the source as statements for PostgreSQL."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import pidts.schema.actions as alter
import pidts.schema.statements as ddl
from pidts.model import Column, Halted, Key, Kind, RenderedChange, Table, TableName, Where
from pidts.model.advice import REPLACE, RESYNC, SKIP
from pidts.schema.statement_time import StatementTime
from pidts.target.difference import difference, left_out
from pidts.target.postgres.convert import conversion
from pidts.target.postgres.create import column_definition, create_key, create_table
from pidts.target.postgres.dialect import (
    default_clause,
    identifier,
    implicit_default,
    is_left_out,
    is_nullable,
    label_check,
    literal,
    new_column,
    new_schema,
    qualified,
    type_name,
)
from pidts.target.postgres.generated import computed, fills, made_plain
from pidts.target.postgres.shape import PgKey, PgTable

_Structures = Mapping[TableName, Table | None]


def render(
    statement: ddl.Statement,
    before: _Structures,
    after: _Structures,
    found: Mapping[TableName, PgTable],
    executed_at: StatementTime,
    *,
    is_draft: bool = False,
) -> RenderedChange:
    """Returns the target's statements for a statement of the source.

    `found` has the current shapes of the target's tables. A change that a table already has is not made again. A draft
    contains the word VALUE in place of a value that only an operator knows.
    """
    match statement:
        case (
            ddl.CreateTable(table=name, or_replace=or_replace) | ddl.CreateTableLike(table=name, or_replace=or_replace)
        ):
            made = _create(after.get(name), replaces=or_replace and name in found)
            return RenderedChange(made.statements, (*made.notes, *left_out(statement)) if made.statements else ())
        case ddl.DropTable(tables=names):
            return RenderedChange(tuple(f"DROP TABLE IF EXISTS {qualified(name)}" for name in names))
        case ddl.TruncateTable(table=name):
            return RenderedChange((_emptied(name, found.get(name)),))
        case ddl.RenameTable(pairs=pairs):
            return RenderedChange(tuple(sql for old, new in pairs for sql in _rename(old, new)))
        case ddl.AlterTable(table=name, actions=actions):
            target_name = next((action.name for action in actions if isinstance(action, alter.RenameTo)), name)
            old, new = before.get(name), after.get(target_name)
            if old is None or new is None:
                return RenderedChange(())
            there = found.get(name)
            rendered = _Alter(statement, old, new.renamed(name), there, executed_at, is_draft=is_draft).render()
            moves = _rename(name, target_name) if target_name != name else []
            return replace(
                rendered,
                statements=(*rendered.statements, *moves),
                notes=(*rendered.notes, *left_out(statement)),
            )
        case ddl.CreateDatabase(name=schema):
            return RenderedChange((f"CREATE SCHEMA IF NOT EXISTS {new_schema(schema)}",))
        case ddl.DropDatabase(name=schema):
            gone = sorted(name for name, table in before.items() if table is not None and name.schema == schema)
            note = f"schema {schema} itself was not dropped: it may hold tables of other programs"
            return RenderedChange(tuple(f"DROP TABLE IF EXISTS {qualified(name)}" for name in gone), (note,))
        case ddl.AlterDatabase() | ddl.IgnoredStatement():
            return RenderedChange(())
        case _:
            raise Halted(
                "ddl-not-understood",
                f"PiDTS cannot translate this statement for PostgreSQL ({type(statement).__name__})",
                todo=f"Run a statement of your own: {REPLACE}. Or run nothing: {SKIP}",
            )


def _emptied(name: TableName, found: PgTable | None) -> str:
    """Returns the statement that empties a table.

    PostgreSQL refuses TRUNCATE for a table that a foreign key references, so the statement is a DELETE. PostgreSQL also
    refuses `ONLY` for a partitioned table.
    """
    if found is not None and found.referenced:
        return f"DELETE FROM {qualified(name)}"
    only = "" if found is not None and found.relation == "p" else "ONLY "
    return f"TRUNCATE TABLE {only}{qualified(name)}"


def _create(table: Table | None, *, replaces: bool) -> RenderedChange:
    if table is None:
        return RenderedChange(())
    made = create_table(table)
    drop = (f"DROP TABLE {qualified(table.name)}",) if replaces else ()
    return RenderedChange((*drop, *made.statements), made.notes)


def _rename(old: TableName, new: TableName) -> list[str]:
    sql = []
    if old.schema != new.schema:
        sql.append(f"CREATE SCHEMA IF NOT EXISTS {new_schema(new.schema)}")
        sql.append(f"ALTER TABLE {qualified(old)} SET SCHEMA {identifier(new.schema)}")
    if old.name != new.name:
        sql.append(f"ALTER TABLE {qualified(TableName(new.schema, old.name))} RENAME TO {identifier(new.name)}")
    return sql


class _Alter:
    """Renders ALTER TABLE in this order: drop keys; drop, rename, add and change columns; add keys; set the comment."""

    def __init__(
        self,
        statement: ddl.AlterTable,
        before: Table,
        after: Table,
        found: PgTable | None,
        executed_at: StatementTime,
        *,
        is_draft: bool,
    ) -> None:
        self._is_draft, self._cuts = is_draft, statement.cuts_fractions
        if is_draft and self._cuts is None:  # mostly, sessions do what is usual for the source's product
            self._cuts = statement.mariadb
        self._before, self._after, self._found, self._at = before, after, found, executed_at
        self._has: Collection[str] = {column.name for column in found.columns} if found else ()
        self._change = difference(statement, before, after)
        self._name = qualified(after.name)
        self._rekeys = self._is_rekeyed()
        self._left = {column.name for column in self._change.dropped}
        """The names of columns that the statement drops or renames."""
        self._gone: set[str] = set()
        """The names of the indexes that this statement drops."""
        self._sql: list[str] = []
        self._notes: list[str] = []
        self._fills = {fill.column.name: fill for fill in fills(statement, before, after, found)}
        self._computed = computed(statement, before, after, found)
        self._made_plain = made_plain(statement, before, after, found)

    def render(self) -> RenderedChange:
        change = self._change
        for name in self._made_plain:
            self._alter(f"ALTER COLUMN {identifier(name)} DROP EXPRESSION")
            self._notes.append(f"column {name} is not generated any more: from now on it gets the source's values")
        for key in change.keys_dropped:
            self._drop_key(key)
        if self._rekeys:
            self._alter(f"DROP CONSTRAINT {identifier(self._primary_name())}" if self._primary_name() else "")
        for column in change.dropped:
            self._alter(f"DROP COLUMN IF EXISTS {identifier(column.name)}")
        self._rename_columns()
        # A generated column must be added after the columns that it reads.
        for column in sorted(change.added, key=lambda one: one.name in self._computed):
            self._add(column)
        for old, new in change.kept:
            self._redefine(old, new)
        if self._rekeys and self._after.identity:
            self._alter(f"ADD PRIMARY KEY ({', '.join(map(identifier, self._after.identity))})")
        for key in dict.fromkeys((*change.keys_added, *self._freed())):
            self._add_key(key)
        if change.comment is not None:
            self._sql.append(f"COMMENT ON TABLE {self._name} IS {literal(change.comment)}")
        here = {column.name for column in self._found.columns if column.generated} if self._found else set()
        here.difference_update(self._made_plain)
        renamed = {new.name for old, new in change.kept if old.name in here}
        computed_after = self._computed | here.difference(self._left) | renamed
        return RenderedChange(tuple(self._sql), tuple(self._notes), computed=computed_after)

    def _alter(self, clause: str) -> None:
        if clause:
            self._sql.append(f"ALTER TABLE {self._name} {clause}")

    def _is_rekeyed(self) -> bool:
        """Whether the target's primary key has to be dropped.

        The key has to be dropped if the rows' identity changes, or if its columns are no longer a unique key of the
        source.

        If PiDTS did not create the table, its primary key may match a unique key of the source that does not identify
        the rows.
        """
        had = next((key.columns for key in self._found.keys if key.primary), ()) if self._found else ()
        stands_for = self._renamed(had)
        if had and stands_for == self._after.identity:
            return False
        if self._renamed(self._before.identity) != self._after.identity:
            return True
        if not any(key.unique and key.columns == had for key in self._before.keys):
            return False
        return not any(
            key.unique
            and key.columns == stands_for
            and not any(self._after.column(name).nullable for name in stands_for)
            for key in self._after.keys
        )

    def _renamed(self, columns: tuple[str, ...]) -> tuple[str, ...]:
        names = dict(self._change.renamed)
        return tuple(names.get(name, name) for name in columns)

    def _freed(self) -> list[Key]:
        """Returns unique keys that the target enforced only by its old primary key, so they must be created now."""
        if not self._rekeys:
            return []
        stood = {key.columns for key in self._found.keys if key.primary} if self._found else set()
        was = {self._renamed(columns) for columns in stood | {self._before.identity}} - {self._after.identity}
        return [key for key in self._after.keys if key.unique and key.columns in was]

    def _primary_name(self) -> str:
        return next((key.name for key in self._found.keys if key.primary), "") if self._found else ""

    def _drop_key(self, key: Key) -> None:
        if self._found is None:
            return
        for index in self._found.keys:
            if index.columns == key.columns and index.unique == key.unique and not index.primary:
                self._gone.add(index.name)
                schema = identifier(self._after.name.schema)
                if index.constraint:
                    self._alter(f"DROP CONSTRAINT {identifier(index.name)}")
                else:
                    self._sql.append(f"DROP INDEX {schema}.{identifier(index.name)}")
                return

    def _add_key(self, key: Key) -> None:
        sql, notes = create_key(self._after, key)
        have = [index for index in self._found.keys if not self._goes(index)] if self._found else []
        if not any(index.columns == key.columns and index.unique >= key.unique for index in have):
            self._sql.extend(sql)
        self._notes.extend(notes)

    def _goes(self, index: PgKey) -> bool:
        """Whether this statement drops the index, or drops or renames one of its columns."""
        return (index.primary and self._rekeys) or index.name in self._gone or not self._left.isdisjoint(index.columns)

    def _rename_columns(self) -> None:
        """Renames columns. If a new name is still taken (a swap), the column gets a free name first."""
        pairs = [(old, new) for old, new in self._change.renamed if not (new in self._has and old not in self._has)]
        taken = {old for old, _ in pairs}
        self._left |= taken
        parked = [(f"pidts_{number}", new) for number, (_, new) in enumerate(pairs)]
        if any(new in taken for _, new in pairs):
            for (old, _), (middle, _) in zip(pairs, parked, strict=True):
                self._alter(f"RENAME COLUMN {identifier(old)} TO {identifier(middle)}")
            pairs = parked
        for old, new in pairs:
            self._alter(f"RENAME COLUMN {identifier(old)} TO {new_column(new)}")

    def _add(self, column: Column) -> None:
        if column.name in self._has and column.name not in self._left:
            return
        if column.name not in self._computed:
            column = replace(column, computed="")
        definition, notes = column_definition(self._after, column)
        self._notes.extend(notes)
        if (known := self._fills.get(column.name)) is not None:
            # The column is added as a generated column and then made plain, since an UPDATE would run the table's
            # triggers.
            self._alter(f"ADD COLUMN {definition} GENERATED ALWAYS AS ({known.sql}) STORED")
            self._alter(f"ALTER COLUMN {identifier(column.name)} DROP EXPRESSION")
            if column.comment:
                self._comment(column)
            return
        if column.name in self._computed:
            self._alter(f"ADD COLUMN {definition}")
            if column.comment:
                self._comment(column)
            return
        if is_left_out(column):
            if self._is_draft:
                self._alter(f"ADD COLUMN {definition} DEFAULT VALUE")
                return
            raise Halted(
                "ddl-not-translatable",
                f"existing rows get {column.default} in the new column {column.name}, and PostgreSQL has no such value",
                where=Where(table=str(self._after.name)),
                todo="Write a value of PostgreSQL in place of VALUE",
            )
        fill = None if column.auto_increment else implicit_default(column, self._at)
        if fill is None and self._is_draft and not column.auto_increment:
            # Only the source knows the values. The table is copied again afterwards, and PostgreSQL needs some value.
            fill = implicit_default(replace(column, default=None), self._at)
        default, _ = default_clause(column)
        if fill is not None and fill != default:
            bare = definition.replace(f" DEFAULT {default}", "", 1) if default else definition
            self._alter(f"ADD COLUMN {bare} DEFAULT {fill}")
            settle = f"SET DEFAULT {default}" if default else "DROP DEFAULT"
            self._alter(f"ALTER COLUMN {identifier(column.name)} {settle}")
        else:
            self._alter(f"ADD COLUMN {definition}")
        if column.comment:
            self._comment(column)

    def _redefine(self, old: Column, new: Column) -> None:
        name = identifier(new.name)
        relabelled = old.type.kind is Kind.ENUM and (
            old.type.labels != new.type.labels or new.type.kind is not Kind.ENUM
        )
        if relabelled and self._found is not None:
            for check in self._found.checks_on(old.name):
                self._alter(f"DROP CONSTRAINT IF EXISTS {identifier(check)}")
        value = conversion(old, new, name, cuts=self._cuts)
        if value is None and self._is_draft:
            value = "VALUE"
        if value is None:
            raise Halted(
                "ddl-not-translatable",
                f"column {new.name} becomes {new.type.kind} from {old.type.kind}: PostgreSQL does not convert such "
                "values as the source does",
                where=Where(table=str(self._after.name)),
                todo=f"Replace VALUE by an expression that computes the new values from {name}, or by NULL if you "
                f"then copy the table again: {RESYNC}",
            )
        if value != name:
            if old.default is not None:
                self._alter(f"ALTER COLUMN {name} DROP DEFAULT")
            self._alter(f"ALTER COLUMN {name} TYPE {type_name(new.type)} USING {value}")
        if new.type.kind is Kind.ENUM and (relabelled or old.type.kind is not Kind.ENUM):
            self._alter(f"ADD CHECK ({label_check(new, name)})")
        nullable = is_nullable(self._after, new)
        if nullable != is_nullable(self._before, old):
            self._alter(f"ALTER COLUMN {name} {'DROP' if nullable else 'SET'} NOT NULL")
        self._redefault(old, new, changed=value != name)
        if old.comment != new.comment:
            self._comment(new)

    def _redefault(self, old: Column, new: Column, *, changed: bool) -> None:
        name = identifier(new.name)
        if old.auto_increment != new.auto_increment and "numeric" not in type_name(new.type):
            self._alter(
                f"ALTER COLUMN {name} "
                + ("ADD GENERATED BY DEFAULT AS IDENTITY" if new.auto_increment else "DROP IDENTITY IF EXISTS")
            )
        if not new.auto_increment and (old.default != new.default or (changed and new.default is not None)):
            default, note = default_clause(new)
            self._alter(f"ALTER COLUMN {name} " + (f"SET DEFAULT {default}" if default else "DROP DEFAULT"))
            self._notes += [note] if note else []

    def _comment(self, column: Column) -> None:
        self._sql.append(f"COMMENT ON COLUMN {self._name}.{identifier(column.name)} IS {literal(column.comment)}")
