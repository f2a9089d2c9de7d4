"""Finds the tables whose rows a statement may have changed: INSERT, UPDATE, DELETE and such, without row events."""

from __future__ import annotations

from pidts.model.table import TableName
from pidts.schema.parse.lexer import Lexeme, NotUnderstoodError
from pidts.schema.parse.token_cursor import TokenCursor
from pidts.schema.statements import StatementDml

DML_VERBS = frozenset({"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "WITH", "CALL", "DO", "SELECT", "VALUES"})
_BETWEEN = ("LOW_PRIORITY", "DELAYED", "HIGH_PRIORITY", "IGNORE", "QUICK", "INTO", "FROM", "ONLY")
_BEFORE_TABLES = frozenset({"UPDATE", "DELETE", "FROM", "USING", "JOIN", "STRAIGHT_JOIN", *_BETWEEN})
_AFTER_DELETE = frozenset({"WHERE", "ORDER", "LIMIT", "RETURNING", "PARTITION"})


def parse_dml(cursor: TokenCursor) -> StatementDml:
    """Returns a statement that changes rows: its verb, and the tables that it may change; none if they are not known.

    An UPDATE or DELETE of joined tables may name them by aliases. So all names in it that may be tables are returned.
    """
    verb = cursor.next().word
    if verb == "LOAD":
        while not cursor.at_end() and not cursor.take("INTO", "TABLE"):
            cursor.next()
    elif verb not in ("INSERT", "REPLACE", "UPDATE", "DELETE"):
        return StatementDml(verb)
    while cursor.take_any(*_BETWEEN):
        pass
    try:
        names = cursor.table_names()
    except NotUnderstoodError:
        return StatementDml(verb)
    after = cursor.peek()
    if (verb == "UPDATE" and after.word != "SET") or (
        verb == "DELETE" and after.lexeme is not Lexeme.END and after.word not in _AFTER_DELETE
    ):
        try:
            names = tuple(dict.fromkeys((*names, *_possible_tables(cursor))))
        except NotUnderstoodError:
            return StatementDml(verb)
    return StatementDml(verb, names)


def _possible_tables(cursor: TokenCursor) -> list[TableName]:
    """Returns the rest's names with a point, and all names that follow a word or sign which may precede a table."""
    found, is_table = [], False
    while not cursor.at_end():
        token = cursor.peek()
        if token.word in _BEFORE_TABLES or (token.lexeme is Lexeme.SIGN and token.text in (",", "(")):
            cursor.next()
            is_table = True
            continue
        is_name = token.lexeme is Lexeme.NAME or (token.lexeme is Lexeme.WORD and token.word != "SELECT")
        following = cursor.peek(1)
        has_point = following.lexeme is Lexeme.SIGN and following.text == "."
        if is_name and has_point and _ends_in_name(cursor):
            found.append(cursor.table_name())
            while cursor.take_sign("."):
                cursor.next()  # a column, or the * of `table.*`
        elif is_name and is_table and not has_point:
            found.append(cursor.table_name())
        else:
            cursor.next()
        is_table = False
    return found


def _ends_in_name(cursor: TokenCursor) -> bool:
    return cursor.peek(2).lexeme in (Lexeme.NAME, Lexeme.WORD)
