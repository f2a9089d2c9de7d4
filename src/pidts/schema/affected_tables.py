"""Finds the tables that a statement in the log may change, even if the statement cannot be parsed."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import replace

import pidts.schema.statements as ddl
from pidts.model.table import TableName
from pidts.schema.dialect import Dialect
from pidts.schema.parse.classify import classify, statements_in
from pidts.schema.parse.lexer import NotUnderstoodError
from pidts.schema.parse.token_cursor import TokenCursor

_OF_A_DATABASE = re.compile(r"\W*(?:CREATE|ALTER|DROP)\W[^`'\"]*?\b(?:DATABASE|SCHEMA)\b", re.IGNORECASE)


def understood(text: str, default_schema: str, dialect: Dialect) -> list[ddl.Statement]:
    """Returns the statements of one transaction.

    The relay's index stores the statements of a transaction as one text, which this function splits if possible. Under
    ANSI_QUOTES a double quote opens a name. If a statement can be parsed only with ANSI_QUOTES, its session had this
    mode, since the server has run the statement.
    """
    whole = _classified(text, default_schema, dialect)
    if not isinstance(whole, ddl.Unknown):
        return [whole]
    try:
        parts = [_classified(part, schema, dialect) for part, schema in statements_in(text, default_schema, dialect)]
    except NotUnderstoodError:
        return [whole]
    return [whole] if any(isinstance(part, ddl.Unknown) for part in parts) else parts


def concerned(statement: ddl.Statement, text: str, there: Collection[TableName]) -> Iterator[tuple[TableName, bool]]:
    """Yields the tables that a statement may change or create, each with a flag: whether the table is certainly new.

    `there` has the known tables. A DROP DATABASE affects each known table of the database. A statement that cannot be
    parsed may affect each known table whose name occurs in the statement.
    """
    match statement:
        case ddl.CreateTable() | ddl.CreateTableLike():
            yield statement.table, not (statement.if_not_exists or statement.or_replace)
        case ddl.AlterTable(tables=names):
            yield names[0], False
            yield from ((name, True) for name in names[1:])
        case ddl.RenameTable(pairs=pairs):
            for old, new in pairs:
                yield old, False
                yield new, True
        case ddl.DropTable(tables=names):
            yield from ((name, False) for name in names)
        case ddl.DropDatabase(name=schema):
            yield from ((name, False) for name in there if name.schema == schema)
        case ddl.CreateDatabase(name=schema, or_replace=True):
            yield from ((name, False) for name in there if name.schema == schema)
        case ddl.Unknown(tables=names):
            of_database = _OF_A_DATABASE.match(text) is not None
            named = {name for name in there if mentions(text, name) or (of_database and _has_word(text, name.schema))}
            yield from ((name, False) for name in sorted({*names, *named}))


def temporary_tables(text: str, default_schema: str, dialect: Dialect) -> tuple[TableName, ...]:
    """Returns the temporary tables that the statements of a transaction create."""
    if "temporary" not in text.lower():
        return ()
    found = []
    with suppress(NotUnderstoodError):
        for part, schema in statements_in(text, default_schema, dialect):
            cursor = TokenCursor(part, dialect, schema, is_lazy=True)
            if cursor.take("CREATE", "OR", "REPLACE", "TEMPORARY", "TABLE") or cursor.take(
                "CREATE", "TEMPORARY", "TABLE"
            ):
                cursor.if_not_exists()
                found.append(cursor.table_name())
    return tuple(found)


def databases(statement: ddl.Statement, text: str, there: Collection[str]) -> tuple[str, ...]:
    """Returns the databases whose default charset a statement may change."""
    match statement:
        case ddl.CreateDatabase(name=name) | ddl.AlterDatabase(name=name) | ddl.DropDatabase(name=name):
            return (name,)
        case ddl.Unknown() if _OF_A_DATABASE.match(text):
            return tuple(name for name in there if _has_word(text, name))
    return ()


def mentions(text: str, name: TableName) -> bool:
    """Whether the table's name occurs in a text that cannot be parsed."""
    return _has_word(text, name.name)


def _has_word(text: str, word: str) -> bool:
    return re.search(rf"(?<![\w$]){re.escape(word)}(?![\w$])", text, re.IGNORECASE) is not None


def _classified(text: str, default_schema: str, dialect: Dialect) -> ddl.Statement:
    statement = classify(text, default_schema, dialect=dialect)
    if isinstance(statement, ddl.Unknown) and not dialect.ansi_quotes:
        meant = classify(text, default_schema, dialect=replace(dialect, ansi_quotes=True))
        return statement if isinstance(meant, ddl.Unknown) else meant
    return statement
