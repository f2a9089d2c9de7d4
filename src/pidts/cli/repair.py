"""`pidts repair`: what a comparison finds, as SQL; with `--apply` written to the target, while the task runs."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from pidts.cli.verify import AsJson, Debug, Tables, TaskFile, demand_tables, opened, persistently, progress_line
from pidts.model import Lsn, PidtsError, Where

if TYPE_CHECKING:
    import pyarrow as pa

    from pidts.apply import TargetSession
    from pidts.cli.flight import TaskFlight
    from pidts.model import Table, TableName
    from pidts.reduce import NetChange
    from pidts.task.config import TaskConfig
    from pidts.verify import Finding, Report, Settled

_KEYS = 500
"""In one transaction; the task waits for it."""
_CROWDED_SECONDS = 10.0
_CROWDED_PAUSE = 0.1


def repair(
    task: TaskFile,
    tables: Tables = "",
    apply: Annotated[bool, typer.Option("--apply", help="Do it; without, only print what would be done.")] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> int:
    """Compare, and print or write what makes the target's rows those of the source."""
    config = opened(task, debug=debug)
    from pidts.cli.signals import run_until_stopped
    from pidts.verify import Stopped

    def work(stop: threading.Event) -> Repairs | None:
        try:
            return repaired(config, tables, apply=apply, stop=stop, show=(lambda _: None) if as_json else print)
        except Stopped:
            return None

    done = run_until_stopped(work)
    if done is None:
        print("stopped", file=sys.stderr)
        return PidtsError.exit_code
    return show_repairs(done, as_json=as_json)


def repaired(
    config: TaskConfig, tables: str, *, apply: bool, stop: threading.Event, show: Callable[[str], None]
) -> Repairs:
    """Compare the tables; with each group of differences, repair them or say how."""
    from pidts.cli.comparison import chosen, compare_task
    from pidts.cli.flight import TaskFlight
    from pidts.source.connection import connect
    from pidts.task.compose import source_config, target_of
    from pidts.verify import Memory, Outside

    named = chosen(tables)
    filtered: set[TableName] = set()

    def takes(name: TableName) -> bool:
        if named(name) and config.rules.keeps_rows(name):
            filtered.add(name)
        return named(name) and name not in filtered

    memory = [Memory()]

    def save(reached: Memory) -> None:
        memory[:] = [reached]

    with (
        progress_line(config.name) as line,
        closing(connect(source_config(config))) as source,
        closing(target_of(config).connect()) as target,
    ):
        work = Repairs(config, target, TaskFlight(config, source, target), stop, show, apply=apply)
        outside = Outside(tell=line.tell, save=save, differ=work.differ, stop=stop)
        report = persistently(
            lambda: compare_task(config, takes=takes, memory=memory[0], outside=outside, say=line.say), outside
        )
        work.report = report
    if not filtered:
        demand_tables(report, tables)
    for name in sorted(filtered):
        print(
            f"-- {name} is left alone: filters leave out some of its changes, so rows may differ on purpose",
            file=sys.stderr,
        )
    return work


