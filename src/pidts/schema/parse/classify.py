"""Parses a statement of the log. A statement that is not fully understood becomes `Unknown`: no part is guessed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pidts.schema.statements as ddl
from pidts.model.errors import Halted
from pidts.model.table import TableName
from pidts.schema.dialect import MYSQL, Dialect
from pidts.schema.parse.alter_table import parse_alter_table, parse_create_index, parse_drop_index, take_wait
from pidts.schema.parse.create_table import parse_create_table
from pidts.schema.parse.dml import DML_VERBS, parse_dml
from pidts.schema.parse.lexer import Lexeme, NotUnderstoodError, split
from pidts.schema.parse.table_options import parse_default_charset
from pidts.schema.parse.token_cursor import TokenCursor

SEQUENCE = "a sequence"
TEMPORARY, _LOCK = "a temporary table", "a lock"
WITH_OTHERS = (ddl.IgnoredStatement(TEMPORARY), ddl.IgnoredStatement(_LOCK))
"""The ignored statements after which other statements of the same transaction may follow."""
_SETTINGS_THAT_GIVE_MEANING = frozenset({"sql_mode", "old_mode", "time_zone", "explicit_defaults_for_timestamp"})
_CHARSET_SETTINGS = ("character_set_", "collation_")
_WHOLE = {
    "BEGIN": "transaction control",
    "START": "transaction control",
    "COMMIT": "transaction control",
    "ROLLBACK": "transaction control",
    "SAVEPOINT": "transaction control",
    "RELEASE": "transaction control",
    "XA": "transaction control",
    "SET": "a setting",
    "USE": "a setting",
    "FLUSH": "administration",
    "RESET": "administration",
    "PURGE": "administration",
    "CHANGE": "administration",
    "STOP": "administration",
    "KILL": "administration",
    "SHUTDOWN": "administration",
    "RESTART": "administration",
    "CLONE": "administration",
    "CACHE": "administration",
    "INSTALL": "administration",
    "UNINSTALL": "administration",
    "LOCK": "administration",
    "UNLOCK": "administration",
    "OPTIMIZE": "table maintenance",
    "ANALYZE": "table maintenance",
    "REPAIR": "table maintenance",
    "CHECK": "table maintenance",
    "CHECKSUM": "table maintenance",
    "GRANT": "accounts",
    "REVOKE": "accounts",
}
_OBJECTS = {
    "VIEW": "a view",
    "TRIGGER": "a trigger",
    "PROCEDURE": "a stored routine",
    "FUNCTION": "a stored routine",
    "AGGREGATE": "a stored routine",
    "PACKAGE": "a stored routine",
    "LIBRARY": "a stored routine",
    "EVENT": "an event",
    "USER": "accounts",
    "ROLE": "accounts",
    "SERVER": "a server definition",
    "CATALOG": "a catalog",
    "TABLESPACE": "a tablespace",
    "UNDO": "a tablespace",
    "LOGFILE": "a tablespace",
    "RESOURCE": "a resource group",
    "INSTANCE": "administration",
    "SEQUENCE": SEQUENCE,
    "TEMPORARY": TEMPORARY,
}


def classify(sql: str, default_schema: str, *, dialect: Dialect = MYSQL) -> ddl.Statement:
    """Returns the statement of this text; `default_schema` is the session's database when the statement ran."""
    try:
        cursor = TokenCursor(sql, dialect, default_schema, is_lazy=True)
        if cursor.peek().word not in DML_VERBS:  # the rows of an INSERT may contain a million tokens
            cursor.read_rest()
    except NotUnderstoodError as error:
        return ddl.Unknown(sql, str(error))
    try:
        first = _statement(cursor)
        if ";" in sql and (isinstance(first, ddl.StatementDml) or first in WITH_OTHERS):
            parts = statements_in(sql, default_schema, dialect)
            return first if len(parts) < 2 else _of_transaction(parts, dialect)
        return first
    except NotUnderstoodError as error:
        return ddl.Unknown(sql, str(error), _tables_named(sql, default_schema, dialect))
    except Halted as error:
        return ddl.Unknown(sql, error.what, _tables_named(sql, default_schema, dialect))


