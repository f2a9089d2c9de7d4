"""Computes the structures of tables after a statement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pidts.schema.statements as ddl
from pidts.model.advice import REJOIN, RESYNC, SKIP
from pidts.model.errors import Halted, Where
from pidts.model.table import Table, TableName
from pidts.schema.actions import PartitionRows
from pidts.schema.altered_keys import closed_keys, copied_keys
from pidts.schema.charset_rules import Charset, close_table, completed
from pidts.schema.dialect import MYSQL, Dialect
from pidts.schema.evolve.apply_alter import altered

Changes = dict[TableName, Table | None]
"""The structures of new and altered tables after the statement; None for a dropped table."""


def apply(
    statement: ddl.Statement,
    structures: Mapping[TableName, Table],
    schema_charsets: Mapping[str, Charset],
    *,
    dialect: Dialect = MYSQL,
) -> Changes:
    """Returns the changes that the statement makes to structures.

    `schema_charsets` contains the charset and the collation of databases. For a database that is missing there, the
    server's default is used.
    """
    match statement:
        case ddl.CreateTable():
            return _create(statement, statement.structure, structures, schema_charsets, dialect)
        case ddl.CreateTableLike(like=like):
            known = _known(like, structures)
            pattern = replace(known, keys=copied_keys(known))
            return _create(statement, pattern, structures, schema_charsets, dialect)
        case ddl.AlterTable():
            return _alter(statement, structures, schema_charsets, dialect)
        case ddl.RenameTable():
            return _rename(statement, structures)
        case ddl.DropTable(tables=tables):
            return {name: None for name in tables if name in structures}
        case ddl.DropDatabase(name=schema):
            return {name: None for name in structures if name.schema == schema}
        case ddl.CreateDatabase(name=schema, or_replace=True):
            return {name: None for name in structures if name.schema == schema}
        case ddl.CreateDatabase() | ddl.AlterDatabase() | ddl.TruncateTable() | ddl.IgnoredStatement():
            return {}
        case ddl.StatementDml() | ddl.Unknown():
            raise _refused(statement)


def apply_charset(
    statement: ddl.Statement, schema_charsets: Mapping[str, Charset], *, dialect: Dialect = MYSQL
) -> dict[str, Charset | None]:
    """Returns the databases whose default charset the statement changes; None for a dropped database."""
    server = server_charset(dialect)
    match statement:
        case ddl.CreateDatabase(name=name, if_not_exists=True) if name in schema_charsets:
            return {}
        case ddl.CreateDatabase(name=name, charset=charset, collation=collation):
            return {name: completed(charset, collation, server, dialect)}
        case ddl.AlterDatabase(name=name, charset=charset, collation=collation):
            # COLLATE DEFAULT without a charset means the server's collation on MySQL 5.6, and the default collation of
            # the database's charset on MariaDB.
            if charset == "default" or (charset is None and collation == "default" and not dialect.mariadb):
                return {name: completed(None, collation, server, dialect)}
            return {name: completed(charset, collation, schema_charsets.get(name, server), dialect)}
        case ddl.DropDatabase(name=name):
            return {name: None}
        case _:
            return {}


def server_charset(dialect: Dialect) -> Charset:
    """Returns the charset and collation that databases inherit."""
    return dialect.charset, dialect.collation or dialect.collation_of(dialect.charset)


def _create(
    statement: ddl.CreateTable | ddl.CreateTableLike,
    pattern: Table,
    structures: Mapping[TableName, Table],
    schema_charsets: Mapping[str, Charset],
    dialect: Dialect,
) -> Changes:
    name = statement.table
    if name in structures and not statement.or_replace:
        if statement.if_not_exists:
            return {}
        raise Halted(
            "ddl-does-not-fit",
            "the source created a table that already exists in the recorded structures",
            where=Where(table=str(name)),
            todo=f"The recorded structure no longer matches the source: {REJOIN}",
        )
    inherited = schema_charsets.get(name.schema, server_charset(dialect))
    table = close_table(pattern.renamed(name), inherited, dialect)
    return {name: replace(table, keys=closed_keys(table, dialect))}


def _alter(
    statement: ddl.AlterTable,
    structures: Mapping[TableName, Table],
    schema_charsets: Mapping[str, Charset],
    dialect: Dialect,
) -> Changes:
    name = statement.table
    if statement.if_exists and name not in structures:
        return {}
    before = _known(name, structures)
    inherited = schema_charsets.get(name.schema, server_charset(dialect))
    after = altered(before, statement.actions, dialect, inherited)
    # An ALTER TABLE counts as a change even if the structures are equal: `DROP a, ADD a int` empties a column without
    # changing the structure.
    changes: Changes = {after.name: after} if after.name == name else {name: None, after.name: after}
    for action in statement.actions:
        if isinstance(action, PartitionRows) and action.other is not None:
            if action.makes_other:
                changes[action.other] = after.renamed(action.other)
            elif action.takes_other and action.other in structures:
                changes[action.other] = None
    return changes


def _rename(statement: ddl.RenameTable, structures: Mapping[TableName, Table]) -> Changes:
    """Returns the changes of a RENAME, pair by pair: `a TO x, b TO a, x TO b` is a swap."""
    now: dict[TableName, Table | None] = {}
    for old, new in statement.pairs:
        table = now[old] if old in now else structures.get(old)
        if table is None:
            if statement.if_exists:
                continue
            raise _missing(old)
        now[old], now[new] = None, table.renamed(new)
    return {name: table for name, table in now.items() if table is not None or name in structures}


def _known(name: TableName, structures: Mapping[TableName, Table]) -> Table:
    if name not in structures:
        raise _missing(name)
    return structures[name]


def _missing(name: TableName) -> Halted:
    return Halted(
        "ddl-does-not-fit",
        "the statement names a table that the recorded structures lack",
        where=Where(table=str(name)),
        todo=f"If a view was renamed: run {SKIP}. For a table, the recorded structure no longer matches the "
        f"source: {REJOIN}",
    )


def _refused(statement: ddl.StatementDml | ddl.Unknown) -> Halted:
    table = ", ".join(map(str, statement.tables))
    if isinstance(statement, ddl.StatementDml):
        return Halted(
            "statement-format",
            f"the log contains a statement ({statement.verb}) that changed rows, but not the changed rows",
            where=Where(table=table),
            todo="Run SET GLOBAL binlog_format = 'ROW' on the source, and let its sessions reconnect. For a task, "
            f"run {SKIP}; then copy the table again: {RESYNC}. A program that only reads the log can begin after the "
            "statement",
        )
    return Halted(
        "ddl-not-understood",
        f"{statement.reason}, in: {statement.sql[:200]}",
        where=Where(table=table),
        todo=f"For a task: make the change on the target by hand, then run {SKIP}; or leave the table out. A program "
        "that only reads the log can begin after the statement",
    )
