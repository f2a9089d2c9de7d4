"""Renders structures and schema changes in the SQL of the target's own server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pidts.schema.actions as alter
import pidts.schema.statements as ddl
from pidts.model import Column, ColumnType, Halted, Kind, RenderedChange, Table, TableName
from pidts.model.advice import REJOIN, REPLACE, SKIP
from pidts.schema import column_clause, create_table, quote, render_statement, type_text
from pidts.schema.literals import Expression, parse_default
from pidts.schema.statement_time import StatementTime, moment_text
from pidts.target.difference import difference, left_out
from pidts.target.mysql.server import TargetServer

_Structures = Mapping[TableName, Table | None]
MAX_NAME = 64


def identifier(name: str) -> str:
    """Quotes a name; every name in a statement is quoted by this function."""
    if not name or "\0" in name or len(name) > MAX_NAME:
        raise Halted(
            "bad-identifier",
            f"MySQL allows names of 1 to {MAX_NAME} characters without NUL, not {name!r}",
            todo=f"Change this name on the source. If the task has begun: {REJOIN}",
        )
    return quote(name)


def qualified(name: TableName) -> str:
    """Returns a table's name with its database, quoted."""
    return f"{identifier(name.schema)}.{identifier(name.name)}"


def adapted(table: Table, server: TargetServer, computed: frozenset[str] = frozenset()) -> tuple[Table, list[str]]:
    """Returns the structure with the types and defaults that this server has, and notes on what is different."""
    notes: list[str] = []
    columns = tuple(_adapted_column(column, table, server, notes, computed) for column in table.columns)
    charset, collation = _charset(table.charset, table.collation, server)
    return replace(table, columns=columns, charset=charset, collation=collation), notes


def _adapted_column(
    column: Column, table: Table, server: TargetServer, notes: list[str], computed: frozenset[str]
) -> Column:
    kind = _adapted_type(column.type, server)
    if kind.kind is not column.type.kind:
        notes.append(f"column {column.name}: {column.type.kind} becomes {kind.kind} on the target")
    elif kind.collation != column.type.collation:
        notes.append(f"column {column.name}: {_collation_note(column.type.collation, kind.collation)}")
    default = column.default
    if isinstance(parse_default(default), Expression):
        notes.append(f"column {column.name}: default {default} was left out")
        default = None
    if kind.kind is Kind.TIMESTAMP and default is None and not column.nullable and not server.explicit_timestamp:
        default = "'0000-00-00 00:00:00'"  # otherwise the server would give the column an automatic timestamp
    if column.generated and column.name.lower() not in computed:
        notes.append(f"column {column.name}: generated on the source, a plain column with equal values on the target")
    counts = column.auto_increment and any(key.columns[:1] == (column.name,) for key in table.keys)
    return replace(column, type=kind, default=default, auto_increment=counts)


def _collation_note(wanted: str | None, given: str | None) -> str:
    said = f"the target has no collation {wanted}, so the column gets {given or 'the usual collation of the target'}"
    if not (given or "").endswith("_bin") or (wanted or "").endswith(("_bin", "_cs")):
        return said
    return f"{said}. Texts like `a` and `A` may be equal on the source, and differ on the target (also in unique keys)"


def _adapted_type(kind: ColumnType, server: TargetServer) -> ColumnType:
    if kind.kind in (Kind.UUID, Kind.INET4, Kind.INET6) and not server.has_address_type(kind.kind):
        return ColumnType(Kind.VARCHAR, length=45, charset="ascii", collation="ascii_bin")
    if kind.kind is Kind.JSON and not server.has_json:
        return ColumnType(Kind.LONGTEXT, charset="utf8mb4", collation="utf8mb4_bin")
    if kind.kind is Kind.GEOMETRY and server.tidb:
        return ColumnType(Kind.LONGBLOB)
    if kind.kind is Kind.VECTOR and not server.has_vector:
        return ColumnType(Kind.VARBINARY, length=4 * (kind.length or 2048))
    if not kind.is_text:
        return replace(kind, length=kind.length if not kind.is_integer or kind.length == 1 else None)
    charset, collation = _charset(kind.charset, kind.collation, server)
    return replace(kind, charset=charset, collation=collation)


def _charset(charset: str | None, collation: str | None, server: TargetServer) -> tuple[str | None, str | None]:
    """Returns the charset and collation on this server: `utf8` becomes `utf8mb3`, an unknown charset utf8mb4."""
    if collation is None or collation in server.collations:
        return charset, collation
    for old, new in (("utf8mb3", "utf8"), ("utf8", "utf8mb3")):
        if charset == old and (other := collation.replace(old, new, 1)) in server.collations:
            return new, other
    known = charset if any(each.partition("_")[0] == charset for each in server.collations) else "utf8mb4"
    return known, _strictest(known or "utf8mb4", server)


def _strictest(charset: str, server: TargetServer) -> str | None:
    """Returns a collation that may replace every other collation of the charset; None if the server has none.

    If values differ under another collation, they also differ under this one, even `a` and `a `.
    """
    wanted = (f"{charset}_nopad_bin", f"{charset}_0900_bin", f"{charset}_bin")
    return next((each for each in wanted if each in server.collations), None)


