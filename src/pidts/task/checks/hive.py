"""Whether the tables of a warehouse can be published to a Hive metastore."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace

from pidts.model import ConfigError, PidtsError, Table
from pidts.source.finding import Finding
from pidts.target.hive.names import change_refusals, refusals
from pidts.task.config.task_file import TaskConfig

_ANSWER_SECONDS = 5.0


def hive_findings(config: TaskConfig, tables: Iterable[Table], *, resumed: bool) -> Iterator[Finding]:
    """Yields findings about names, the metastore, and the Java that its client needs.

    A task that has begun starts without them: its rows go into the warehouse, and `pidts status` says what is not
    published.
    """
    for finding in _findings(config, tables):
        yield replace(finding, ok=resumed, is_note=resumed)


def _findings(config: TaskConfig, tables: Iterable[Table]) -> Iterator[Finding]:
    targets = []
    for table in tables:
        with suppress(ConfigError):  # `target_tables` reports it
            targets.append(config.rules.target_table(table))
    for name, problem in refusals(targets).items():
        fix = "Give it another name with routes or column mappings, or leave it out"
        yield Finding("table_schema", ok=False, message=f"{name} cannot be published: {problem}", fix=fix)
    for name, problem in change_refusals(targets).items() if config.target.keeps_changes else ():
        fix = "Give it another name with routes or column mappings, or leave pidts.hive.changes out"
        yield Finding("table_schema", ok=False, message=f"{name} can have no change table: {problem}", fix=fix)
    if config.target.metastore and not _answers(config.target.metastore):
        message, fix = f"no metastore answers at {config.target.metastore}", "Start it, or correct metastore"
        yield Finding("target_connection", ok=False, message=message, fix=fix)
    try:
        from pidts.spark.session import demand_java

        demand_java()
    except PidtsError as error:
        yield Finding("target_connection", ok=False, message=f"nothing can be published: {error.what}", fix=error.todo)


def _answers(addresses: str) -> bool:
    """Whether a connection can be made to one of the addresses."""
    for address in addresses.split(","):
        host, _, port = address.removeprefix("thrift://").rpartition(":")
        with suppress(OSError), socket.create_connection((host.strip("[]"), int(port)), _ANSWER_SECONDS):
            return True
    return False
