"""Reads the structures and sizes of a source's tables from information_schema and SHOW INDEX.

A task may have 20,000 tables, so one query reads the columns or keys of many tables. If the order of a table's keys
matters, and this query does not show it, SHOW INDEX reads the keys.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from pidts.model import Column, ColumnType, Halted, Key, Kind, PrecheckFailed, StructureChanged, Table, TableName, Where
from pidts.schema.computed import is_plain
from pidts.schema.dialect import Dialect, is_utc
from pidts.schema.parse.classify import classify
from pidts.schema.parse.column_type import column_type
from pidts.schema.parse.key_clause import options_compared
from pidts.schema.statements import CreateTable
from pidts.source.connection import ServerInfo, Session, named, query, server_info, variables, where_of
from pidts.source.grants import account

SYSTEM_SCHEMAS = frozenset({"mysql", "information_schema", "performance_schema", "sys"})
_VERSIONED = "SYSTEM VERSIONED"
_TABLE_TYPES = frozenset({"BASE TABLE", _VERSIONED})
_NAMES_A_QUERY = 500
_UNQUOTED = frozenset({Kind.DECIMAL, Kind.FLOAT, Kind.DOUBLE, Kind.BIT, Kind.YEAR})
_NOW = re.compile(r"(current_timestamp)(?:\(([0-6]?)\))?", re.IGNORECASE)
_OF_BYTES = "(bytes)"
"""Stands for a binary default, which the catalog does not show exactly: the catalog cuts it off at a zero byte, or
replaces bytes that are not text.
"""
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TableSize:
    """A table's size in the storage engine's statistics. For InnoDB, the number of rows may be wrong by half."""

    rows: int
    bytes: int


def read_structures(
    connection: Session, select: Callable[[TableName], bool], hidden: dict[TableName, str] | None = None
) -> dict[TableName, Table]:
    """Returns all tables for which `select` is true, without views and the server's own schemas.

    System-versioned tables are included: a caller that replicates rows also has to call `system_versioned`. A server
    may show a table to an account and hide the table's columns. Without `hidden`, an error is raised for such a table.
    With `hidden`, the table is added to `hidden`, with the reason.
    """
    server = server_info(connection)
    dialect = Dialect.of(server.version)
    structures = {}
    for schema, rows in groupby(_tables(connection, _TABLE_TYPES), key=lambda row: str(row["table_schema"])):
        about = {name: row for row in rows if select(name := TableName(schema, str(row["table_name"])))}
        columns = _columns(connection, schema, [name.name for name in about])
        keys = _keys_of_many(connection, schema, list(columns), server)
        for name, row in about.items():
            if name.name not in columns:
                if _is_there(connection, name):
                    refusal = _no_columns(connection, name)
                    if hidden is None:
                        raise refusal
                    hidden[name] = str(refusal)
                continue  # The table was dropped after the list had been read; the log contains the DROP.
            try:
                structures[name] = _table(connection, name, row, columns[name.name], keys.get(name.name), dialect)
            except StructureChanged:
                continue
    return structures


def _no_columns(connection: Session, name: TableName) -> PrecheckFailed:
    return PrecheckFailed(
        "missing-privilege",
        "the server shows this table to the account, but hides its columns",
        where=Where(source=where_of(connection).source, table=str(name)),
        todo=f"Run on the source: GRANT SELECT ON {quoted_table(name)} TO {account(connection)}. Or leave the table "
        "out (block-allow-list, ignore-tables)",
    )


def table_names(connection: Session, select: Callable[[TableName], bool]) -> frozenset[TableName]:
    """Returns the names of the tables that `read_structures` would read now."""
    return frozenset(filter(select, _names_of(connection, _TABLE_TYPES)))


def read_structure(connection: Session, name: TableName) -> Table | None:
    """Returns the structure of one table; None if there is none."""
    return read_structures(connection, lambda candidate: candidate == name).get(name)


def system_versioned(connection: Session) -> frozenset[TableName]:
    """Returns the tables of which MariaDB logs old row versions as further rows; see `pidts.schema.periods`."""
    return _names_of(connection, {_VERSIONED})


def sequences(connection: Session) -> frozenset[TableName]:
    """Returns MariaDB's SEQUENCE objects. MariaDB logs their state as rows, but they are not tables."""
    return _names_of(connection, {"SEQUENCE"})


