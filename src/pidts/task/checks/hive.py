"""Checks whether the tables of a warehouse can be published to a Hive metastore."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

from pidts.model import ConfigError, PidtsError, Table, TableName
from pidts.source.finding import Finding
from pidts.target.hive.change_record import changes_folders
from pidts.target.hive.names import (
    CHANGE_COLUMNS,
    DAY,
    change_refusals,
    change_table_name,
    hive_name,
    refusals,
)
from pidts.target.hive.record import tables_folders
from pidts.target.iceberg.connection import CatalogConnection
from pidts.task.config.task_file import TaskConfig

_ANSWER_SECONDS = 5.0


def hive_findings(config: TaskConfig, tables: Iterable[Table], *, resumed: bool) -> Iterator[Finding]:
    """Yields findings about names, the metastore, and the Java that its client needs.

    For a task that has begun (`resumed`), a problem is only a note: the task writes its rows into the warehouse, and
    `pidts status` shows which tables are not published.
    """
    for finding in _findings(config, tables, resumed=resumed):
        yield replace(finding, ok=resumed, is_note=resumed)


def image_findings(config: TaskConfig, row_image: str) -> Iterator[Finding]:
    """Yields a note if the log lacks columns of rows that a change table shows."""
    if config.target.keeps_changes and row_image != "FULL":
        message = (
            f"with binlog_row_image = {row_image} some columns of rows before a change are NULL in the change tables"
        )
        fix = "SET GLOBAL binlog_row_image = 'FULL';   -- open sessions keep theirs"
        yield Finding("binlog_row_image", ok=True, is_note=True, message=message, fix=fix)


def change_table_note(config: TaskConfig, table: Table) -> Iterator[str]:
    """Yields a note on the change table that a target table gets."""
    if config.target.keeps_changes:
        names = ", ".join(name for name, _ in CHANGE_COLUMNS)
        place = ".".join(change_table_name(table.name))
        yield (
            f"all changes are published in {place}. It has the columns {names}, those of this table, and the "
            f"partition column {DAY}"
        )


def _findings(config: TaskConfig, tables: Iterable[Table], *, resumed: bool) -> Iterator[Finding]:
    targets = []
    for table in tables:
        with suppress(ConfigError):  # the check `target_tables` reports this error
            targets.append(config.rules.target_table(table))
    for name, problem in refusals(targets).items():
        fix = "Give it another name with routes or column mappings, or leave it out"
        yield Finding("table_schema", ok=False, message=f"{name} cannot be published: {problem}", fix=fix)
    for name, problem in change_refusals(targets).items() if config.target.keeps_changes else ():
        fix = "Give it another name with routes or column mappings, or leave pidts.hive.changes out"
        yield Finding("table_schema", ok=False, message=f"{name} can have no change table: {problem}", fix=fix)
    address = config.target.metastore
    answers = not address or _answers(address)
    if not answers:
        message, fix = (
            f"no metastore answers at {address}",
            "Start the metastore, or correct `metastore` in the task file",
        )
        yield Finding("target_connection", ok=False, message=message, fix=fix)
    try:
        from pidts.spark.session import demand_java

        demand_java()
        if address and answers and not resumed:
            yield from _taken(config, {table.name for table in targets})
    except PidtsError as error:
        what = f"nothing can be published: {error.what}"
        yield Finding("target_connection", ok=False, message=what, fix=error.todo, code=error.code)


def _taken(config: TaskConfig, names: Iterable[TableName]) -> Iterator[Finding]:
    """Yields a finding for each name with which the metastore already has a table whose files are elsewhere."""
    from pidts.spark.metastore import metastore
    from pidts.target.hive.places import folder_of, is_in

    with closing(config.target.server.connect()) as session, metastore(config.target.metastore, Path()) as store:
        assert isinstance(session, CatalogConnection)  # noqa: S101 - that is its type
        for name in sorted(names):
            wanted = {hive_name(name): tables_folders(session)}
            if config.target.keeps_changes:
                wanted[change_table_name(name)] = changes_folders(session)
            for (database, own), folders in wanted.items():
                there = store.table(database, own)
                if there is not None and not is_in(folder_of(there.location), folders):
                    message = f"the metastore already has a table {database}.{own}, at {there.location}"
                    fix = "Rename or drop the metastore's table, or give the task's table another name with a route"
                    yield Finding("table_schema", ok=False, message=message, fix=fix)


def _answers(addresses: str) -> bool:
    for address in addresses.split(","):
        host, _, port = address.removeprefix("thrift://").rpartition(":")
        with suppress(OSError), socket.create_connection((host.strip("[]"), int(port)), _ANSWER_SECONDS):
            return True
    return False
