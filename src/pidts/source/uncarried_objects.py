"""Reads the objects of a source that a task does not create on the target: foreign keys, views, triggers and others."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from pidts.login.privileges import Privilege, privileges_of
from pidts.model import ForeignKey, PidtsError, TableName, Transient
from pidts.schema.computed import is_plain
from pidts.schema.partitions import partition_clause
from pidts.source.connection import ServerInfo, Session, named, query, server_info
from pidts.source.grants import current_grants
from pidts.source.structures import quoted, quoted_table

GENERATED = "generated column"
AUTOMATIC = "automatic timestamp"
"""A column with `ON UPDATE CURRENT_TIMESTAMP`."""
DECLARED = "declared type"
"""A column whose declared type has properties that its values do not need: POINT, a spatial reference, ZEROFILL."""
DEFAULT = "default"
"""The default of a column that has none on the target."""
SPECIAL_KEYS = {"FULLTEXT": "fulltext key", "SPATIAL": "spatial key"}
PARTITIONS = "partitions"
_ON_UPDATE = re.compile(r"on update current_timestamp(?:\((\d?)\))?", re.IGNORECASE)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class UncarriedObject:
    """An object of the source that a task does not create on the target."""

    kind: str
    """`view`, `trigger`, `procedure`, `function`, `event`; of a table `check`, `functional key`, `generated column`,
    `automatic timestamp`, `declared type`, `fulltext key`, `spatial key`, `partitions`, `default`.
    """
    name: str
    schema: str
    table: str = ""
    """The table to which the object belongs; empty for programs of a schema."""
    text: str = ""
    """The object's SQL on the source; empty if the account may not see this SQL."""
    clause: str = ""
    """The expression of a check that the source enforces.

    Empty on MySQL if the expression has characters beyond ASCII: the catalog shows these encoded twice (`_decoded`).
    """
    parts: tuple[str, ...] = ()
    """The parts of a key over expressions: expressions in parentheses, and quoted columns.

    Empty if a part is the prefix of a column, or if the catalog shows an expression with a backslash or with characters
    beyond ASCII (`is_plain`).
    """
    unique: bool = False
    """Whether the object is a unique key."""
    digits: int | None = None
    """The fractional digits of a second in an automatic timestamp; None for other objects."""
    expression: str = ""
    """A generated column's expression; empty if it has a backslash or is not ASCII (`is_plain`)."""
    stored: bool = False
    """Whether the values of a generated column are stored."""
    declared: str = ""
    """The declared type of a column, in lower case."""
    srid: int | None = None
    """The spatial reference that a column's values must have; None if there is none."""
    columns: tuple[str, ...] = ()
    """The columns of a FULLTEXT or SPATIAL key."""
    definition: str = ""
    """A FULLTEXT or SPATIAL key, or partitions, in the form of an ALTER TABLE; empty if not requested."""

    @property
    def may_be_made(self) -> bool:
        """Whether a cutover creates such an object on a target that supports it."""
        return bool(self.clause or self.parts or self.declared or self.is_of_family) or self.digits is not None

    @property
    def is_of_family(self) -> bool:
        """Whether only a server of the MySQL family can have this object."""
        return self.kind == PARTITIONS or self.kind in SPECIAL_KEYS.values()

    @property
    def is_of_json(self) -> bool:
        """Whether MariaDB itself has made this check, for a column that was declared as JSON."""
        return self.kind == "check" and self.clause == f"json_valid({quoted(self.name)})"

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" + (f" of {self.schema}.{self.table}" if self.table else f" in {self.schema}")

    @property
    def table_name(self) -> TableName | None:
        """Returns the table to which the object belongs; None if it belongs to a schema."""
        return TableName(self.schema, self.table) if self.table else None

    def to_json(self) -> dict[str, str]:
        """Returns the fields as plain values for JSON."""
        return {"kind": self.kind, "name": self.name, "schema": self.schema, "table": self.table, "text": self.text}


