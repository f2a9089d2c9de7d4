"""Statements of the log that replication of tables has no part in."""

from __future__ import annotations

from pidts.schema.parse.lexer import Lexeme
from pidts.schema.parse.token_cursor import Cursor

DML_VERBS = frozenset({"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "WITH", "CALL", "DO", "SELECT", "VALUES"})
SEQUENCE = "a sequence"
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
    "TEMPORARY": "a temporary table",
}


def ignored_reason(cursor: Cursor) -> str | None:
    """Returns why the statement is none of replication's business; None if it may be."""
    first = cursor.peek().word
    if first in _WHOLE:
        return _WHOLE[first] if _is_alone(cursor) else None
    if first == "DO" and cursor.peek(1).word == "RELEASE_LOCK":
        return "a lock"
    if first in ("CREATE", "ALTER", "DROP", "RENAME"):
        return _OBJECTS.get(_object_word(cursor)) or _spatial_reference(cursor)
    return None


def _is_alone(cursor: Cursor) -> bool:
    """Whether a text is one statement alone: `SET …; ALTER TABLE …` must not pass for a setting."""
    ahead = 0
    while (token := cursor.peek(ahead)).lexeme is not Lexeme.END:
        ahead += 1
        if token.lexeme is Lexeme.SIGN and token.text == ";":
            return cursor.peek(ahead).lexeme is Lexeme.END
    return True


def _object_word(cursor: Cursor) -> str:
    """The word that says what is created, behind OR REPLACE, DEFINER = `a`@`b`, ALGORITHM = x and SQL SECURITY x."""
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


def _definer_length(cursor: Cursor, ahead: int) -> int:
    """`DEFINER = user@host`, `DEFINER = CURRENT_USER()`: how many tokens."""
    follower = cursor.peek(ahead + 3).text
    if follower == "@":
        return 5 + _host_tail(cursor, ahead + 5)
    return 5 if follower == "(" else 3


def _host_tail(cursor: Cursor, ahead: int) -> int:
    """An unquoted host such as 10.0.0.% takes several tokens."""
    length, end = 0, cursor.peek(ahead - 1).end
    while cursor.peek(ahead + length).start == end and cursor.peek(ahead + length).text:
        end = cursor.peek(ahead + length).end
        length += 1
    return length


def _spatial_reference(cursor: Cursor) -> str | None:
    if any(cursor.peek(ahead).word == "REFERENCE" for ahead in (2, 4)):
        return "a spatial reference system"
    return None