def statements_in(text: str, default_schema: str, dialect: Dialect) -> list[tuple[str, str]]:
    """Returns the statements of a transaction, each with the database of its session.

    Between two statements with different databases, `text` has a USE.
    """
    found: list[tuple[str, str]] = []
    for part in split(text, dialect):
        cursor = TokenCursor(part, dialect, is_lazy=True)
        if cursor.take("USE"):
            default_schema = cursor.name()
        else:
            found.append((part, default_schema))
    return found


def _of_transaction(parts: Sequence[tuple[str, str]], dialect: Dialect) -> ddl.Statement:
    """Returns one statement for all statements of a transaction, with all tables whose rows they may change.

    The result has no tables if the tables of a statement are not known.
    """
    verb, names = "", dict[TableName, None]()
    for part, schema in parts:
        statement = classify(part, schema, dialect=dialect)
        if isinstance(statement, ddl.StatementDml) and statement.tables:
            names.update(dict.fromkeys(statement.tables))
        elif not isinstance(statement, ddl.IgnoredStatement):
            return ddl.StatementDml(verb or TokenCursor(part, dialect, is_lazy=True).peek().word)
        if isinstance(statement, ddl.StatementDml):
            verb = verb or statement.verb
    return ddl.StatementDml(verb, tuple(names)) if names else ddl.IgnoredStatement(TEMPORARY)


def _statement(cursor: TokenCursor) -> ddl.Statement:
    if setting := _skip_settings(cursor):
        raise NotUnderstoodError(f"SET STATEMENT {setting} changes the meaning of the statement that follows")
    if cursor.at_end():
        return ddl.IgnoredStatement("empty")
    if (reason := ignored_reason(cursor)) is not None:
        return _sequences(cursor, reason) if reason == SEQUENCE else ddl.IgnoredStatement(reason)
    _skip_analyze(cursor)
    if word := cursor.take_any(*_PARSERS):
        return _PARSERS[word](cursor)
    if cursor.peek().word in DML_VERBS:
        return parse_dml(cursor)
    raise cursor.surprise("a statement that is known")


def _skip_settings(cursor: TokenCursor) -> str:
    """Skips `SET STATEMENT name = value, ... FOR`; returns a setting that changes the meaning of the statement, or "".

    MariaDB logs the text with these settings, as it was sent. The text must not be ignored like a SET statement: a
    TRUNCATE may follow after FOR.
    """
    found = ""
    while cursor.take("SET", "STATEMENT"):
        while not cursor.take("FOR"):
            name = cursor.peek().text.lower()
            if cursor.at_end():
                raise cursor.surprise("FOR")
            if name in _SETTINGS_THAT_GIVE_MEANING or name.startswith(_CHARSET_SETTINGS):
                found = found or name
            if cursor.at_sign("("):
                cursor.skip_parentheses()
            else:
                cursor.next()
    return found


def _skip_analyze(cursor: TokenCursor) -> None:
    """Skips MariaDB's `ANALYZE FORMAT=JSON`, before a statement that MariaDB then runs and measures."""
    if cursor.take("ANALYZE") and cursor.take("FORMAT"):
        cursor.take_sign("=")
        cursor.next()


def _sequences(cursor: TokenCursor, reason: str) -> ddl.Statement:
    """Parses CREATE, ALTER and DROP SEQUENCE up to the names; the rest of the statement is ignored."""
    verb = cursor.take_any("CREATE", "ALTER", "DROP")
    cursor.take("OR", "REPLACE")
    cursor.take("TEMPORARY")
    if not cursor.take("SEQUENCE"):
        return ddl.IgnoredStatement(reason)
    if verb == "DROP":
        cursor.if_exists()
        return ddl.SequenceChange(reason, gone=cursor.table_names())
    if verb == "CREATE":
        may_be_there = cursor.if_not_exists()
        name = cursor.table_name()
        return (
            ddl.SequenceChange(reason, unless_table=(name,))
            if may_be_there
            else ddl.SequenceChange(reason, made=(name,))
        )
    may_be_absent = cursor.if_exists()
    name = cursor.table_name()
    return ddl.SequenceChange(reason) if may_be_absent else ddl.SequenceChange(reason, there=(name,))


