"""Moves the counters of a PostgreSQL table: its identity columns, its serial columns, and sequences in its defaults.

Rows from the copy or the log already have their numbers, and sequences do not follow these numbers. A column of BIGINT
UNSIGNED becomes numeric(20), which cannot be an identity column: its default is a sequence.

Crash points: a new sequence and the default that uses it are created in one transaction. A counter that is high enough
is not moved, so it is safe to repeat the move after a crash.

One statement reads a counter and moves it, but PostgreSQL does not lock the counter in between. An application may take
numbers after the counter was read and before it is moved. If these numbers are above the counter's new value, the
counter gives them out a second time. Numbers that a session has reserved (`CACHE`) are not affected by the move.
"""

from __future__ import annotations

from dataclasses import dataclass

from pidts.model import Table, TableName
from pidts.target.postgres.dialect import MAX_NAME, identifier, literal, qualified
from pidts.target.postgres.session import PostgresSession

_SEQUENCES = (
    "SELECT a.attname::text, n.nspname::text, s.relname::text, q.seqincrement, q.seqmax FROM ("
    " SELECT refobjsubid AS place, objid AS sequence FROM pg_catalog.pg_depend"
    " WHERE classid = 'pg_catalog.pg_class'::regclass AND refclassid = 'pg_catalog.pg_class'::regclass"
    " AND refobjid = %s::regclass AND refobjsubid > 0 AND deptype IN ('a', 'i')"
    " UNION SELECT f.adnum, d.refobjid FROM pg_catalog.pg_attrdef f JOIN pg_catalog.pg_depend d"
    " ON d.classid = 'pg_catalog.pg_attrdef'::regclass AND d.objid = f.oid"
    " AND d.refclassid = 'pg_catalog.pg_class'::regclass WHERE f.adrelid = %s::regclass) u "
    "JOIN pg_catalog.pg_sequence q ON q.seqrelid = u.sequence "
    "JOIN pg_catalog.pg_class s ON s.oid = u.sequence JOIN pg_catalog.pg_namespace n ON n.oid = s.relnamespace "
    "JOIN pg_catalog.pg_attribute a ON a.attrelid = %s::regclass AND a.attnum = u.place ORDER BY 1, 2, 3"
)


@dataclass(frozen=True, slots=True)
class Sequence:
    """A sequence from which a column gets its numbers."""

    column: str
    name: TableName
    increment: int
    most: int


def low_counters(session: PostgresSession, table: Table, source_next: int) -> list[str]:
    """Returns a line for the operator about each counter that has to be moved or created."""
    lines = [f"{table.name}.{column} has no counter yet" for column in uncounted(session, table)]
    for sequence in _sequences(session, table.name):
        at, wanted = _place(session, sequence), _wanted(session, table, sequence, source_next)
        if at < wanted:
            lines.append(f"{table.name}.{sequence.column} continues at {at}, and has to continue at {wanted}")
    return lines


def move(session: PostgresSession, table: Table, source_next: int) -> list[str]:
    """Creates missing counters and moves those that are too low; returns a line for the operator about each."""
    lines = []
    for column in uncounted(session, table):
        sequence = TableName(table.name.schema, _free_name(session, table.name, column))
        with session.transaction():
            owned = f"{qualified(table.name)}.{identifier(column)}"
            session.run(f"CREATE SEQUENCE {qualified(sequence)} OWNED BY {owned}", ())
            default = f"pg_catalog.nextval({literal(qualified(sequence))}::regclass)"
            session.run(
                f"ALTER TABLE {qualified(table.name)} ALTER COLUMN {identifier(column)} SET DEFAULT {default}", ()
            )
        lines.append(f"{table.name}.{column} gets its numbers from the new sequence {sequence}")
    for one in _sequences(session, table.name):
        at, wanted = _place(session, one), _wanted(session, table, one, source_next)
        if at >= wanted:
            continue
        # The statement reads the counter once more: an application may have taken numbers meanwhile.
        place = f"CASE WHEN s.is_called THEN s.last_value + {one.increment} ELSE s.last_value END"
        session.run(
            f"SELECT pg_catalog.setval({literal(qualified(one.name))}::regclass, {wanted}, false) "
            f"FROM {qualified(one.name)} s WHERE {place} < {wanted}",
            (),
        )
        lines.append(f"{table.name}.{one.column} continues at {wanted}")
    return lines


def drops(session: PostgresSession, table: TableName, column: str) -> list[str]:
    """Returns the statements that remove the sequence which `move` has made for a column."""
    if session.schema.shape(table) is None:
        return []
    place = f"{literal(qualified(table))}, {literal(column)}"
    ((sequence,),) = session.rows(f"SELECT pg_catalog.pg_get_serial_sequence({place})")
    if sequence is None:
        return []
    owned = f"ALTER TABLE {qualified(table)} ALTER COLUMN {identifier(column)} DROP DEFAULT"
    return [owned, f"DROP SEQUENCE {sequence}"]


def _sequences(session: PostgresSession, name: TableName) -> list[Sequence]:
    """Returns the sequences that count upwards; an empty list if there is no such table."""
    if session.schema.shape(name) is None:
        return []
    rows = session.rows(_SEQUENCES, (qualified(name),) * 3)
    return [
        Sequence(column, TableName(schema, sequence), int(increment), int(most))
        for column, schema, sequence, increment, most in rows
        if int(increment) > 0
    ]


def uncounted(session: PostgresSession, table: Table) -> list[str]:
    """Returns the columns that have a counter on the source, and neither a sequence nor a default on the target."""
    shape = session.schema.shape(table.name)
    if shape is None:
        return []
    counted = {one.column for one in _sequences(session, table.name)}
    defaults = {
        str(name)
        for (name,) in session.rows(
            "SELECT attname::text FROM pg_catalog.pg_attribute WHERE attrelid = %s::regclass AND atthasdef",
            (qualified(table.name),),
        )
    }
    there = {column.name for column in shape.columns}
    return [
        column.name
        for column in table.columns
        if column.auto_increment and column.name in there and column.name not in counted | defaults
    ]


def _place(session: PostgresSession, sequence: Sequence) -> int:
    ((last, is_called),) = session.rows(f"SELECT last_value, is_called FROM {qualified(sequence.name)}")
    return int(last) + sequence.increment if is_called else int(last)


def _wanted(session: PostgresSession, table: Table, sequence: Sequence, source_next: int) -> int:
    """Returns the counter's next number: after all rows, and not before the source's own counter."""
    ((most,),) = session.rows(f"SELECT max({identifier(sequence.column)}) FROM {qualified(table.name)}")
    counts = any(column.name == sequence.column and column.auto_increment for column in table.columns)
    # A negative number, or the last number of the type, cannot have come from the counter, so it does not count.
    behind_rows = int(most) + 1 if most is not None and 0 < int(most) < sequence.most else 1
    return min(max(behind_rows, source_next if counts else 1), sequence.most)


def _free_name(session: PostgresSession, table: TableName, column: str) -> str:
    for number in range(1000):
        ending = f"_{column}_seq{number or ''}"
        room = MAX_NAME - len(ending.encode())
        name = table.name.encode()[: max(room, 0)].decode(errors="ignore") + ending
        name = name.encode()[-MAX_NAME:].decode(errors="ignore")
        rows = session.rows(
            "SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = %s AND c.relname = %s",
            (table.schema, name),
        )
        if not rows:
            return name
    raise AssertionError(f"no free name for a sequence of {table}.{column}")