def schema_charsets(connection: Session) -> dict[str, tuple[str, str]]:
    """Returns the default charset and collation of each schema that is not the server's own."""
    rows = query(
        connection,
        "SELECT schema_name, default_character_set_name, default_collation_name FROM information_schema.schemata",
    )
    return {str(name): (str(charset), str(collation)) for name, charset, collation in rows if not is_system(str(name))}


def source_dialect(connection: Session) -> Dialect:
    """Returns the dialect in which the server reads the statements in its log, as far as the settings determine it."""
    names = ("explicit_defaults_for_timestamp", "lower_case_table_names", "character_set_server", "collation_server")
    found = variables(connection, "version", *names, "system_time_zone")
    dialect = Dialect.of(found["version"])
    return replace(
        dialect,
        explicit_timestamp=found.get("explicit_defaults_for_timestamp", "ON") == "ON",
        time_zone="+00:00" if is_utc(found["system_time_zone"]) else "SYSTEM",
        lower_case_names=found.get("lower_case_table_names") == "1",
        charset=found["character_set_server"],
        collation=found["collation_server"],
    )


def is_system(schema: str) -> bool:
    """Whether a schema is the server's own."""
    return schema.lower() in SYSTEM_SCHEMAS


def table_sizes(connection: Session, names: Iterable[TableName]) -> dict[TableName, TableSize]:
    """Returns the sizes of the tables that have statistics."""
    facts = table_facts(connection, names, "table_rows", "data_length")
    return {name: TableSize(int(row["table_rows"]), int(row["data_length"] or 0)) for name, row in facts}


def table_facts(
    connection: Session, names: Iterable[TableName], first: str, *more: str
) -> Iterator[tuple[TableName, Mapping[str, Any]]]:
    """Yields the columns `first` and `more` of the tables' rows in information_schema.tables.

    Rows with NULL in the column `first` are left out.
    """
    wanted = set(names)
    for schema in sorted({name.schema for name in wanted}):
        sql = (
            f"SELECT {', '.join(['table_name', first, *more])} FROM information_schema.tables "
            f"WHERE table_schema = %s AND {first} IS NOT NULL"
        )
        for row in named(connection, sql, [schema]):
            name = TableName(schema, str(row["table_name"]))
            if name in wanted:
                yield name, row


def quoted(name: str) -> str:
    """Returns a quoted identifier."""
    return "`" + name.replace("`", "``") + "`"


def quoted_table(name: TableName) -> str:
    """Returns a table's full name, quoted."""
    return f"{quoted(name.schema)}.{quoted(name.name)}"


def _tables(connection: Session, types: Collection[str]) -> list[dict[str, Any]]:
    placeholders = ", ".join(["%s"] * len(SYSTEM_SCHEMAS))
    rows = named(
        connection,
        "SELECT table_schema, table_name, table_type, table_collation, table_comment FROM information_schema.tables "
        f"WHERE table_schema NOT IN ({placeholders})",
        sorted(SYSTEM_SCHEMAS),
    )
    kept = [row for row in rows if str(row["table_type"]) in types and not is_system(str(row["table_schema"]))]
    return sorted(kept, key=lambda row: (str(row["table_schema"]), str(row["table_name"])))


def _names_of(connection: Session, types: Collection[str]) -> frozenset[TableName]:
    rows = _tables(connection, types)
    return frozenset(TableName(str(row["table_schema"]), str(row["table_name"])) for row in rows)


