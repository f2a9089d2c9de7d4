"""QUERY events: SQL that the source ran, and the settings of its session."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from pidts.binlog import compressed
from pidts.binlog.cursor import Cursor
from pidts.binlog.events import Event, EventType
from pidts.binlog.statement_text import statement_text
from pidts.binlog.values import charsets
from pidts.binlog.walk import LogWalker
from pidts.model.errors import DecodeError

FIXED_VARIABLES = {0: 4, 3: 4, 7: 2, 8: 2, 9: 8, 10: 4, 13: 3, 16: 1, 17: 8, 18: 2, 19: 1, 20: 1, 128: 3, 129: 8}
_SQL_MODE, _CATALOG, _CHARSETS, _TIME_ZONE, _CATALOG_NZ = 1, 2, 4, 5, 6
_INVOKER, _DATABASES = 11, 12
_MICROSECONDS = (13, 128)
"""The codes, in MySQL and in MariaDB, of the setting with the microseconds of the time at which the statement began."""
_TOO_MANY = 254
"""MySQL writes this number instead of the databases if there are too many of them."""


class Control(Enum):
    """The kinds of statements that control a transaction; `NONE` is any other statement."""

    NONE = auto()
    BEGIN = auto()
    COMMIT = auto()
    ROLLBACK = auto()
    SAVEPOINT = auto()
    ROLLBACK_TO = auto()
    RELEASE = auto()
    XA = auto()
    COMMENT = auto()


_CONTROL = (
    (Control.BEGIN, re.compile(r"BEGIN|START TRANSACTION", re.IGNORECASE)),
    (Control.COMMIT, re.compile(r"COMMIT", re.IGNORECASE)),
    (Control.ROLLBACK, re.compile(r"ROLLBACK", re.IGNORECASE)),
    (Control.SAVEPOINT, re.compile(r"SAVEPOINT\s+(?P<name>.+)", re.IGNORECASE | re.DOTALL)),
    (Control.ROLLBACK_TO, re.compile(r"ROLLBACK\s+TO\s+(?:SAVEPOINT\s+)?(?P<name>.+)", re.IGNORECASE | re.DOTALL)),
    (Control.RELEASE, re.compile(r"RELEASE\s+SAVEPOINT\s+(?P<name>.+)", re.IGNORECASE | re.DOTALL)),
    (Control.XA, re.compile(r"XA\s+(?:START|BEGIN|END|PREPARE|COMMIT|ROLLBACK)\b.*", re.IGNORECASE | re.DOTALL)),
    (Control.COMMENT, re.compile(r"# Dummy event.*", re.DOTALL)),
)
_CONTROL_LETTERS = frozenset("bBcCrRsSxX#")


@dataclass(frozen=True, slots=True)
class Query:
    """One statement; a collation id is 0 if the event does not have it."""

    schema: str
    sql: str
    sql_mode: int | None = None
    server_collation: int = 0
    time_zone: str = ""
    """The session's time zone; empty if the statement did not use it."""
    utf8_literals: bool = False
    """Whether the session's literals are in UTF-8; False if the log does not say."""
    seconds: int = 0
    """The time at which the statement began, in seconds since 1970."""
    micros: int | None = None
    """The microseconds of this second; None if the log does not have them. Servers log them only if the statement uses
    them.
    """
    databases: frozenset[str] | None = None
    """The databases of all tables that the statement has used, directly or by triggers, stored functions and views.
    None if the log lacks them: MySQL logs them with statements that change rows.
    """

    @classmethod
    def parse(cls, event: Event) -> Query:
        """Parses a QUERY, QUERY_COMPRESSED or EXECUTE_LOAD_QUERY event."""
        cursor = Cursor(event.body, "a QUERY event")
        cursor.take(8)
        schema_size = cursor.uint(1)
        cursor.take(2)
        variables_size = cursor.uint(2)
        if event.type == EventType.EXECUTE_LOAD_QUERY:
            cursor.take(13)
        session = _variables(cursor.take(variables_size))
        client, connection = (charsets.charset_of(session.pop(name, 0)) for name in ("client", "connection"))
        schema = cursor.take(schema_size)
        if cursor.take(1) != b"\0":
            raise DecodeError("bad-name", "a QUERY event has a database name that does not end with a zero byte")
        sql = cursor.rest()
        if event.type == EventType.QUERY_COMPRESSED:
            sql = compressed.inflate(sql, "a QUERY_COMPRESSED event")
        return cls(
            schema=schema.decode("utf-8", "backslashreplace"),
            sql=statement_text(sql, client, connection, session.get("sql_mode", 0)),
            utf8_literals=client in charsets.UTF8 and connection in charsets.UTF8,
            seconds=event.timestamp,
            **session,
        )

    @property
    def control(self) -> Control:
        """Returns how the statement controls its transaction."""
        return self._control()[0]

    @property
    def savepoint(self) -> str:
        """Returns the savepoint that the statement sets, rolls back to or releases; empty for other statements."""
        return self._control()[1]

    def _control(self) -> tuple[Control, str]:
        sql = self.sql.strip()
        if sql[:1] in _CONTROL_LETTERS:
            for control, pattern in _CONTROL:
                if match := pattern.fullmatch(sql):
                    name = match["name"] if "name" in pattern.groupindex else ""
                    return control, _folded(name.strip())
        return Control.NONE, ""


