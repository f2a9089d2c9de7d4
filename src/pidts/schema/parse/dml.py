"""Finds the tables whose rows a statement (INSERT, UPDATE, DELETE and so on) may have changed without row events."""

from __future__ import annotations

from pidts.model.table import TableName
from pidts.schema.parse.lexer import Lexeme, NotUnderstoodError
from pidts.schema.parse.token_cursor import TokenCursor
from pidts.schema.statements import StatementDml

DML_VERBS = frozenset({"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "WITH", "CALL", "DO", "SELECT", "VALUES"})
_BEFORE_TABLE = ("LOW_PRIORITY", "DELAYED", "HIGH_PRIORITY", "IGNORE", "INTO")
"""The words between a verb and its table. These words are reserved, so none of them is the unquoted name of a table."""
_QUERIES = ("SELECT", "WITH", "VALUES", "TABLE")
_AFTER_TABLES = {"UPDATE": ("SET",), "DELETE": ("WHERE", "ORDER", "LIMIT")}


def parse_dml(cursor: TokenCursor) -> StatementDml:
    """Returns a statement that changes rows: its verb, and the tables that it may change; none if they are not known.

    An UPDATE or DELETE that joins tables may name the changed tables by aliases, so all joined tables are returned.
    """
    verb = cursor.next().word
    try:
        if verb in _AFTER_TABLES:
            return StatementDml(verb, _joined_tables(cursor, verb))
        if verb == "LOAD":
            while not cursor.at_end() and not cursor.take("INTO", "TABLE"):
                cursor.next()
        elif verb not in ("INSERT", "REPLACE"):
            return StatementDml(verb)
        while cursor.take_any(*_BEFORE_TABLE):
            pass
        return StatementDml(verb, (cursor.table_name(),))
    except NotUnderstoodError:
        return StatementDml(verb)


def _joined_tables(cursor: TokenCursor, verb: str) -> tuple[TableName, ...]:
    """Returns the tables of an UPDATE or DELETE without the tables of its subqueries, which are only read."""
    while cursor.take_any(*_BEFORE_TABLE):
        pass
    # The names before FROM are tables or aliases of the list after FROM.
    while verb == "DELETE" and not cursor.take("FROM"):
        _skip(cursor, "FROM")
    ends = _AFTER_TABLES[verb] + (("RETURNING",) if verb == "DELETE" and cursor.dialect.mariadb else ())
    names, depth, is_joined = dict[TableName, None](), 0, False
    while True:
        while cursor.at_sign("(") and cursor.peek(1).word not in _QUERIES:
            cursor.next()
            depth += 1
        if not _skip_derived_table(cursor):
            names[cursor.table_name()] = None
        while not cursor.take_sign(","):
            if cursor.take_any("JOIN", "STRAIGHT_JOIN"):
                is_joined = True
                break
            if not depth and (cursor.peek().word in ends or (verb == "DELETE" and cursor.at_end())):
                return tuple(names)
            if verb == "DELETE" and not is_joined and cursor.take("USING"):
                names.clear()  # DELETE FROM aliases USING tables
                break
            if cursor.take_sign(")"):
                depth -= 1
            elif not cursor.take("FOR", "JOIN"):  # a part of an index hint
                _skip(cursor, ends[0])


def _skip_derived_table(cursor: TokenCursor) -> bool:
    """Skips a subquery, LATERAL and a subquery, or JSON_TABLE(…); returns False if a table's name comes next."""
    if cursor.peek(1).lexeme is Lexeme.SIGN and cursor.peek(1).text == "(" and cursor.peek().lexeme is Lexeme.WORD:
        cursor.next()
    if not cursor.at_sign("("):
        return False
    cursor.skip_parentheses()
    return True


def _skip(cursor: TokenCursor, wanted: str) -> None:
    """Skips a token, or parentheses with their content. After a dot or `@`, the next token belongs to the name."""
    if cursor.at_end():
        raise cursor.surprise(wanted)
    if cursor.at_sign("("):
        cursor.skip_parentheses()
    elif cursor.take_sign(".") or cursor.take_sign("@"):
        cursor.next()
    else:
        cursor.next()