def create(table: Table, server: TargetServer) -> RenderedChange:
    """Returns the statements that create the database, and the table with its keys."""
    identifiers = (table.name.schema, table.name.name, *(column.name for column in table.columns))
    for name in identifiers:
        identifier(name)
    made, notes = adapted(table, server)
    return RenderedChange(
        (
            f"CREATE DATABASE IF NOT EXISTS {identifier(table.name.schema)}",
            create_table(made, collations=server.collations) + " ENGINE=InnoDB",
        ),
        tuple(notes),
    )


def column_types(table: Table, server: TargetServer) -> tuple[str, ...]:
    """Returns the columns' types; the type of a text includes the collation that it gets on this server."""
    made, _ = adapted(table, server)
    return tuple(type_text(column.type, server.collations) for column in made.columns)


def render(
    statement: ddl.Statement,
    before: _Structures,
    after: _Structures,
    server: TargetServer,
    executed_at: StatementTime,
    computed: frozenset[str] = frozenset(),
) -> RenderedChange:
    """Returns the target's statements for a statement of the source.

    Each statement concerns one table, so that the statement is atomic on every server. `computed` are the columns, in
    lower case, that this server computes itself.
    """
    match statement:
        case ddl.CreateTable(table=name) | ddl.CreateTableLike(table=name):
            table = after.get(name)
            if table is None:
                return RenderedChange(())
            made = create(table, server)
            drop = (f"DROP TABLE IF EXISTS {qualified(name)}",) if statement.or_replace else ()
            return RenderedChange((*drop, *made.statements), (*made.notes, *left_out(statement)))
        case ddl.DropTable(tables=names):
            return RenderedChange(tuple(f"DROP TABLE IF EXISTS {qualified(name)}" for name in names))
        case ddl.TruncateTable(table=name):
            return RenderedChange((f"TRUNCATE TABLE {qualified(name)}",))
        case ddl.RenameTable(pairs=pairs):
            return RenderedChange(tuple(sql for old, new in pairs for sql in _rename(old, new)))
        case ddl.AlterTable(table=name, actions=actions):
            goal = next((action.name for action in actions if isinstance(action, alter.RenameTo)), name)
            old, new = before.get(name), after.get(goal)
            return (
                _alter(statement, old, new, server, executed_at, computed)
                if old is not None and new is not None
                else RenderedChange(())
            )
        case ddl.CreateDatabase(name=schema):
            return RenderedChange((f"CREATE DATABASE IF NOT EXISTS {identifier(schema)}",))
        case ddl.DropDatabase(name=schema):
            gone = sorted(name for name, table in before.items() if table is not None and name.schema == schema)
            note = f"database {schema} itself was not dropped: it may hold tables of other programs"
            return RenderedChange(tuple(f"DROP TABLE IF EXISTS {qualified(name)}" for name in gone), (note,))
        case ddl.AlterDatabase() | ddl.IgnoredStatement():
            return RenderedChange(())
        case _:
            raise Halted(
                "ddl-not-understood",
                f"PiDTS cannot translate this statement for the target ({type(statement).__name__})",
                todo=f"Run a statement of your own: {REPLACE}. Or run nothing: {SKIP}",
            )


def _rename(old: TableName, new: TableName) -> list[str]:
    make = [f"CREATE DATABASE IF NOT EXISTS {identifier(new.schema)}"] if old.schema != new.schema else []
    return [*make, f"RENAME TABLE {qualified(old)} TO {qualified(new)}"]


def _separated(statement: ddl.AlterTable, name: TableName) -> list[ddl.AlterTable]:
    """Divides a statement that makes a column and adds a key over it: TiDB finds the column only in a later statement.

    `name` is the table's name after the statement.
    """
    made = set[str]()
    for action in statement.actions:
        match action:
            case alter.AddColumn(column=column) | alter.ModifyColumn(column=column) | alter.ChangeColumn(column=column):
                made.add(column.name.lower())
            case alter.RenameColumn(new=new):
                made.add(new.lower())
    late = tuple(
        action
        for action in statement.actions
        if isinstance(action, alter.AddKey) and made.intersection(map(str.lower, action.key.columns))
    )
    if not late:
        return [statement]
    first = tuple(action for action in statement.actions if action not in late)
    return [replace(statement, actions=first), replace(statement, table=name, actions=late)]


def _alter(
    statement: ddl.AlterTable,
    before: Table,
    after: Table,
    server: TargetServer,
    executed_at: StatementTime,
    computed: frozenset[str],
) -> RenderedChange:
    """Renders ALTER TABLE.

    A new column that defaults to the current time gets the time at which the source ran the statement. The returned
    notes are only about columns that the statement changes.
    """
    old, known = adapted(before, server, computed)
    new, notes = adapted(after, server, computed)
    added = difference(statement, before, after).added
    clocks = {one.name: moment_text(time) for one in added if (time := executed_at.filling(one)) is not None}
    filled = tuple(replace(one, default=f"'{clocks[one.name]}'") if one.name in clocks else one for one in new.columns)
    mariadb, made = server.dialect.mariadb, replace(new, columns=filled)
    statements = [
        render_statement(each, old, made, server.collations, computed, mariadb=mariadb)
        for each in (_separated(statement, after.name) if server.tidb else [statement])
    ]
    statements += [
        f"ALTER TABLE {qualified(after.name)} MODIFY COLUMN {column_clause(new.column(name), server.collations)}"
        for name in sorted(clocks)
    ]
    changed = (note for note in notes if note not in known)
    return RenderedChange(tuple(filter(None, statements)), (*changed, *left_out(statement)))
