"""Declares a column of a MySQL or MariaDB target as the source does: generated, of one kind of geometry, or ZEROFILL.

While a task runs, the target's table contains a plain column with the same values.

A column becomes generated in three steps:

1. A second column with the expression is added; it is VIRTUAL, so no row is written.
2. The values of both columns are compared in all rows.
3. If they are equal, one statement drops the second column and makes the first column generated. Otherwise the second
   column is dropped, and the first column does not change.

Crash points:

1. After step 1: the second column exists. It has a name that only PiDTS uses, and the next attempt or an undo drops it.
2. Before or after the statement of step 3: the catalog shows what is still needed.

An undo leaves a generated column generated: the server computes the same values that the source's log has, and a run
does not write them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pidts.model import Halted, PidtsError, TableName, Transient, Where
from pidts.schema.defaults import literal
from pidts.target.mysql.dialect import identifier, qualified
from pidts.target.mysql.session import MySqlSession

_SECOND = "pidts_generated_here"
_TEXTS = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set"})
_DEMANDS_SRID = (8, 0, 3)
_KEY_NAME = re.compile(r"(?:UNIQUE |FULLTEXT |SPATIAL )?KEY (`(?:[^`]|``)+`)")
_NAME = re.compile(r"`(?:[^`]|``)+`")
_COMPUTED = " GENERATED ALWAYS AS "
_CONSTRAINT_NAME = re.compile(r"CONSTRAINT (`(?:[^`]|``)+`) CHECK")


@dataclass(frozen=True, slots=True)
class GeneratedColumn:
    """A column that the source generates."""

    table: TableName
    name: str
    expression: str
    """The expression, with its parentheses."""
    stored: bool

    def __str__(self) -> str:
        return f"generated column {self.name} of {self.table}"


@dataclass(frozen=True, slots=True)
class DeclaredType:
    """A column whose type on the source restricts its values or their display."""

    table: TableName
    name: str
    type: str
    """The type in lower case: `point`, `int(8) unsigned zerofill`."""
    srid: int | None = None

    def __str__(self) -> str:
        return f"declared type of column {self.name} of {self.table}: {self.type}"


RemadeColumn = GeneratedColumn | DeclaredType


def is_needed(session: MySqlSession, wanted: RemadeColumn) -> bool:
    """Whether the target's column is not yet generated, or does not yet have the declared type."""
    row = _column(session, wanted)
    if isinstance(wanted, GeneratedColumn):
        return not row["generation_expression"]
    if "zerofill" in wanted.type:
        return "zerofill" not in str(row["column_type"]).lower()
    return (_shape(row), row.get("srs_id")) != (wanted.type, wanted.srid if _demands_srid(session) else None)


def can_be(session: MySqlSession, wanted: RemadeColumn) -> bool:
    """Whether the column can be changed.

    A generated column needs a server that has such columns. For a declared type, the type of the target's column may
    lack only the part that this module adds.
    """
    row = _column(session, wanted)
    if isinstance(wanted, GeneratedColumn):
        return session.server.has_generated
    if "zerofill" not in wanted.type:
        is_demanded = wanted.srid is None or _demands_srid(session)
        return is_demanded and _shape(row) in {"geometry", wanted.type}
    there, plain = str(row["column_type"]).lower(), wanted.type.replace(" zerofill", "")
    kind = str(row["data_type"]).lower()
    if kind.endswith("int"):
        return plain.partition("(")[0] == kind and "unsigned" in there
    return there.replace(" zerofill", "") == plain


def statement(session: MySqlSession, wanted: RemadeColumn) -> str:
    """Returns the statement that changes the column."""
    if isinstance(wanted, GeneratedColumn):
        return f"ALTER TABLE {qualified(wanted.table)} {', '.join(_clauses(session, wanted))}"
    row, shown = _column(session, wanted), _line(session, wanted)
    head = f"{identifier(wanted.name)} {row['column_type']}"
    if not shown.lower().startswith(head.lower()):
        raise _not_shown(wanted)
    srid = f" SRID {wanted.srid}" if wanted.srid is not None else ""
    rest = re.sub(r" /\*!80003 SRID \d+ \*/", "", shown[len(head) :])
    return f"ALTER TABLE {qualified(wanted.table)} MODIFY {identifier(wanted.name)} {wanted.type}{srid}{rest}"


