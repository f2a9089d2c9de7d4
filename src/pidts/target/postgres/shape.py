"""The shape of a table on the target (its columns, keys and checks), read from PostgreSQL's catalog."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pidts.model import Column, ColumnType, Key, Kind, Table, TableName
from pidts.model.errors import named
from pidts.reduce import ANYTHING, UniqueKey
from pidts.target.fit import loss
from pidts.target.postgres.firing import FIRES, GRANTABLE

Run = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]


@dataclass(frozen=True, slots=True)
class PgColumn:
    """A column as the catalog describes it."""

    name: str
    type: str
    """The type as PostgreSQL writes it: `numeric(20,0)`, `timestamp(6) without time zone`."""
    base: str
    """The type without a length; for a domain, its base type. A cast to this type never cuts off a value."""
    not_null: bool
    has_default: bool
    """Whether the column has a default; an identity column has one."""
    generated: bool
    always_identity: bool
    deterministic: bool
    """False if the column's collation may treat different texts as equal."""
    expression: str = ""
    """The expression of a generated column as PostgreSQL prints it; empty if it uses objects that a user created."""

    @property
    def is_geometry(self) -> bool:
        """Whether the type is that of PostGIS. Its name includes a schema."""
        return self.base.endswith(".geometry")

    def is_loose(self, column: Column) -> bool:
        """Whether two different texts of this column of the source could be equal on the target."""
        if not column.type.is_text:
            return False
        padded = self.base == "bpchar" and column.type.kind is not Kind.CHAR
        return padded or not self.deterministic or self.base.endswith("citext")

    def merges_keys(self, column: Column) -> bool:
        """Whether two different texts in a key of the source could be one key on the target."""
        return self.is_loose(column) or (column.type.is_text and self.base == "jsonb")


@dataclass(frozen=True, slots=True)
class PgKey:
    """An index over plain columns of all rows."""

    name: str
    columns: tuple[str, ...]
    unique: bool
    primary: bool
    constraint: bool


@dataclass(frozen=True, slots=True)
class PgCheck:
    """A check constraint over one column."""

    name: str
    column: str


@dataclass(frozen=True, slots=True)
class PgTable:
    """A relation of the target: a table to which rows can be written, or a relation of another kind."""

    name: TableName
    relation: str
    """The kind of relation: `r` table, `p` partitioned table. Rows cannot be written exactly once to other kinds."""
    persistent: bool
    columns: tuple[PgColumn, ...]
    keys: tuple[PgKey, ...]
    checks: tuple[PgCheck, ...]
    foreign_keys: tuple[str, ...] = ()
    """The foreign keys of this table, and those that reference it or a partition; none if the session has them off."""
    referenced: bool = False
    """Whether a foreign key references the table."""
    unwatched: tuple[str, ...] = ()
    """Unique keys that the server would not check: the DEFERRABLE keys, in a session that has triggers off."""
    triggers: tuple[str, ...] = ()
    """The triggers that would fire, and that a grant would let the role switch off."""

    def column(self, name: str) -> PgColumn | None:
        """Returns the column of exactly this name; None if there is none."""
        return next((column for column in self.columns if column.name == name), None)

    def checks_on(self, column: str) -> list[str]:
        """Returns the names of the checks that concern only this column."""
        return [check.name for check in self.checks if check.column == column]

    @property
    def table(self) -> Table:
        """Returns the table as a `Table` of PiDTS, with the nearest MySQL types."""
        return Table(
            name=self.name,
            columns=tuple(
                Column(column.name, nearest_type(column.type), nullable=not column.not_null, generated=column.generated)
                for column in self.columns
            ),
            keys=tuple(Key(key.name, key.columns, unique=key.unique, primary=key.primary) for key in self.keys),
        )

    def misfits(self, table: Table) -> list[str]:
        """Returns why rows of `table` cannot be written to the target's table, apart from generated columns."""
        if self.relation not in ("r", "p"):
            return ["it is not a table"]
        found = [] if self.persistent else ["it is UNLOGGED: a server crash would empty it, but not the checkpoint"]
        names = {column.name for column in table.columns}
        missing = [column.name for column in table.columns if self.column(column.name) is None]
        if missing:
            found.append(f"it lacks {named('column', missing)}")
        for column in table.columns:
            target = self.column(column.name)
            if target is not None and not target.generated and (lost := loss(column.type, nearest_type(target.type))):
                found.append(f"column {column.name} is {target.type} on the target and would lose {lost}")
        needy = [
            column.name
            for column in self.columns
            if column.not_null and not column.has_default and column.name not in names
        ]
        if needy:
            found.append(
                f"{named('column', needy, 'is', 'are')} NOT NULL without a default, and the source has no such column"
            )
        found += self.write_obstacles()
        if self.unwatched:
            found.append(f"{named('unique key', self.unwatched, 'is', 'are')} DEFERRABLE and would not be checked")
        identity = set(table.identity)
        if identity and not any(key.unique and set(key.columns) == identity for key in self.keys):
            found.append(f"it has no unique key over ({', '.join(table.identity)})")
        keyed = [(self.column(name), table.column(name)) for name in table.identity]
        if loose := [column.name for target, column in keyed if target is not None and target.merges_keys(column)]:
            found.append(f"of its key, {named('column', loose, 'treats', 'treat')} different texts as equal")
        return found

    def write_obstacles(self) -> list[str]:
        """Returns the texts of `misfits` on foreign keys and triggers that the account cannot switch off."""
        found = []
        if self.foreign_keys:
            found.append(
                f"{named('foreign key', self.foreign_keys)} would be checked, but rows arrive in a different order: "
                "GRANT SET ON PARAMETER session_replication_role to the task's user, or drop every such foreign key"
            )
        if self.triggers:
            found.append(
                f"{named('trigger', self.triggers)} would fire, but rows arrive in a different order: GRANT SET ON "
                "PARAMETER session_replication_role to the task's user, or drop every such trigger"
            )
        return found