def _create(cursor: TokenCursor) -> ddl.Statement:
    or_replace = cursor.take("OR", "REPLACE")
    cursor.take_any("ONLINE", "OFFLINE")
    if cursor.take("TABLE"):
        return parse_create_table(cursor, or_replace=or_replace)
    if cursor.take_any("DATABASE", "SCHEMA"):
        if_not_exists = cursor.if_not_exists()
        name = cursor.schema_name()
        charset, collation = _database_options(cursor)
        return ddl.CreateDatabase(name, None if charset == "default" else charset, collation, if_not_exists, or_replace)
    if or_replace and not cursor.dialect.mariadb:
        raise cursor.surprise("VIEW")
    return parse_create_index(cursor, or_replace=or_replace)


def _alter(cursor: TokenCursor) -> ddl.Statement:
    words: set[str] = set()
    while word := cursor.take_any("ONLINE", "OFFLINE", "IGNORE"):
        words.add(word)
    if cursor.take("TABLE"):
        return replace(parse_alter_table(cursor), ignore="IGNORE" in words)
    if not cursor.take_any("DATABASE", "SCHEMA"):
        raise cursor.surprise("TABLE or DATABASE")
    name = cursor.default_schema if _at_database_option(cursor) else cursor.schema_name()
    if not name:
        raise cursor.surprise("a database")
    charset, collation = _database_options(cursor)
    return ddl.AlterDatabase(name, charset, collation)


def _drop(cursor: TokenCursor) -> ddl.Statement:
    cursor.take_any("ONLINE", "OFFLINE")
    if cursor.take_any("TABLE", "TABLES"):
        if_exists = cursor.if_exists()
        tables = cursor.table_names()
        take_wait(cursor)
        cursor.take_any("RESTRICT", "CASCADE")
        cursor.expect_end()
        return ddl.DropTable(tables, if_exists)
    if cursor.take("INDEX"):
        return parse_drop_index(cursor)
    if not cursor.take_any("DATABASE", "SCHEMA"):
        raise cursor.surprise("TABLE, INDEX or DATABASE")
    if_exists = cursor.if_exists()
    name = cursor.schema_name()
    cursor.expect_end()
    return ddl.DropDatabase(name, if_exists)


def _truncate(cursor: TokenCursor) -> ddl.Statement:
    cursor.take("TABLE")
    name = cursor.table_name()
    take_wait(cursor)
    cursor.expect_end()
    return ddl.TruncateTable(name)


def _rename(cursor: TokenCursor) -> ddl.Statement:
    if not cursor.take_any("TABLE", "TABLES"):
        raise cursor.surprise("TABLE")
    if_exists = cursor.if_exists()
    pairs = []
    while True:
        old = cursor.table_name()
        take_wait(cursor)
        cursor.expect("TO")
        pairs.append((old, cursor.table_name()))
        if not cursor.take_sign(","):
            break
    cursor.expect_end()
    return ddl.RenameTable(tuple(pairs), if_exists)


_PARSERS: dict[str, Callable[[TokenCursor], ddl.Statement]] = {
    "CREATE": _create,
    "ALTER": _alter,
    "DROP": _drop,
    "TRUNCATE": _truncate,
    "RENAME": _rename,
}

_DATABASE_OPTIONS = ("COMMENT", "ENCRYPTION", "READ", "DEFAULT", "CHARACTER", "CHARSET", "CHAR", "COLLATE")


def _at_database_option(cursor: TokenCursor) -> bool:
    """Whether an ALTER DATABASE names no database: it then alters the current database."""
    words = _DATABASE_OPTIONS
    return cursor.peek().word in words and cursor.peek(1).lexeme is not Lexeme.END and cursor.peek(1).word != "UPGRADE"