def make(session: MySqlSession, wanted: RemadeColumn) -> str:
    """Changes the column. Returns the reason if it was not changed; empty if it was."""
    if not is_needed(session, wanted):
        return ""
    try:
        if isinstance(wanted, DeclaredType):
            session.execute(statement(session, wanted))
            return ""
        return _make_generated(session, wanted)
    except Transient:
        raise
    except PidtsError as error:
        drop_second_columns(session, [wanted.table])
        try:
            return f"{error.what}; the statement is: {statement(session, wanted)}"
        except Halted:  # a foreign key needs the plain column, so no statement can replace the column
            return error.what


def drop_second_columns(session: MySqlSession, tables: Iterable[TableName]) -> None:
    """Drops the second columns that an attempt has left in these tables."""
    for table in tables:
        rows = session.rows(
            "SELECT 1 FROM information_schema.columns WHERE table_schema = %s AND table_name = %s AND column_name = %s",
            (table.schema, table.name, _SECOND),
        )
        if rows:
            session.execute(f"ALTER TABLE {qualified(table)} DROP COLUMN {identifier(_SECOND)}")


def _make_generated(session: MySqlSession, wanted: GeneratedColumn) -> str:
    table = qualified(wanted.table)
    drop_second_columns(session, [wanted.table])
    row = _column(session, wanted)
    second = GeneratedColumn(wanted.table, _SECOND, wanted.expression, stored=False)
    session.execute(f"ALTER TABLE {table} ADD COLUMN {_definition(session, second, row)}")
    one, other = (_compared(row, name) for name in (wanted.name, _SECOND))
    if session.rows(f"SELECT 1 FROM {table} WHERE NOT ({one} <=> {other}) LIMIT 1"):
        drop_second_columns(session, [wanted.table])
        return f"the target would compute other values; the statement is: {statement(session, wanted)}"
    clauses = [f"DROP COLUMN {identifier(_SECOND)}", *_clauses(session, wanted)]
    session.execute(f"ALTER TABLE {table} {', '.join(clauses)}")
    return ""


def _compared(row: dict[str, Any], name: str) -> str:
    """Returns an expression of the column for which only values with the same bytes are equal."""
    kind = str(row["data_type"]).lower()
    if kind == "json":
        return f"CAST({identifier(name)} AS CHAR)"
    return f"CAST({identifier(name)} AS BINARY)" if kind in _TEXTS else identifier(name)


def _clauses(session: MySqlSession, wanted: GeneratedColumn) -> list[str]:
    """Returns the clauses of the ALTER TABLE.

    Servers can turn a plain column into a STORED column. But a VIRTUAL column has to replace the plain column. So the
    keys and checks that name the column are created again. The same applies to generated columns that are computed from
    the column: MySQL does not drop a column that another column needs (error 3108).
    """
    row = _column(session, wanted)
    if wanted.stored:
        return [f"MODIFY COLUMN {_definition(session, wanted, row)}"]
    lines = _lines(session, wanted.table)
    own = f"{identifier(wanted.name)} ".lower()
    at = next(number for number, line in enumerate(lines) if line.lower().startswith(own))
    before = lines[at - 1].partition("` ")[0] + "`" if at and lines[at - 1].startswith("`") else ""
    place = f"AFTER {before}" if before else "FIRST"
    names, again, columns_again = [identifier(wanted.name).lower()], [], []
    generated = set() if session.server.dialect.mariadb else _generated_columns(session, wanted.table)
    for number, line in enumerate(lines):
        found = _NAME.match(line)
        # The catalog decides: a plain column, whose comment may have any text, is never dropped.
        if found is None or number == at or found[0].lower() not in generated:
            continue
        if _mentions(line.partition(_COMPUTED)[2], names):
            previous = _NAME.match(lines[number - 1]) if number else None
            names.append(found[0].lower())
            where = f"AFTER {previous[0]}" if previous is not None else "FIRST"
            columns_again += [f"DROP COLUMN {found[0]}", f"ADD COLUMN {line} {where}"]
    for line in lines:
        if line.startswith("`") or not _mentions(_own_part(line), names):
            continue
        if found := _KEY_NAME.match(line):
            again += [f"DROP KEY {found[1]}", f"ADD {line}"]
        elif found := _CONSTRAINT_NAME.match(line):
            again += [f"DROP CONSTRAINT {found[1]}", f"ADD {line}"]
        else:
            raise Halted(
                "target-shape",
                f"{line} needs a column with stored values",
                where=Where(table=str(wanted.table)),
                todo="Replace the column on the target by hand",
            )
    own_clauses = [f"DROP COLUMN {identifier(wanted.name)}", f"ADD COLUMN {_definition(session, wanted, row)} {place}"]
    return [*own_clauses, *columns_again, *again]


