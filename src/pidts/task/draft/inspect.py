"""Inspects the two servers of a task that is being drafted: tables, sizes and problems. Nothing is written."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

from pidts.apply import Target, TargetSession
from pidts.model import Halted, PidtsError, Table, TableName, Transient
from pidts.rules import AllowList
from pidts.source import Finding, SourceConfig, check_source, connect, server_info
from pidts.source.catalogue import readable_structures
from pidts.source.structures import Size, system_versioned, table_sizes

_VERSIONED = "it is system-versioned: the log shows old versions of its rows as new rows"


@dataclass(frozen=True, slots=True)
class SeenTable:
    """One table of the source."""

    name: TableName
    size: Size | None
    has_key: bool = True
    left_out: str = ""
    """Why no task can take it."""
    problem: str = ""
    """Why the target's table of this name cannot be used as it is."""
    notes: tuple[str, ...] = ()
    """What the target will not have as the source has it."""


@dataclass(frozen=True, slots=True)
class FirstLook:
    """What the inspection of both servers found."""

    server: str
    tables: tuple[SeenTable, ...]
    findings: tuple[Finding, ...]
    """The findings of the source's checks, without the tables that are left out."""
    has_gtids: bool = False
    """Whether every transaction of the source has a GTID."""

    @property
    def taken(self) -> tuple[SeenTable, ...]:
        """The tables that a task can take."""
        return tuple(table for table in self.tables if not table.left_out)

    @property
    def case_matters(self) -> bool:
        """Whether two names differ in upper and lower case only."""
        names = [table.name for table in self.tables]
        folded = {(name.schema.lower(), name.name.lower()) for name in names}
        return len(folded) < len(names)


def look_at(source: SourceConfig, target: Target, allow: AllowList) -> FirstLook:
    """Inspects every table that the list includes."""
    with closing(connect(source)) as session, closing(target.connect()) as there:
        info = server_info(session)
        structures, unreadable = readable_structures(session, allow)
        versioned = system_versioned(session) if info.is_mariadb else frozenset()
        left_out = {**unreadable, **{name: _VERSIONED for name in versioned if name in structures}}
        taken = {name: table for name, table in structures.items() if name not in left_out}
        sizes = table_sizes(session, {*structures, *unreadable})
        tables = [SeenTable(name, sizes.get(name), left_out=why) for name, why in left_out.items()]
        tables += [_seen(there, table, sizes.get(name)) for name, table in taken.items()]
        findings = check_source(session, source, taken.values())
    return FirstLook(
        f"{info.flavor} {info.version}",
        tuple(sorted(tables, key=lambda table: table.name)),
        tuple(findings),
        has_gtids=info.gtid_mode,
    )


def _seen(target: TargetSession, table: Table, size: Size | None) -> SeenTable:
    notes: tuple[str, ...] = ()
    try:
        misfits = target.schema.misfits(table)
        if misfits is None:
            notes = target.schema.create_statements(table).notes
        elif not misfits and target.read_rows(table, limit=1).num_rows:
            misfits = ["it has rows on the target already"]
    except Transient:
        raise
    except Halted as error:
        return SeenTable(table.name, size, left_out=error.what)
    except PidtsError as error:
        misfits = [error.what]
    return SeenTable(table.name, size, bool(table.identity), problem="; ".join(misfits or ()), notes=notes)
