"""Finds the tables whose rows a statement may have changed: INSERT, UPDATE, DELETE and such, without row events."""

from __future__ import annotations

from pidts.model.table import TableName
from pidts.schema.parse.lexer import Lexeme, NotUnderstoodError
from pidts.schema.parse.token_cursor import TokenCursor
from pidts.schema.statements import StatementDml

DML_VERBS = frozenset({"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "WITH", "CALL", "DO", "SELECT", "VALUES"})
_BETWEEN = ("LOW_PRIORITY", "DELAYED", "HIGH_PRIORITY", "IGNORE", "QUICK", "INTO", "FROM", "ONLY")
_BEFORE_TABLES = frozenset({"UPDATE", "DELETE", "FROM", "USING", "JOIN", "STRAIGHT_JOIN", *_BETWEEN})
_NO_TABLE = frozenset({"SELECT", *_BEFORE_TABLES})
_NAMES = (Lexeme.NAME, Lexeme.WORD)
_AFTER_DELETE = frozenset({"WHERE", "ORDER", "LIMIT", "RETURNING", "PARTITION"})


def parse_dml(cursor: TokenCursor) -> StatementDml:
    """Returns a statement that changes rows: its verb, and the tables that it may change; none if they are not known.

    An UPDATE or DELETE of joined tables may name them by aliases. So all of its tables are returned.
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
            names = _Names(cursor, names).read()
        except NotUnderstoodError:
            return StatementDml(verb)
    return StatementDml(verb, names)


class _Names:
    """Collects the names that may be tables, in the rest of an UPDATE or DELETE of joined tables."""

    def __init__(self, cursor: TokenCursor, first: tuple[TableName, ...]) -> None:
        self._cursor = cursor
        self._tables = dict.fromkeys(first)
        """The tables that the caller has already read, and all names in places where only a table may stand."""
        self._others: dict[TableName, None] = {}
        """Names with a point elsewhere: tables or columns."""
        self._aliases: set[str] = set()

    def read(self) -> tuple[TableName, ...]:
        """Returns the tables; a name with a point is left out if its first part is an alias or a table."""
        cursor, is_before_set = self._cursor, True
        self._take_alias()
        while not cursor.at_end():
            token = cursor.next()
            is_before_set = is_before_set and token.word != "SET"
            is_sign = token.lexeme is Lexeme.SIGN
            after_word = token.word in _BEFORE_TABLES
            if not (is_sign and token.text == "."):
                self._take_name(after_word, after_word or (is_before_set and is_sign and token.text in (",", "(")))
        qualifiers = self._aliases | {name.name.lower() for name in self._tables}
        others = (name for name in self._others if name.schema.lower() not in qualifiers)
        return tuple(dict.fromkeys((*self._tables, *others)))

    def _take_name(self, is_table: bool, may_be_single: bool) -> None:  # noqa: FBT001 - both tell where it stands
        cursor, token, following = self._cursor, self._cursor.peek(), self._cursor.peek(1)
        has_point = following.lexeme is Lexeme.SIGN and following.text == "."
        if token.lexeme is Lexeme.TEXT and (has_point or is_table):
            raise cursor.surprise("a name")  # under ANSI_QUOTES, it may be one
        if token.lexeme not in _NAMES or token.word in _NO_TABLE:
            return
        if has_point and cursor.peek(2).lexeme in _NAMES:
            (self._tables if is_table else self._others)[cursor.table_name()] = None
        elif may_be_single and not has_point and cursor.default_schema:
            self._tables[cursor.table_name()] = None
        if may_be_single:
            self._take_alias()

    def _take_alias(self) -> None:
        self._cursor.take("AS")
        if self._cursor.peek().lexeme in _NAMES:
            self._aliases.add(self._cursor.peek().text.lower())