def _database_options(cursor: TokenCursor) -> tuple[str | None, str | None]:
    charset = collation = None
    while not cursor.at_end():
        if found := parse_default_charset(cursor):
            charset, collation = found[0] or (charset if found[1] else "default"), found[1] or collation
        elif cursor.take("READ", "ONLY"):
            cursor.take_sign("=")
            cursor.next()
        elif cursor.take("UPGRADE", "DATA", "DIRECTORY", "NAME"):
            continue
        else:
            cursor.take("DEFAULT")
            if not cursor.take_any("COMMENT", "ENCRYPTION"):
                raise cursor.surprise("a database option")
            cursor.take_sign("=")
            cursor.text()
    return charset, collation


def _tables_named(sql: str, default_schema: str, dialect: Dialect) -> tuple[TableName, ...]:
    """Returns the tables after the first word TABLE, TABLES or ON, so that rules for these tables can be applied.

    Returns no tables if the text has several statements, or if its statement changes rows: in INSERT, ON DUPLICATE
    KEY UPDATE names no table.
    """
    try:
        cursor = TokenCursor(sql, dialect, default_schema)
        if not _is_alone(cursor):
            return ()
        _skip_settings(cursor)
        _skip_analyze(cursor)
        if cursor.peek().word in DML_VERBS:
            return ()
        while not cursor.at_end():
            if cursor.next().word in ("TABLE", "TABLES", "ON"):
                _ = cursor.if_not_exists() or cursor.if_exists()
                return cursor.table_names()
    except NotUnderstoodError:
        pass
    return ()


def ignored_reason(cursor: TokenCursor) -> str | None:
    """Returns why replication can ignore the statement; None if the statement must not be ignored."""
    first = cursor.peek().word
    if first == "ANALYZE" and cursor.peek(1).word not in ("TABLE", "TABLES", "LOCAL", "NO_WRITE_TO_BINLOG"):
        return None
    if first in _WHOLE:
        return _WHOLE[first] if _is_alone(cursor) else None
    if first == "DO" and cursor.peek(1).word == "RELEASE_LOCK":
        return _LOCK
    if first in ("CREATE", "ALTER", "DROP", "RENAME"):
        return _OBJECTS.get(_object_word(cursor)) or _spatial_reference(cursor)
    return None


def _is_alone(cursor: TokenCursor) -> bool:
    """Whether a text is a single statement: the text `SET …; ALTER TABLE …` must not be ignored as a SET statement."""
    ahead = 0
    while (token := cursor.peek(ahead)).lexeme is not Lexeme.END:
        ahead += 1
        if token.lexeme is Lexeme.SIGN and token.text == ";":
            return cursor.peek(ahead).lexeme is Lexeme.END
    return True


def _object_word(cursor: TokenCursor) -> str:
    """Returns the object's kind, such as VIEW, after OR REPLACE, DEFINER = `a`@`b`, ALGORITHM = x, SQL SECURITY x."""
    ahead = 1
    while True:
        word = cursor.peek(ahead).word
        if word == "OR":
            ahead += 2
        elif word in ("SQL", "ALGORITHM"):
            ahead += 3
        elif word == "DEFINER":
            ahead += _definer_length(cursor, ahead)
        else:
            return word


def _definer_length(cursor: TokenCursor, ahead: int) -> int:
    """Returns the number of tokens of `DEFINER = user@host` or `DEFINER = CURRENT_USER()`."""
    follower = cursor.peek(ahead + 3).text
    if follower == "@":
        return 5 + _host_tail(cursor, ahead + 5)
    return 5 if follower == "(" else 3


def _host_tail(cursor: TokenCursor, ahead: int) -> int:
    """Returns the number of tokens of an unquoted host. A host such as 10.0.0.% has several tokens."""
    length, end = 0, cursor.peek(ahead - 1).end
    while cursor.peek(ahead + length).start == end and cursor.peek(ahead + length).text:
        end = cursor.peek(ahead + length).end
        length += 1
    return length


def _spatial_reference(cursor: TokenCursor) -> str | None:
    if any(cursor.peek(ahead).word == "REFERENCE" for ahead in (2, 4)):
        return "a spatial reference system"
    return None