@dataclass(frozen=True, slots=True)
class HiddenObjects:
    """Objects of a schema that may exist, and that the server hides from the account."""

    kind: str
    """The kind in the plural: `triggers`, `events`, `routines`, `views`."""
    schema: str
    lacks: str
    """The privilege that would show these objects, with the schema or table for which it is needed."""

    def __str__(self) -> str:
        return f"{self.kind} in {self.schema}: the account lacks {self.lacks}"

    def to_json(self) -> dict[str, str]:
        """Returns the fields as plain values for JSON."""
        return {"kind": self.kind, "schema": self.schema, "lacks": self.lacks}


def unseen(connection: Session, tables: Collection[TableName], schemas: Collection[str]) -> list[HiddenObjects]:
    """Returns the kinds of objects that may exist but are not found, since the account lacks privileges."""
    server = server_info(connection)
    has = privileges_of(current_grants(connection, server))
    routines = privilege_to_see_routines(server)
    found = []
    for schema in sorted(schemas):
        own = [name.name for name in tables if name.schema == schema]
        if not all(has.has(Privilege("TRIGGER", schema, name)) for name in own):
            found.append(HiddenObjects("triggers", schema, str(Privilege("TRIGGER", schema))))
        if not has.has(Privilege("EVENT", schema)):
            found.append(HiddenObjects("events", schema, str(Privilege("EVENT", schema))))
        if not has.has(routines) and not any(has.has(Privilege(name, schema)) for name in _SHOW_ROUTINES):
            found.append(HiddenObjects("routines", schema, str(routines)))
        if not any(has.has(Privilege(name, schema)) for name in ("SELECT", "SHOW VIEW")):
            found.append(HiddenObjects("views", schema, str(Privilege("SHOW VIEW", schema))))
    return found


_SHOW_ROUTINES = ("EXECUTE", "ALTER ROUTINE", "CREATE ROUTINE")


def privilege_to_see_routines(server: ServerInfo) -> Privilege:
    """Returns the smallest privilege that shows all routines with their text, and does not allow running them."""
    if server.is_mariadb or server.number < (8, 0, 0):
        return Privilege("SELECT", "mysql", "proc")
    return Privilege("SHOW_ROUTINE" if server.number >= (8, 0, 20) else "SELECT")


@dataclass(frozen=True, slots=True)
class _Catalog:
    """The part of a server's information_schema that is about some schemas."""

    connection: Session
    groups: Sequence[Sequence[str]]
    """The schemas of each query.

    For a query on information_schema, MariaDB and MySQL before 8.0 open the tables of the schema that the condition
    names. If the condition names several schemas, these servers open all their tables.
    """

    @classmethod
    def of(cls, connection: Session, schemas: Collection[str]) -> _Catalog:
        server = server_info(connection)
        if server.is_mariadb or server.number < _HAS_INDEXED_CATALOG:
            return cls(connection, [[schema] for schema in sorted(schemas)])
        return cls(connection, [sorted(schemas)] if schemas else [])

    def rows(self, sql: str, *arguments: str) -> list[dict[str, Any]]:
        """Returns the rows of a query whose first column is the schema. In `sql`, `{}` stands for the schemas."""
        found = []
        for group in self.groups:
            rows = named(self.connection, sql.format(", ".join(["%s"] * len(group))), [*group, *arguments])
            # Servers may compare the names of schemas without case.
            found += [row for row in rows if str(next(iter(row.values()))) in group]
        return found


_HAS_INDEXED_CATALOG = (8, 0, 0)