def read_shape(run: Run, name: TableName) -> PgTable | None:
    """Returns the shape of a table; None if there is no relation of this name."""
    found = run(
        "SELECT c.oid, c.relkind::text, c.relpersistence::text FROM pg_catalog.pg_class c "
        "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p', 'v', 'm', 'f')",
        (name.schema, name.name),
    )
    if not found:
        return None
    oid, relation, persistence = found[0]
    columns = run(
        "SELECT attname::text, pg_catalog.format_type(atttypid, atttypmod), "
        "pg_catalog.format_type(coalesce(nullif(y.typbasetype, 0), atttypid), -1), attnotnull, "
        "atthasdef OR attidentity <> '', "
        "attgenerated <> '', attidentity = 'a', "
        "coalesce(l.collisdeterministic, true), "
        "CASE WHEN attgenerated <> '' AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend p WHERE p.objid = d.oid "
        "AND p.classid = 'pg_catalog.pg_attrdef'::regclass AND p.refclassid <> 'pg_catalog.pg_class'::regclass) "
        "THEN pg_catalog.pg_get_expr(d.adbin, d.adrelid) ELSE '' END FROM pg_catalog.pg_attribute "
        "JOIN pg_catalog.pg_type y ON y.oid = atttypid "
        "LEFT JOIN pg_catalog.pg_collation l ON l.oid = attcollation "
        "LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = attrelid AND d.adnum = attnum "
        "WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        (oid,),
    )
    keys = run(
        "SELECT x.relname::text, array_agg(a.attname::text ORDER BY k.place), "
        "i.indisunique AND i.indimmediate, i.indisprimary, "
        "EXISTS (SELECT FROM pg_catalog.pg_constraint o WHERE o.conindid = i.indexrelid AND o.conrelid = i.indrelid) "
        "FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class x ON x.oid = i.indexrelid "
        "CROSS JOIN LATERAL unnest(i.indkey[0:i.indnkeyatts - 1]) WITH ORDINALITY AS k(attnum, place) "
        "JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum "
        "WHERE i.indrelid = %s AND i.indpred IS NULL AND i.indexprs IS NULL AND i.indisvalid "
        "GROUP BY 1, 3, 4, 5, i.indexrelid ORDER BY i.indisprimary DESC, i.indexrelid",
        (oid,),
    )
    checks = run(
        "SELECT o.conname::text, a.attname::text FROM pg_catalog.pg_constraint o "
        "JOIN pg_catalog.pg_attribute a ON a.attrelid = o.conrelid AND a.attnum = o.conkey[1] "
        "WHERE o.conrelid = %s AND o.contype = 'c' AND cardinality(o.conkey) = 1",
        (oid,),
    )
    referenced = run(
        "SELECT 1 FROM pg_catalog.pg_constraint WHERE contype = 'f' AND confrelid = %s AND conrelid <> %s LIMIT 1",
        (oid, oid),
    )
    constraints = run(
        "SELECT DISTINCT conname::text, contype = 'f' FROM pg_catalog.pg_constraint WHERE "
        "CASE WHEN pg_catalog.current_setting('session_replication_role') <> 'replica' "
        "THEN contype = 'f' AND (%s IN (conrelid, confrelid) "
        "OR confrelid IN (SELECT relid FROM pg_catalog.pg_partition_tree(%s))) "
        "ELSE contype IN ('u', 'x', 'p') AND condeferrable AND conrelid = %s END ORDER BY 1",
        (oid, oid, oid),
    )
    triggers = run(
        "SELECT DISTINCT tgname::text FROM pg_catalog.pg_trigger WHERE "
        "pg_catalog.current_setting('session_replication_role') <> 'replica' "
        f"AND pg_catalog.current_setting('server_version_num')::integer >= {GRANTABLE} AND {FIRES} "
        "AND (tgrelid = %s OR tgrelid IN (SELECT relid FROM pg_catalog.pg_partition_tree(%s))) ORDER BY 1",
        (oid, oid),
    )
    return PgTable(
        name,
        relation,
        persistence == "p",
        tuple(PgColumn(*row) for row in columns),
        tuple(PgKey(row[0], tuple(row[1]), *row[2:]) for row in keys),
        tuple(PgCheck(*row) for row in checks),
        tuple(constraint for constraint, is_foreign in constraints if is_foreign),
        bool(referenced),
        tuple(constraint for constraint, is_foreign in constraints if not is_foreign),
        tuple(trigger for (trigger,) in triggers),
    )