def _generated_columns(session: MySqlSession, table: TableName) -> set[str]:
    """Returns the quoted names of the table's generated columns, in lower case."""
    rows = session.rows(
        "SELECT column_name FROM information_schema.columns "
        "WHERE table_schema = %s AND table_name = %s AND generation_expression <> ''",
        (table.schema, table.name),
    )
    return {identifier(str(name)).lower() for (name,) in rows}


def _mentions(text: str, names: Iterable[str]) -> bool:
    """Whether one of the quoted names, in lower case, is in the text."""
    return any(name in text.lower() for name in names)


def _own_part(line: str) -> str:
    """Returns the part of a key or constraint that names columns of its own table, not of the referenced table."""
    _, is_foreign, columns = line.partition(" FOREIGN KEY ")
    return columns.partition(" REFERENCES ")[0] if is_foreign else line


def _definition(session: MySqlSession, wanted: GeneratedColumn, row: dict[str, Any]) -> str:
    """Returns the column's definition. MariaDB accepts neither NULL nor NOT NULL in it."""
    parts = [identifier(wanted.name), str(row["column_type"])]
    if row["collation_name"] is not None:
        parts.append(f"CHARACTER SET {row['character_set_name']} COLLATE {row['collation_name']}")
    parts.append(f"GENERATED ALWAYS AS {wanted.expression} {'STORED' if wanted.stored else 'VIRTUAL'}")
    if row["is_nullable"] == "NO" and not session.server.dialect.mariadb:
        parts.append("NOT NULL")
    if row["column_comment"] and wanted.name != _SECOND:
        parts.append(f"COMMENT {literal(str(row['column_comment']))}")
    return " ".join(parts)


def _shape(row: dict[str, Any]) -> str:
    kind = str(row["data_type"]).lower()
    return "geometrycollection" if kind == "geomcollection" else kind


def _demands_srid(session: MySqlSession) -> bool:
    server = session.server
    return not server.dialect.mariadb and not server.tidb and server.dialect.version >= _DEMANDS_SRID


def _column(session: MySqlSession, wanted: RemadeColumn) -> dict[str, Any]:
    names = ["data_type", "column_type", "is_nullable", "character_set_name", "collation_name", "column_comment"]
    names += ["generation_expression"] if session.server.has_generated else []
    names += ["srs_id"] if _demands_srid(session) else []
    rows = session.rows(
        f"SELECT {', '.join(names)} FROM information_schema.columns "
        "WHERE table_schema = %s AND table_name = %s AND column_name = %s",
        (wanted.table.schema, wanted.table.name, wanted.name),
    )
    if not rows:
        raise _not_shown(wanted)
    values = (one.decode() if isinstance(one, bytes) else one for one in rows[0])
    return {"generation_expression": "", **dict(zip(names, values, strict=True))}


def _line(session: MySqlSession, wanted: RemadeColumn) -> str:
    own = f"{identifier(wanted.name)} ".lower()
    for line in _lines(session, wanted.table):
        if line.lower().startswith(own):
            return line
    raise _not_shown(wanted)


def _lines(session: MySqlSession, table: TableName) -> list[str]:
    """Returns the table's columns, keys and constraints as the server shows them."""
    text = session.shown(f"SHOW CREATE TABLE {qualified(table)}")[0][1]
    # `splitlines` would also split at characters other than a line feed, which a comment may contain.
    return [line.strip().removesuffix(",") for line in text.split("\n") if line.startswith("  ")]


def _not_shown(wanted: RemadeColumn) -> Halted:
    where = Where(table=str(wanted.table))
    return Halted(
        "target-shape",
        f"the target table has no column {wanted.name} to replace",
        where=where,
        todo="Give the target's table this column again, then repeat the command",
    )
