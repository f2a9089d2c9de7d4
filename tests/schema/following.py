"""Runs the same statements on a server and on PiDTS's record of its tables, and compares both after each statement."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from itertools import zip_longest

import pymysql

from pidts.model import Column, Kind, PidtsError, Table, TableName
from pidts.sandbox import Server
from pidts.schema import Dialect, apply, apply_charset, classify, literals
from pidts.schema.compare import same_type
from pidts.source import connect, query, read_structures
from pidts.source.connection import Session, SourceConfig
from pidts.source.structures import schema_charsets, source_dialect


@dataclass
class Following:
    """Runs statements in `database`; `wrong` has the differences between PiDTS's structures and the server's."""

    session: Session
    database: str
    dialect: Dialect
    charsets: dict[str, tuple[str, str]]
    tables: dict[TableName, Table] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    ran: int = 0
    refused: list[tuple[str, str]] = field(default_factory=list)

    @classmethod
    def on(cls, server: Server, database: str, sql_mode: str = "") -> Following:
        """Begins in an empty database of this name; a former one is dropped."""
        session = connect(SourceConfig(server.host, server.port, server.user, server.password or ""))
        query(session, f"DROP DATABASE IF EXISTS `{database}`")
        query(session, f"CREATE DATABASE `{database}` CHARACTER SET utf8mb4")
        query(session, f"USE `{database}`")
        query(session, f"SET sql_mode = '{sql_mode}'")
        charset = schema_charsets(session)[database]
        return cls(session, database, source_dialect(session), {database: charset})

    def run(self, sql: str) -> bool:
        """Returns whether the server accepted the statement.

        After a difference, the server's structures become the record.
        """
        try:
            with self.session.cursor() as cursor:
                cursor.execute(sql)
        except pymysql.Error as error:
            self.refused.append((sql, str(error)))
            return False
        self.ran += 1
        touched = {*self.tables}
        try:
            statement = classify(sql, self.database, dialect=self.dialect)
            changed = apply(statement, self.tables, self.charsets, dialect=self.dialect)
            self.charsets |= {
                name: charset
                for name, charset in apply_charset(statement, self.charsets, dialect=self.dialect).items()
                if charset is not None
            }
            touched = {*changed, *statement.tables}
        except PidtsError as error:
            self._say(sql, f"not followed: {error.what}")
            changed = {}
        ours = {name: table for name, table in {**self.tables, **changed}.items() if table is not None}
        theirs = self.read(touched)
        for name in sorted(touched):
            for text in unlike(ours.get(name), theirs.get(name)):
                self._say(sql, f"{name.name}: {text}")
        self.tables = {name: table for name, table in ours.items() if name not in touched} | {
            name: ours[name] if not any(unlike(ours.get(name), table)) else table for name, table in theirs.items()
        }
        return True

    def read(self, names: set[TableName]) -> dict[TableName, Table]:
        """Returns the structures in the server's catalog."""
        return read_structures(self.session, lambda name: name in names)

    def _say(self, sql: str, text: str) -> None:
        self.wrong.append(f"{text}\n      behind {' '.join(sql.split())[:400]}")


def unlike(ours: Table | None, theirs: Table | None) -> Iterator[str]:
    """Returns where two structures of one table differ."""
    if ours is None or theirs is None:
        if ours is not theirs:
            yield f"is {'not ' if ours is None else ''}on record and is {'not ' if theirs is None else ''}there"
        return
    for one, other in zip_longest(ours.columns, theirs.columns):
        if one is None or other is None or not _alike(one, other):
            yield f"column {_said(one)}, of the server {_said(other)}"
    for key, real in zip_longest(ours.keys, theirs.keys):
        if key is None or real is None or _parts(key) != _parts(real):
            yield f"key {key and _parts(key)}, of the server {real and _parts(real)}"
    whole = [(_utf8(table.charset), _utf8(table.collation), table.comment) for table in (ours, theirs)]
    if whole[0] != whole[1]:
        yield f"table {whole[0]}, of the server {whole[1]}"
    if ours.identity != theirs.identity:
        yield f"identity {ours.identity}, of the server {theirs.identity}"


def _parts(key) -> tuple[object, ...]:
    kind = key.unique, key.unique_prefixes, key.primary, key.fulltext
    return key.name, key.columns, key.prefixes, key.descending, *kind


def _said(column: Column | None) -> str:
    return "missing" if column is None else f"{column.name} {column}"


def _utf8(name: str | None) -> str | None:
    return name and name.replace("utf8_", "utf8mb3_") if name != "utf8" else "utf8mb3"


def _alike(one: Column, other: Column) -> bool:
    found = [(c.name, c.nullable, c.auto_increment, c.generated, c.comment) for c in (one, other)]
    return found[0] == found[1] and same_type(one.type, other.type) and _same_default(one, other)


def _same_default(one: Column, other: Column) -> bool:
    """Compares two defaults. Of two expressions, it compares only that they are expressions."""
    ours, theirs = (literals.parse_default(column.default) for column in (one, other))
    if isinstance(ours, literals.Expression) or isinstance(theirs, literals.Expression):
        return (ours is None) == (theirs is None)
    if (
        isinstance(ours, literals.CurrentTime)
        or isinstance(theirs, literals.CurrentTime)
        or ours is None
        or theirs is None
    ):
        return ours == theirs
    is_number = other.type.is_integer or other.type.kind is Kind.BIT
    return other.type.kind in _TIMES or _value(ours, is_number=is_number) == _value(theirs, is_number=is_number)


_TIMES = frozenset({Kind.DATE, Kind.TIME, Kind.DATETIME, Kind.TIMESTAMP, Kind.YEAR})
"""The types for which servers write a default in full (`'00:00:07.000'` for 7)."""


def _value(
    default: literals.TextLiteral | literals.BytesLiteral | literals.Number, *, is_number: bool = False
) -> object:
    if isinstance(default, literals.BytesLiteral) and is_number:
        return Decimal(int.from_bytes(default.value))
    text = default.value.decode("utf-8", "replace") if isinstance(default, literals.BytesLiteral) else default.value
    try:
        return Decimal(text)
    except InvalidOperation:
        return text.rstrip(" ")


def statements(text: str) -> Iterable[str]:
    """Returns the statements of a script.

    Each ends with `;` at the end of a line; lines that begin with `--` are comments.
    """
    lines = [line for line in text.splitlines() if not line.startswith("--")]
    return (sql.strip() for sql in ("\n".join(lines) + "\n").split(";\n") if sql.strip())