_STATEMENTS = (EventType.QUERY, EventType.QUERY_COMPRESSED, EventType.EXECUTE_LOAD_QUERY)


def logged_statements(walker: LogWalker, events: Iterable[bytes | memoryview]) -> Iterator[Query]:
    """Yields the statements among raw events, except statements that control a transaction."""
    for raw in events:
        event = walker.feed(raw)
        if event.type in _STATEMENTS:
            query = Query.parse(event)
            if query.control is Control.NONE:
                yield query


def _folded(name: str) -> str:
    """Returns a savepoint's name in the form that is compared: servers ignore case and accents, so `e` equals `É`."""
    if len(name) > 1 and name[0] == name[-1] and name[0] in '`"':
        name = name[1:-1].replace(name[0] * 2, name[0])
    plain = "".join(letter for letter in unicodedata.normalize("NFD", name) if not unicodedata.combining(letter))
    return plain.upper()


def _terminated(cursor: Cursor) -> str:
    """Reads a text up to its final zero byte, and returns it without this byte."""
    found = bytearray()
    while (byte := bytes(cursor.take(1))) != b"\0":
        found += byte
    return found.decode("utf-8", "backslashreplace")


def _variables(data: bytes) -> dict[str, Any]:
    """Returns the session's settings, which are in the order of their codes, up to the first unknown code."""
    cursor = Cursor(data, "a QUERY event's session settings")
    session: dict[str, Any] = {}
    while cursor.left:
        code = cursor.uint(1)
        if code == _SQL_MODE:
            session["sql_mode"] = cursor.uint(8)
        elif code == _CATALOG:
            cursor.take(cursor.uint(1) + 1)
        elif code == _CHARSETS:
            for name in ("client", "connection", "server_collation"):
                session[name] = cursor.uint(2)
        elif code == _TIME_ZONE:
            session["time_zone"] = cursor.take(cursor.uint(1)).decode("utf-8", "backslashreplace")
        elif code == _CATALOG_NZ:
            cursor.take(cursor.uint(1))
        elif code == _INVOKER:
            cursor.take(cursor.uint(1))
            cursor.take(cursor.uint(1))
        elif code == _DATABASES:
            count = cursor.uint(1)
            if count < _TOO_MANY:
                session["databases"] = frozenset(_terminated(cursor) for _ in range(count))
        elif code in _MICROSECONDS:
            session["micros"] = cursor.uint(3)
        elif code in FIXED_VARIABLES:
            cursor.take(FIXED_VARIABLES[code])
        else:
            break
    return session