def _columns(connection: Session, schema: str, names: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """Returns the columns of each of these tables of a schema, without tables for which the server shows no column.

    In a list of names, MariaDB ignores case and accents, and reads only the first of several equal names: for a list of
    `a` and `A`, it returns no rows for `A`. So a second query asks for each missing table: MariaDB compares a single
    name exactly.
    """
    sql = (
        "SELECT * FROM information_schema.columns WHERE table_schema = %s AND table_name IN ({}) "
        "ORDER BY table_name, ordinal_position"
    )
    found = _by_table(connection, sql, schema, _portions(names))
    return found | _by_table(connection, sql, schema, ([name] for name in names if name not in found))


_FIRST_WITHOUT_ORDER = (8, 0, 0)
"""The first version of MySQL whose information_schema does not show the keys of a table in their order."""


def _keys_of_many(
    connection: Session, schema: str, names: Sequence[str], server: ServerInfo
) -> dict[str, list[dict[str, Any]]]:
    """Returns the keys of these tables as SHOW INDEX does, without tables for which SHOW INDEX itself is needed.

    The exceptions are tables without a key, which may be dropped by now, and tables with several keys whose order the
    server does not show. On MariaDB and MySQL before 8.0, the query shows the order: these servers make the rows of
    SHOW INDEX from information_schema.statistics.
    """
    sql = (
        "SELECT table_schema, table_name, non_unique, index_name AS key_name, seq_in_index, column_name, collation, "
        "sub_part, index_type, index_comment FROM information_schema.statistics "
        "WHERE table_schema = %s AND table_name IN ({})"
    )
    found = _by_table(connection, sql, schema, _portions(names))
    if server.is_mariadb or server.number < _FIRST_WITHOUT_ORDER:
        return found
    return {name: rows for name, rows in found.items() if len({row["key_name"] for row in rows}) == 1}


def _by_table(
    connection: Session, sql: str, schema: str, parts: Iterable[Sequence[str]]
) -> dict[str, list[dict[str, Any]]]:
    """Returns the rows of one query for each of `parts`, by table. In `sql`, `{}` stands for the names in the part."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for part in parts:
        placeholders = ", ".join(["%s"] * len(part))
        for row in named(connection, sql.format(placeholders), [schema, *part]):
            # The server compares names without case here, so it may return both `t` and `T`.
            if row["table_schema"] == schema:
                found[str(row["table_name"])].append(row)
    return dict(found)


def _is_there(connection: Session, name: TableName) -> bool:
    sql = "SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"
    return (name.schema, name.name) in [
        (str(schema), str(table)) for schema, table in query(connection, sql, [name.schema, name.name])
    ]


def _portions(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for begin in range(0, len(names), _NAMES_A_QUERY):
        yield names[begin : begin + _NAMES_A_QUERY]


def _table(
    connection: Session,
    name: TableName,
    about: dict[str, Any],
    columns: list[dict[str, Any]],
    keys: list[dict[str, Any]] | None,
    dialect: Dialect,
) -> Table:
    """Returns the structure of a table; `keys` None: its keys are read by SHOW INDEX."""
    collation = str(about["table_collation"]) if about["table_collation"] else None
    try:
        built = tuple(_column(row, dialect) for row in columns)
    except Halted as error:
        where = Where(source=where_of(connection).source, table=str(name))
        raise type(error)(error.code, error.what, where=where, todo=error.todo) from error
    of_bytes = [column.name for column in built if column.default == _OF_BYTES]
    given = _defaults_of_bytes(connection, name, of_bytes) if of_bytes else {}
    there = {column.name for column in built}
    if keys is None or not all(row["column_name"] is None or row["column_name"] in there for row in keys):
        # If a key has a column that the table lacks, the table was altered between the two queries.
        keys = named(connection, f"SHOW INDEX FROM {quoted_table(name)}")
    return Table(
        name=name,
        columns=tuple(replace(column, default=given.get(column.name, column.default)) for column in built),
        keys=tuple(_with_options(connection, name, list(_keys(keys, dialect)), dialect)),
        charset=collation.partition("_")[0] if collation else None,
        collation=collation,
        comment=str(about["table_comment"] or ""),
    )


def _column(row: dict[str, Any], dialect: Dialect) -> Column:
    charset, collation = row["character_set_name"], row["collation_name"]
    kind = column_type(_text(row["column_type"]), charset, collation, dialect=dialect)
    extra = str(row["extra"]).upper()
    # "DEFAULT_GENERATED" means a default that is an expression. For a generated column, MariaDB before 10.2 shows only
    # VIRTUAL or PERSISTENT.
    generated = any(word in extra for word in ("VIRTUAL", "STORED GENERATED", "PERSISTENT"))
    default = row["column_default"]
    return Column(
        name=str(row["column_name"]),
        type=kind,
        nullable=row["is_nullable"] == "YES",
        default=None if generated or default is None else default_text(_text(default), kind, extra, dialect),
        auto_increment="AUTO_INCREMENT" in extra,
        generated=generated,
        comment=str(row["column_comment"] or ""),
        computed=_computed(row, extra) if generated else "",
    )


def _computed(row: dict[str, Any], extra: str) -> str:
    """Returns the expression of a generated column. MySQL's catalog escapes it like a text."""
    shown = row.get("generation_expression")
    if not shown:
        return ""
    sql = _ESCAPED.sub(r"\1", _text(shown))
    return f"({sql}) {'VIRTUAL' if 'VIRTUAL' in extra else 'STORED'}" if is_plain(sql) else ""


def default_text(default: str, kind: ColumnType, extra: str, dialect: Dialect) -> str | None:
    """Returns the default as SQL; None if MariaDB's catalog has NULL.

    MariaDB's catalog has SQL. MySQL's catalog has plain values and escaped expressions.
    """
    if (now := _NOW.fullmatch(default)) and (dialect.mariadb or kind.kind in {Kind.DATETIME, Kind.TIMESTAMP}):
        return f"{now[1].lower()}({now[2]})" if now[2] else now[1].lower()
    is_of_bytes = kind.kind in {Kind.BINARY, Kind.VARBINARY}
    if dialect.mariadb and dialect.version >= (10, 2, 7):
        return None if default == "NULL" else _OF_BYTES if is_of_bytes and default.startswith("'") else default
    if "DEFAULT_GENERATED" in extra:
        expression = _ESCAPED.sub(r"\1", default)
        return expression if expression.startswith("(") else f"({expression})"
    if is_of_bytes:
        return _OF_BYTES
    if kind.is_integer or kind.kind in _UNQUOTED:
        return default
    return "'" + default.replace("\\", "\\\\").replace("'", "''") + "'"


def _keys(rows: Iterable[dict[str, Any]], dialect: Dialect) -> Iterator[Key]:
    """Yields the keys in the server's own order.

    The order is: primary key, unique keys without NULLs, other keys; each kind in the order of declaration.
    """
    for name, parts in groupby(rows, key=lambda row: str(row["key_name"])):
        ordered = sorted(parts, key=lambda row: int(row["seq_in_index"]))
        if any(part["column_name"] is None for part in ordered):
            continue  # A key over an expression has no columns by which rows can be found.
        kind = str(ordered[0]["index_type"]).upper()
        # For a spatial key, older servers show the length of a bounding box as if it were a prefix's length.
        lengths = [None if kind == "SPATIAL" else part["sub_part"] for part in ordered]
        prefixes = tuple(None if length is None else int(length) for length in lengths)
        descending = tuple(part["collation"] == "D" for part in ordered)
        primary = name == "PRIMARY"
        declared_unique = int(ordered[0]["non_unique"]) == 0
        yield Key(
            name=name,
            columns=tuple(str(part["column_name"]) for part in ordered),
            # A unique key over prefixes refuses rows that differ only after the prefix. A target's key over the whole
            # columns would accept such rows, so this key does not count as unique. A primary key counts as unique even
            # over prefixes, since the whole columns also identify a row.
            unique=declared_unique and (primary or not any(prefixes)),
            primary=primary,
            prefixes=prefixes if any(prefixes) else (),
            unique_prefixes=declared_unique and any(prefixes) and not primary,
            fulltext=kind == "FULLTEXT",
            descending=descending if any(descending) else (),
            options=options_compared(dialect, _text(ordered[0]["index_comment"] or "")),
        )


def _with_options(connection: Session, name: TableName, keys: list[Key], dialect: Dialect) -> list[Key]:
    """Returns the keys with the options that only the CREATE TABLE statement shows.

    Options matter only if the order of unique keys decides which of them identifies the rows. So the keys are returned
    unchanged if there is a primary key, or at most one unique key.
    """
    if any(key.primary for key in keys) or sum(key.declared_unique for key in keys) < 2:
        return keys
    try:
        ((_, text, *_),) = query(connection, f"SHOW CREATE TABLE {quoted_table(name)}")
    except PrecheckFailed:  # the account may see the columns, but not the statement
        return keys
    statement = classify(_text(text), name.schema, dialect=dialect)
    if not isinstance(statement, CreateTable):
        return keys
    options = {key.name: key.options for key in statement.structure.keys}
    return [replace(key, options=options.get(key.name, key.options)) for key in keys]


def _defaults_of_bytes(connection: Session, name: TableName, columns: Sequence[str]) -> dict[str, str]:
    """Reads the complete defaults of these columns by queries.

    The first query reads no row of the table, and returns only the defaults of nullable columns. The second query needs
    one row. So if the table is empty, the defaults of the other columns stay unknown.
    """
    asked = ", ".join(f"HEX(DEFAULT(its.{quoted(column)}))" for column in columns)
    found: dict[str, str] = {}
    for rows in (f"(SELECT 1) one LEFT JOIN {quoted_table(name)} its ON FALSE", f"{quoted_table(name)} its LIMIT 1"):
        try:
            for row in query(connection, f"SELECT {asked} FROM {rows}"):
                values = zip(columns, row, strict=True)
                found |= {column: f"x'{_text(data)}'" for column, data in values if data is not None}
        except PrecheckFailed:  # the account may see the table, but not read it
            return {}
        if len(found) == len(columns):
            break
    return found


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