def foreign_keys(connection: Session, takes: Callable[[TableName], bool], schemas: Collection[str]) -> list[ForeignKey]:
    """Returns the foreign keys of the tables in these schemas for which `takes` is true, sorted by table and name."""
    catalog = _Catalog.of(connection, schemas)
    rules = {
        (str(row["constraint_schema"]), str(row["table_name"]), str(row["constraint_name"])): row
        for row in catalog.rows(
            "SELECT constraint_schema, table_name, constraint_name, delete_rule, update_rule "
            "FROM information_schema.referential_constraints WHERE constraint_schema IN ({})"
        )
    }
    columns = defaultdict(list)
    for row in catalog.rows(
        "SELECT table_schema, table_name, constraint_name, column_name, referenced_table_schema, "
        "referenced_table_name, referenced_column_name FROM information_schema.key_column_usage "
        "WHERE table_schema IN ({}) AND referenced_table_name IS NOT NULL "
        "ORDER BY table_schema, table_name, constraint_name, ordinal_position"
    ):
        table = TableName(str(row["table_schema"]), str(row["table_name"]))
        if takes(table):
            columns[table, str(row["constraint_name"])].append(row)
    found = []
    for (table, name), rows in sorted(columns.items(), key=lambda item: item[0]):
        rule = rules.get((table.schema, table.name, name))
        found.append(
            ForeignKey(
                name=name,
                table=table,
                columns=tuple(str(row["column_name"]) for row in rows),
                parent=TableName(str(rows[0]["referenced_table_schema"]), str(rows[0]["referenced_table_name"])),
                parent_columns=tuple(str(row["referenced_column_name"]) for row in rows),
                on_delete=str(rule["delete_rule"]) if rule else "NO ACTION",
                on_update=str(rule["update_rule"]) if rule else "NO ACTION",
            )
        )
    return found


def left_behind(
    connection: Session, takes: Callable[[TableName], bool], schemas: Collection[str], *, texts: bool = True
) -> list[UncarriedObject]:
    """Returns the objects of these schemas, and of their tables, that a task does not create on the target.

    Objects of tables for which `takes` is false are left out. With `texts`, each text is read by a separate query.
    """
    found = _found(_Catalog.of(connection, schemas), (_views, _triggers, _routines, _events, *_OF_TABLES), texts=texts)
    kept = (one for one in found if (table := one.table_name) is None or takes(table))
    return [_defined(connection, one) if texts and one.is_of_family else one for one in kept]


def programs(connection: Session, schemas: Collection[str]) -> list[UncarriedObject]:
    """Returns the views, routines and events of these schemas, without their texts."""
    return list(_found(_Catalog.of(connection, schemas), (_views, _routines, _events), texts=False))


def _found(
    catalog: _Catalog, readers: Sequence[Callable[[_Catalog, bool], Iterator[UncarriedObject]]], *, texts: bool
) -> Iterator[UncarriedObject]:
    for read in readers:
        try:
            yield from read(catalog, texts)
        except Transient:
            raise
        except PidtsError:
            continue  # the catalog of an older server does not have this table


def _views(catalog: _Catalog, texts: bool) -> Iterator[UncarriedObject]:  # noqa: FBT001 - all readers are called alike
    for row in catalog.rows(
        "SELECT table_schema, table_name FROM information_schema.views WHERE table_schema IN ({}) ORDER BY 1, 2"
    ):
        schema, name = str(row["table_schema"]), str(row["table_name"])
        place = quoted_table(TableName(schema, name))
        text = _shown(catalog.connection, f"SHOW CREATE VIEW {place}", 1) if texts else ""
        yield UncarriedObject("view", name, schema, text=text)


def _triggers(catalog: _Catalog, texts: bool) -> Iterator[UncarriedObject]:  # noqa: FBT001
    for row in catalog.rows(
        # A trigger is in the schema of its table.
        "SELECT trigger_schema, trigger_name, event_object_table FROM information_schema.triggers "
        "WHERE event_object_schema IN ({}) ORDER BY 1, 2"
    ):
        schema, name = str(row["trigger_schema"]), str(row["trigger_name"])
        shown = f"SHOW CREATE TRIGGER {quoted(schema)}.{quoted(name)}"
        text = _shown(catalog.connection, shown, 2) if texts else ""
        yield UncarriedObject("trigger", name, schema, str(row["event_object_table"]), text)


