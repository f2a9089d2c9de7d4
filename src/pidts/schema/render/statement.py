"""Renders statements for MySQL and MariaDB from structures and schema changes."""

from __future__ import annotations

from collections.abc import Container

import pidts.schema.statements as ddl
from pidts.model.table import Table, TableName
from pidts.schema.defaults import literal
from pidts.schema.render.alter import AlterWriter
from pidts.schema.render.definitions import charset_clause, column_clause, key_clause, quote, quote_table, type_text

__all__ = ["column_clause", "create_table", "quote", "quote_table", "render_statement", "type_text"]


def create_table(table: Table, name: TableName | None = None, collations: Container[str] | None = None) -> str:
    """Returns the CREATE TABLE for a structure, with the name `name` if it is given. `collations`: see `type_text`."""
    lines = [column_clause(column, collations) for column in table.columns]
    lines += [clause for key in table.keys if (clause := key_clause(key, table))]
    text = f"CREATE TABLE {quote_table(name or table.name)} (\n  " + ",\n  ".join(lines) + "\n)"
    if table.charset is not None or table.collation is not None:
        text += " DEFAULT" + charset_clause(table.charset, table.collation, collations)
    if table.comment:
        text += f" COMMENT = {literal(table.comment)}"
    return text


def render_statement(
    statement: ddl.Statement,
    before: Table | None = None,
    after: Table | None = None,
    collations: Container[str] | None = None,
    computed: Container[str] = (),
    *,
    mariadb: bool = False,
) -> str:
    """Returns the statement's text; empty if no part of it concerns structures.

    `before` is the structure before an ALTER TABLE. If it is given, the function evaluates IF EXISTS itself, since not
    every server has this clause. `after` is the structure after an ALTER TABLE. Columns are rendered from `after`, with
    their inherited charsets. CREATE OR REPLACE TABLE and RENAME TABLE IF EXISTS are not translated; only MariaDB
    accepts them. `computed` has the names, in lower case, of columns that the target's server computes itself; they are
    rendered as generated columns. `collations`: see `type_text`.
    """
    match statement:
        case ddl.CreateTable(table=name, structure=structure):
            prefix = _create_prefix(statement)
            return prefix + create_table(after or structure, name, collations).removeprefix("CREATE TABLE")
        case ddl.CreateTableLike(table=name, like=like):
            return f"{_create_prefix(statement)} {quote_table(name)} LIKE {quote_table(like)}"
        case ddl.DropTable(tables=tables, if_exists=if_exists):
            return f"DROP TABLE {'IF EXISTS ' if if_exists else ''}" + ", ".join(map(quote_table, tables))
        case ddl.TruncateTable(table=name):
            return f"TRUNCATE TABLE {quote_table(name)}"
        case ddl.RenameTable(pairs=pairs, if_exists=if_exists):
            return f"RENAME TABLE {'IF EXISTS ' if if_exists else ''}" + ", ".join(
                f"{quote_table(old)} TO {quote_table(new)}" for old, new in pairs
            )
        case ddl.AlterTable(table=name, actions=actions):
            writer = AlterWriter(name, before, after, collations, computed, mariadb=mariadb)
            clauses = [clause for action in actions if (clause := writer.clause(action))]
            return f"ALTER TABLE {quote_table(name)} " + ", ".join(clauses) if clauses else ""
        case ddl.CreateDatabase(name=schema):
            charset = charset_clause(statement.charset, statement.collation, collations)
            return f"CREATE DATABASE {'IF NOT EXISTS ' if statement.if_not_exists else ''}{quote(schema)}{charset}"
        case ddl.AlterDatabase(name=schema):
            charset = charset_clause(statement.charset, statement.collation, collations)
            return f"ALTER DATABASE {quote(schema)}{charset}" if charset else ""
        case ddl.DropDatabase(name=schema, if_exists=if_exists):
            return f"DROP DATABASE {'IF EXISTS ' if if_exists else ''}{quote(schema)}"
        case _:
            return ""


def _create_prefix(statement: ddl.CreateTable | ddl.CreateTableLike) -> str:
    replaces = "OR REPLACE " if statement.or_replace else ""
    return f"CREATE {replaces}TABLE{' IF NOT EXISTS' if statement.if_not_exists else ''}"
