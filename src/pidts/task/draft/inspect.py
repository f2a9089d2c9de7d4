"""Inspects the two servers of a task that is being drafted: tables, sizes and problems. Nothing is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace

from pidts.apply import Target, TargetSession
from pidts.model import Halted, PidtsError, Table, TableName, Transient
from pidts.model.types import DATED
from pidts.rules import AllowList
from pidts.schema import quote
from pidts.source import Finding, Session, SourceConfig, check_source, connect, query, server_info
from pidts.source.connection import variables
from pidts.source.current_tables import readable_structures
from pidts.source.grants import sees_all_schemas
from pidts.source.structures import TableSize, quoted_table, system_versioned, table_sizes
from pidts.target import PostgresTarget

_LOOKED_AT = 2_000_000
"""If all tables with dates together have more estimated rows than this, they are not searched for zero dates."""
_VERSIONED = "it is system-versioned: the log shows old versions of its rows as new rows"


@dataclass(frozen=True, slots=True)
class SeenTable:
    """One table of the source."""

    name: TableName
    size: TableSize | None
    has_key: bool = True
    left_out: str = ""
    """The reason why no task can take the table."""
    problem: str = ""
    """The reason why the target's table of this name cannot be used."""
    notes: tuple[str, ...] = ()
    """The properties that will differ on the target."""


@dataclass(frozen=True, slots=True)
class FirstLook:
    """The results of the inspection of both servers."""

    server: str
    tables: tuple[SeenTable, ...]
    findings: tuple[Finding, ...]
    """The findings of the source's checks, without findings about tables that are left out."""
    has_gtids: bool = False
    """Whether every transaction of the source has a GTID."""
    refuses_unreal: bool = False
    """Whether the source refuses zero and partial dates, and has no such dates."""
    sees_all_schemas: bool = True
    """Whether the account sees every schema of the source, even those on which it has no privilege."""

    @property
    def taken(self) -> tuple[SeenTable, ...]:
        """The tables that a task can take."""
        return tuple(table for table in self.tables if not table.left_out)

    @property
    def case_matters(self) -> bool:
        """Whether names of two tables differ only in upper and lower case."""
        names = [table.name for table in self.tables]
        folded = {(name.schema.lower(), name.name.lower()) for name in names}
        return len(folded) < len(names)


def look_at(source: SourceConfig, target: Target, allow: AllowList) -> FirstLook:
    """Inspects the servers and every table that the list includes; returns the results."""
    with ExitStack() as sessions:
        session = sessions.enter_context(closing(connect(source)))
        info = server_info(session)
        all_schemas = sees_all_schemas(session, info)
        structures, unreadable = readable_structures(session, allow)
        versioned = system_versioned(session) if info.is_mariadb else frozenset()
        left_out = {**unreadable, **{name: _VERSIONED for name in versioned if name in structures}}
        taken = {name: table for name, table in structures.items() if name not in left_out}
        sizes = table_sizes(session, {*structures, *unreadable})
        tables = [SeenTable(name, sizes.get(name), left_out=why) for name, why in left_out.items()]
        findings = check_source(session, source, taken.values())
        refuses_unreal = _refuses_unreal(session) and not _has_unreal(session, taken.values(), sizes)
        if isinstance(target, PostgresTarget) and refuses_unreal:
            # The written task file then has `zero-dates: error`, and the notes have to fit this setting.
            target = replace(target, types=replace(target.types, refuses_unreal=True))
        there = sessions.enter_context(closing(target.connect()))
        tables += [_seen(there, table, sizes.get(name)) for name, table in taken.items()]
    return FirstLook(
        f"{info.product} {info.version}",
        tuple(sorted(tables, key=lambda table: table.name)),
        tuple(findings),
        has_gtids=info.gtid_mode,
        refuses_unreal=refuses_unreal,
        sees_all_schemas=all_schemas,
    )


def _refuses_unreal(session: Session) -> bool:
    """Whether sessions of the server refuse zero and partial dates by default."""
    modes = set(variables(session, "sql_mode").get("sql_mode", "").split(","))
    return {"NO_ZERO_DATE", "NO_ZERO_IN_DATE"} <= modes and bool(modes & {"STRICT_TRANS_TABLES", "STRICT_ALL_TABLES"})


def _has_unreal(session: Session, tables: Iterable[Table], sizes: Mapping[TableName, TableSize]) -> bool:
    """Whether a row has a zero or partial date; also True if there are too many rows to search."""
    dated = {table.name: [one.name for one in table.columns if one.type.kind in DATED] for table in tables}
    dated = {name: columns for name, columns in dated.items() if columns}
    if sum(sizes[name].rows if name in sizes else 0 for name in dated) > _LOOKED_AT:
        return True
    wheres = ((quoted_table(name), " OR ".join(map(_is_unreal, columns))) for name, columns in dated.items())
    return any(query(session, f"SELECT 1 FROM {table} WHERE {where} LIMIT 1") for table, where in wheres)


def _is_unreal(column: str) -> str:
    name = quote(column)
    return f"YEAR({name}) = 0 OR MONTH({name}) = 0 OR DAY({name}) = 0 OR DAY({name}) > DAY(LAST_DAY({name}))"


def _seen(target: TargetSession, table: Table, size: TableSize | None) -> SeenTable:
    notes: tuple[str, ...] = ()
    try:
        misfits = target.schema.misfits(table)
        if misfits is None:
            notes = target.schema.create_statements(table).notes
        elif not misfits and target.read_rows(table, limit=1).num_rows:
            misfits = ["it already has rows on the target"]
    except Transient:
        raise
    except Halted as error:
        return SeenTable(table.name, size, left_out=error.what)
    except PidtsError as error:
        misfits = [error.what]
    return SeenTable(table.name, size, bool(table.identity), problem="; ".join(misfits or ()), notes=notes)