def _routines(catalog: _Catalog, texts: bool) -> Iterator[UncarriedObject]:  # noqa: FBT001
    for row in catalog.rows(
        "SELECT routine_schema, routine_name, routine_type FROM information_schema.routines "
        "WHERE routine_schema IN ({}) AND routine_type IN ('PROCEDURE', 'FUNCTION') ORDER BY 1, 2"
    ):
        schema, name, kind = str(row["routine_schema"]), str(row["routine_name"]), str(row["routine_type"])
        shown = f"SHOW CREATE {kind} {quoted(schema)}.{quoted(name)}"
        yield UncarriedObject(kind.lower(), name, schema, text=_shown(catalog.connection, shown, 2) if texts else "")


def _events(catalog: _Catalog, texts: bool) -> Iterator[UncarriedObject]:  # noqa: FBT001
    for row in catalog.rows(
        "SELECT event_schema, event_name FROM information_schema.events WHERE event_schema IN ({}) ORDER BY 1, 2"
    ):
        schema, name = str(row["event_schema"]), str(row["event_name"])
        shown = f"SHOW CREATE EVENT {quoted(schema)}.{quoted(name)}"
        yield UncarriedObject("event", name, schema, text=_shown(catalog.connection, shown, 3) if texts else "")


def _checks(catalog: _Catalog, texts: bool) -> Iterator[UncarriedObject]:  # noqa: ARG001, FBT001
    """Yields checks. On MariaDB, the catalog's row of a check names the table; on MySQL, the constraint's row does."""
    try:
        rows = catalog.rows(
            "SELECT constraint_schema, table_name, constraint_name, check_clause "
            "FROM information_schema.check_constraints WHERE constraint_schema IN ({}) ORDER BY 1, 2, 3"
        )
    except Transient:
        raise
    except PidtsError:
        rows = catalog.rows(
            "SELECT c.constraint_schema AS constraint_schema, t.table_name AS table_name, "
            "c.constraint_name AS constraint_name, c.check_clause AS check_clause, t.enforced AS enforced "
            "FROM information_schema.check_constraints c JOIN information_schema.table_constraints t "
            "ON t.constraint_schema = c.constraint_schema AND t.constraint_name = c.constraint_name "
            "WHERE c.constraint_schema IN ({}) AND t.constraint_type = 'CHECK' ORDER BY 1, 2, 3"
        )
    for row in rows:
        name, clause = str(row["constraint_name"]), _text(row["check_clause"])
        is_sure = True
        if "enforced" in row:
            clause, is_sure = _decoded(_unescaped(clause)), clause.isascii()
        enforced = row.get("enforced", "YES") == "YES"
        text = f"CONSTRAINT {quoted(name)} CHECK ({clause})" + ("" if enforced else " NOT ENFORCED")
        schema, table = str(row["constraint_schema"]), str(row["table_name"])
        yield UncarriedObject("check", name, schema, table, text, clause if enforced and is_sure else "")


def _functional_keys(catalog: _Catalog, texts: bool) -> Iterator[UncarriedObject]:  # noqa: ARG001, FBT001
    rows = catalog.rows(
        "SELECT table_schema, table_name, index_name, expression, column_name, non_unique, seq_in_index, sub_part "
        "FROM information_schema.statistics WHERE table_schema IN ({}) "
        "ORDER BY table_schema, table_name, index_name, seq_in_index"
    )
    parts = defaultdict(list)
    for row in rows:
        parts[str(row["table_schema"]), str(row["table_name"]), str(row["index_name"])].append(row)
    for (schema, table, name), of_key in parts.items():
        if all(row["expression"] is None for row in of_key):
            continue
        columns = tuple(
            f"({_unescaped(row['expression'])})" if row["expression"] is not None else quoted(str(row["column_name"]))
            for row in of_key
        )
        is_unique = not int(of_key[0]["non_unique"])
        text = f"{'UNIQUE ' if is_unique else ''}KEY {quoted(name)} ({', '.join(columns)})"
        is_sure = all(row["sub_part"] is None and is_plain(_text(row["expression"] or "")) for row in of_key)
        kept = columns if is_sure else ()
        yield UncarriedObject("functional key", name, schema, table, text, parts=kept, unique=is_unique)