@dataclass(slots=True)
class Repairs:
    """What is done with differences, and how many they were."""

    config: TaskConfig
    target: TargetSession
    flight: TaskFlight
    stop: threading.Event
    print_sql: Callable[[str], None]
    apply: bool = field(kw_only=True)
    report: Report | None = None
    """With `apply`: what is left when each group was looked at again."""
    written: int = 0
    removed: int = 0
    _began: bool = False
    _never_quiet: set[TableName] = field(default_factory=set)
    """Tables of which there is always a change on its way."""

    def differ(self, table: Table, settled: Settled) -> bool:
        """A few keys at a time; true where they are to be looked at again."""
        from pidts.verify import Stopped

        for begin in range(0, len(settled.keys), _KEYS):
            if self.stop.is_set():
                raise Stopped
            keys = settled.keys.slice(begin, _KEYS)
            if self.apply:
                self._write(table, keys)
            else:
                self._print(table, keys, settled.found[begin : begin + _KEYS])
        return self.apply

    def _write(self, table: Table, keys: pa.Table) -> None:
        """Where changes of the table are on their way, a better moment may come."""
        from pidts.apply.repair import Crowded, repair
        from pidts.verify import Stopped

        deadline = time.monotonic() + (0.0 if table.name in self._never_quiet else _CROWDED_SECONDS)
        while True:
            try:
                done = repair(
                    self.target,
                    self.config.name,
                    self.config.source.source_id,
                    self.config.rules.landed(table),
                    keys,
                    lambda wanted: self._read(table, wanted),
                    lambda held, high: self.flight.caught_up(table.name, held, high),
                    insist=table.name in self._never_quiet,
                )
            except Crowded:
                if time.monotonic() > deadline:
                    self._never_quiet.add(table.name)
                if self.stop.wait(_CROWDED_PAUSE):
                    raise Stopped from None
                continue
            self.written += done.written
            self.removed += done.removed
            return

    def _read(self, table: Table, keys: pa.Table) -> tuple[pa.Table, Lsn]:
        """Rows of the source as the target is to have them."""
        from pidts.copy import read_keys
        from pidts.source.failures import StructureChanged
        from pidts.task.compose import source_config

        chunk = read_keys(source_config(self.config), table, keys, whole=True)
        if chunk.stale:
            raise StructureChanged(
                "structure-changed", "the table was changed meanwhile", where=Where(table=str(table.name))
            )
        return self.config.rules.rows(table, chunk.rows), Lsn.at(chunk.high, self.flight.change_no)

    def _print(self, table: Table, keys: pa.Table, found: tuple[tuple[Finding, tuple[str, ...]], ...]) -> None:
        from pidts.apply.repair import as_change
        from pidts.verify import Finding

        preamble, statements = self._sql
        if not self._began:
            self.print_sql("\n".join(preamble))
            self._began = True
        kinds = Counter(kind for kind, _ in found)
        columns = sorted({name for _, names in found for name in names})
        self.print_sql(f"-- {table.name}: {', '.join(f'{count} {kind.value}' for kind, count in kinds.items())}")
        if columns:
            self.print_sql(f"-- {Finding.DIFFERENT.value} in {', '.join(columns)}")
        rows, _ = self._read(table, keys)
        for statement in statements(as_change(self.config.rules.landed(table), keys, rows)):
            self.print_sql(statement)

    @property
    def _sql(self) -> tuple[Sequence[str], Callable[[NetChange], Iterator[str]]]:
        if self.config.target.type == "postgresql":
            from pidts.target.postgres import PostgresSession
            from pidts.target.postgres import repair_sql as postgres

            if isinstance(self.target, PostgresSession):
                return postgres.PREAMBLE, partial(postgres.repair_sql, self.target)
        from pidts.target.mysql import MySqlSession
        from pidts.target.mysql import repair_sql as mysql

        if isinstance(self.target, MySqlSession):
            return mysql.PREAMBLE, partial(mysql.repair_sql, self.target)
        raise TypeError(self.target)


def show_repairs(work: Repairs, *, as_json: bool) -> int:
    """In short; the exit code says whether the rows are equal now."""
    from pidts.cli.findings import DIFFERENT

    report = work.report
    if report is None:
        return PidtsError.exit_code
    if as_json:
        numbers = {"applied": work.apply, "written": work.written, "removed": work.removed}
        print(json.dumps({**report.to_json(work.config.name), **numbers}, ensure_ascii=False), flush=True)
        return 0 if report.equal else DIFFERENT
    name = work.config.name
    for one in report.tables:
        if one.problem:
            print(f"-- {one.table}: {one.problem}", file=sys.stderr)
        elif not one.equal and not one.has_key:
            todo = f"pidts run {work.config.path} --resync {one.table}"
            print(f"-- {one.table} has no key, its rows are not repaired one by one: {todo}", file=sys.stderr)
    if work.apply:
        left = "all equal now" if report.equal else f"{report.differences:,} rows are still not equal"
        print(f"{name}: {work.written:,} rows written, {work.removed:,} removed, {left}")
    else:
        todo = "" if report.equal else "; with --apply it is done"
        print(f"{name}: {report.differences:,} rows are not equal{todo}", file=sys.stderr)
    return 0 if report.equal else DIFFERENT