_NEAREST = {
    "smallint": Kind.SMALLINT,
    "integer": Kind.INT,
    "bigint": Kind.BIGINT,
    "real": Kind.FLOAT,
    "double precision": Kind.DOUBLE,
    "boolean": Kind.BIT,
    "bit": Kind.BIT,
    "date": Kind.DATE,
    "interval": Kind.TIME,
    "time": Kind.TIME,
    "character": Kind.CHAR,
    "character varying": Kind.VARCHAR,
    "bytea": Kind.LONGBLOB,
    "text[]": Kind.SET,
    "json": Kind.JSON,
    "jsonb": Kind.JSON,
    "real[]": Kind.VECTOR,
    "uuid": Kind.UUID,
    "inet": Kind.INET6,
}
_TYPE = re.compile(r"([a-z ]+?)(?:\((\d+)(?:,(-?\d+))?\))?((?: with| without) time zone)?(\[\])?\Z")


def nearest_type(text: str) -> ColumnType:
    """Returns the MySQL type that is nearest to a type of PostgreSQL; LONGTEXT if no type is near."""
    found = _TYPE.match(text)
    if found is None:
        return ColumnType(Kind.LONGTEXT)
    base, first, second, zone, dimension = found.groups()
    number = int(first) if first else None
    if base == "numeric":
        return ColumnType(Kind.DECIMAL, precision=number or 65, scale=int(second or 0) if number else 30)
    if base == "timestamp":
        return ColumnType(
            Kind.TIMESTAMP if zone == " with time zone" else Kind.DATETIME, fsp=6 if number is None else number
        )
    kind = _NEAREST.get(base + (dimension or ""), Kind.LONGTEXT)
    if kind is Kind.TIME:
        return ColumnType(kind, fsp=6 if number is None else number)
    return ColumnType(kind, length=number if kind in (Kind.CHAR, Kind.VARCHAR, Kind.BIT) else None)


def unique_keys(run: Run, name: TableName) -> list[UniqueKey]:
    """Returns the unique indexes of a table, including those over expressions or over some of the rows.

    A missing table has no unique indexes. For an EXCLUDE constraint, the compared columns are not returned.
    """
    rows = run(
        "SELECT array_agg(coalesce(a.attname::text, '') ORDER BY k.place), i.indpred IS NOT NULL OR i.indisexclusion "
        "FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indrelid "
        "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
        "CROSS JOIN LATERAL unnest(i.indkey[0:i.indnkeyatts - 1]) WITH ORDINALITY AS k(attnum, place) "
        "LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum AND k.attnum > 0 "
        "WHERE n.nspname = %s AND c.relname = %s AND (i.indisunique OR i.indisexclusion) AND i.indisready "
        "GROUP BY i.indexrelid, 2 ORDER BY i.indexrelid",
        (name.schema, name.name),
    )
    return [
        UniqueKey((*columns, ANYTHING) if is_special else tuple(columns), whole=not is_special)
        for columns, is_special in rows
    ]