def _generated(catalog: _Catalog, texts: bool) -> Iterator[UncarriedObject]:  # noqa: ARG001, FBT001
    is_mariadb = server_info(catalog.connection).is_mariadb
    for row in catalog.rows(
        "SELECT table_schema, table_name, column_name, generation_expression, extra FROM information_schema.columns "
        "WHERE table_schema IN ({}) AND generation_expression <> '' ORDER BY 1, 2, ordinal_position"
    ):
        schema, table, name = (str(row[key]) for key in ("table_schema", "table_name", "column_name"))
        shown = row["generation_expression"]
        kept = "VIRTUAL" if "VIRTUAL" in str(row["extra"]).upper() else "STORED"
        sql = _text(shown) if is_mariadb else _unescaped(shown)
        text, is_sure = f"{quoted(name)} AS ({sql}) {kept}", is_plain(_text(shown))
        expression = f"({sql})" if is_sure else ""
        yield UncarriedObject(GENERATED, name, schema, table, text, expression=expression, stored=kept == "STORED")


_SHAPES = ("point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon")
_COLLECTIONS = ("geometrycollection", "geomcollection")


def _declared(catalog: _Catalog, texts: bool) -> Iterator[UncarriedObject]:  # noqa: ARG001, FBT001
    shapes = (*_SHAPES, *_COLLECTIONS, "geometry")
    placeholders = ", ".join(["%s"] * len(shapes))
    for row in catalog.rows(
        "SELECT table_schema, of_all.* FROM information_schema.columns AS of_all "
        f"WHERE table_schema IN ({{}}) AND (data_type IN ({placeholders}) OR column_type LIKE %s) "
        "ORDER BY table_schema, table_name, ordinal_position",
        *shapes,
        "%zerofill%",
    ):
        kind, srid = _text(row["column_type"]).lower(), row.get("srs_id")
        if kind == "geometry" and srid is None:
            continue
        schema, table, name = (str(row[key]) for key in ("table_schema", "table_name", "column_name"))
        text = f"{quoted(name)} {kind}" + (f" SRID {srid}" if srid is not None else "")
        declared = _COLLECTIONS[0] if kind in _COLLECTIONS else kind
        number = int(srid) if srid is not None else None
        yield UncarriedObject(DECLARED, name, schema, table, text, declared=declared, srid=number)


def _automatic(catalog: _Catalog, texts: bool) -> Iterator[UncarriedObject]:  # noqa: ARG001, FBT001
    for row in catalog.rows(
        "SELECT table_schema, table_name, column_name, column_type, extra FROM information_schema.columns "
        "WHERE table_schema IN ({}) AND extra LIKE %s ORDER BY 1, 2, ordinal_position",
        "%on update%",
    ):
        found = _ON_UPDATE.search(_text(row["extra"]))
        if found is None:
            continue
        schema, table, name = (str(row[key]) for key in ("table_schema", "table_name", "column_name"))
        digits = f"({found[1]})" if found[1] else ""
        text = f"{quoted(name)} {_text(row['column_type'])} ON UPDATE CURRENT_TIMESTAMP{digits}"
        yield UncarriedObject(AUTOMATIC, name, schema, table, text, digits=int(found[1] or 0))


def _decoded(shown: str) -> str:
    """Returns the decoded text of a CHECK constraint, which MySQL's catalog shows encoded twice.

    The result is only shown to the operator and never parsed, since servers may change this encoding.
    """
    with suppress(UnicodeError):
        return shown.encode("cp1252").decode()
    with suppress(UnicodeError):
        return shown.encode("latin-1").decode()
    return shown


def _unescaped(shown: object) -> str:
    """Returns an expression without the escapes of MySQL's catalog, which escapes it like a text literal."""
    return _ESCAPED.sub(r"\1", _text(shown))


def _special_keys(catalog: _Catalog, texts: bool) -> Iterator[UncarriedObject]:  # noqa: ARG001, FBT001
    columns = defaultdict(list)
    for row in catalog.rows(
        "SELECT table_schema, table_name, index_type, index_name, column_name FROM information_schema.statistics "
        "WHERE table_schema IN ({}) AND index_type IN ('FULLTEXT', 'SPATIAL') "
        "ORDER BY table_schema, table_name, index_type, index_name, seq_in_index"
    ):
        place = tuple(str(row[key]) for key in ("table_schema", "table_name", "index_type", "index_name"))
        columns[place].append(str(row["column_name"]))
    for (schema, table, kind, name), of_key in columns.items():
        text = f"{kind.upper()} KEY {quoted(name)} ({','.join(map(quoted, of_key))})"
        yield UncarriedObject(SPECIAL_KEYS[kind.upper()], name, schema, table, text, columns=tuple(of_key))


def _partitions(catalog: _Catalog, texts: bool) -> Iterator[UncarriedObject]:  # noqa: ARG001, FBT001
    for row in catalog.rows(
        "SELECT table_schema, table_name, partition_method, partition_expression, COUNT(*) AS parts "
        "FROM information_schema.partitions WHERE table_schema IN ({}) AND partition_name IS NOT NULL "
        "GROUP BY table_schema, table_name, partition_method, partition_expression ORDER BY 1, 2"
    ):
        schema, table = str(row["table_schema"]), str(row["table_name"])
        expression = _text(row["partition_expression"] or "")
        text = f"PARTITION BY {row['partition_method']} ({expression}), {row['parts']} parts"
        yield UncarriedObject(PARTITIONS, table, schema, table, text)


def _defined(connection: Session, found: UncarriedObject) -> UncarriedObject:
    """Adds the definition of a FULLTEXT or SPATIAL key, or of partitions, from the table's CREATE TABLE statement."""
    shown = _shown_table(connection, found.schema, found.table)
    if found.kind == PARTITIONS:
        definition = partition_clause(shown)
    else:
        start = f"{found.text.partition(' ')[0]} KEY {quoted(found.name)} "
        # `splitlines` would also split at other characters than the line feed, which servers do not escape in comments.
        lines = map(str.strip, shown.split("\n"))
        definition = next((line.removesuffix(",").rstrip() for line in lines if line.startswith(start)), "")
    definition = _sure(definition)
    return replace(found, definition=definition, text=definition or found.text)


def column_statement(connection: Session, table: TableName, column: str) -> str:
    """Returns the statement that gives a column the definition that it has now; empty if the account may not see it."""
    start = f"{quoted(column)} ".lower()
    lines = map(str.strip, _shown_table(connection, table.schema, table.name).split("\n"))
    shown = _sure(next((line.removesuffix(",") for line in lines if line.lower().startswith(start)), ""))
    return f"ALTER TABLE {quoted_table(table)} MODIFY {shown}" if shown else ""


def _shown_table(connection: Session, schema: str, table: str) -> str:
    """Returns the table's CREATE TABLE statement; a surrogate stands for each byte that is not UTF-8."""
    sql = f"SHOW CREATE TABLE {quoted_table(TableName(schema, table))}"
    return _shown_bytes(connection, sql, 1).decode(errors="surrogateescape")


def _sure(definition: str) -> str:
    """Returns a part of a CREATE TABLE statement; empty if it has bytes that another statement cannot repeat."""
    return "" if any("\udc80" <= letter <= "\udcff" for letter in definition) else definition


def _shown(connection: Session, sql: str, place: int) -> str:
    return _text(_shown_bytes(connection, sql, place))


def _shown_bytes(connection: Session, sql: str, place: int) -> bytes:
    """Returns a text as raw bytes, since MariaDB shows raw bytes in a default or in a partition's values."""
    connection.use_unicode = False
    try:
        rows = query(connection, sql)
    except Transient:
        raise
    except PidtsError:
        return b""
    finally:
        connection.use_unicode = True
    return bytes(rows[0][place] or b"") if rows else b""


def _text(value: object) -> str:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)


_OF_TABLES = (_checks, _functional_keys, _generated, _automatic, _declared, _special_keys, _partitions)
