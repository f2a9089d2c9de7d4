"""Prints `pidts status`: first each source, then halted and waiting tables in the form of `pidts ddl list`."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pidts.cli.backlog_text import indented, moment, retained_log, time_text
from pidts.cli.ddl.lock_view import show_lock
from pidts.cli.ddl.view import halted_json, next_steps, show_halted_tables
from pidts.cli.errors import show_error
from pidts.cli.relay.view import in_units
from pidts.cli.view import PHASES
from pidts.model import Halted, Lsn, PidtsError, TableName
from pidts.model.advice import fill_zone, with_task
from pidts.model.errors import in_one_line, listed, plural
from pidts.plan import Phase
from pidts.replicate.status import REPLICATOR_SILENT
from pidts.task.operate.ddl_commands import needs_operator
from pidts.task.operate.progress import applied_json
from pidts.task.operate.status import NOT_RUNNING

if TYPE_CHECKING:
    from pidts.target.hive.change_record import ChangeTable
    from pidts.target.hive.record import Publication
    from pidts.task.operate.progress import TableProgress
    from pidts.task.operate.source_log import SourceLog
    from pidts.task.operate.status import PartialColumn, SourceStatus, TaskStatus

_SHOWN = 12
_DIED = "the last run here did not end in order: it was killed, or this machine went down"


def show_status(found: TaskStatus, task: Path, *, as_json: bool) -> int:
    """Prints the status. Returns the exit code, which shows whether an operator is needed."""
    if as_json:
        print(json.dumps(status_json(found, task), ensure_ascii=False))
    elif not found.has_begun:
        waits = (
            f"; process {found.process} is starting it, or waits for a server (the log of the task names the server)"
            if found.process
            else ""
        )
        _show_end(found, task)
        print(f"{found.task}: has not begun on this target{waits}")
        _list("known", [f"the target has records of task {one}" for one in found.known])
        if found.known:
            print("             to see one of them, correct `name` and `source-id` in the task file")
        for source in found.sources:
            _show_pause(source, task)
    else:
        _show(found, task)
    return Halted.exit_code if found.needs_operator else 0


def show_without_target(found: TaskStatus, error: PidtsError, task: Path, *, as_json: bool) -> int:
    """Prints what this machine knows about the run, and then why the target cannot be read; returns the exit code."""
    beside = {
        "task": found.task,
        **_run_json(found),
        "sources": [{"source": source.source, "paused": _pause_json(source)} for source in found.sources],
    }
    if not as_json:
        for source in found.sources:
            if source.pause is not None:
                print(f"{source.source}:")
                _show_pause(source, task)
        _show_end(found, task)
        rest = "the rest of the status is on the target, which cannot be read now"
        print(f"{found.task}: {_running(found)}{rest}", flush=True)
    show_error(error, as_json=as_json, beside=beside)
    return error.exit_code


def status_json(found: TaskStatus, task: Path) -> dict[str, Any]:
    """Returns the status as plain values."""
    several = len(found.sources) > 1
    return {
        "task": found.task,
        "begun": found.has_begun,
        "needs_operator": found.needs_operator,
        "sources": [_source_json(source, task, several=several) for source in found.sources],
        "locks": [lock.to_json() for lock in found.locks],
        "uneven": [one.to_json() for one in found.partial_columns],
        "held_bytes": found.held_bytes,
        "held_lag_seconds": None if found.held_lag_seconds is None else round(found.held_lag_seconds, 3),
        "cutover": found.cutover.to_json() if found.cutover is not None else None,
        **({} if found.published is None else {"published": _published_json(found.published, found.change_tables)}),
        **({} if found.server_catalog is None else {"server_catalog": found.server_catalog.to_json()}),
        **_run_json(found),
        "known_tasks": [{"task": one.name, "sources": list(one.sources)} for one in found.known],
    }


def _published_json(
    published: Mapping[TableName, Publication], changes: Mapping[TableName, ChangeTable]
) -> list[dict[str, Any]]:
    """Returns the published tables. `read_at` is the time of a published state, in seconds since 1970."""
    return [
        {
            "table": str(name),
            **_place_json(published.get(name)),
            "changes": _place_json(changes[name]) if name in changes else None,
        }
        for name in sorted({*published, *changes})
    ]


def _place_json(one: Publication | ChangeTable | None) -> dict[str, Any]:
    if one is None:
        return {"lsn": None, "read_at": None, "problem": ""}
    return {"lsn": one.lsn or None, "read_at": one.read_at or None, "problem": one.problem}


def _run_json(found: TaskStatus) -> dict[str, Any]:
    """Returns what this machine knows about the current run, or about the end of the last one."""
    end = found.ended
    return {
        "ended": end.to_json() if end is not None and end.is_failure else None,
        "runs": found.runs,
        "process": found.process or None,
        "stopped_at": end.at if end is not None and not end.is_failure else None,
        "was_killed": found.was_killed,
    }


def _pause_json(source: SourceStatus) -> dict[str, Any] | None:
    return source.pause.to_json() if source.pause is not None else None


def _source_json(source: SourceStatus, task: Path, *, several: bool) -> dict[str, Any]:
    held = source.held.to_json()
    return {
        "source": source.source,
        "server": source.server,
        "standbys": list(source.standbys),
        "applied": applied_json(source.applied_lsn, source.gtid, source.position),
        "moved_at": source.moved_at or None,
        "silent_since": source.silent_since or None,
        "not_receiving": source.lack.to_json() if source.lack else None,
        "paused": _pause_json(source),
        "copy": {
            "done": source.tables - len(source.copying),
            "of": source.tables,
            "tables": [table.to_json() for table in source.copying],
        },
        "held": {name: held[name] for name in ("tables", "log_bytes", "lag_seconds")},
        "halted": [
            {
                **halted_json(one, one.halt),
                "advice": ". ".join(next_steps(one, str(task), source.source if several else "")),
                "needs_operator": needs_operator(one.halt),
            }
            for one in source.halted
            if one.halt is not None
        ],
        "locked_rows": [{"table": str(one.table), "rows": one.rows} for one in source.locked_rows],
        "due_copies": [one.to_json() for one in source.due_copies],
        "unseen": list(map(str, source.unseen)),
        **_log_json(source.log),
    }


def _log_json(log: SourceLog | None) -> dict[str, Any]:
    end = log.end.position if log is not None else None
    error = log.end.error if log is not None else None
    lag = log.lag_seconds if log is not None else None
    return {
        "log_end": {"file": end.file, "position": end.offset} if end is not None else None,
        "log_end_error": error.to_json() if error is not None else None,
        "unapplied_bytes": log.unapplied_bytes if log is not None else None,
        "lag_seconds": None if lag is None else round(lag, 3),
    }


def _show(found: TaskStatus, task: Path) -> None:
    several = len(found.sources) > 1
    for source in found.sources:
        _show_source(source, task)
    for lock in found.locks:
        show_lock(lock, task)
    for target, columns in groupby(found.partial_columns, key=lambda one: one.target):
        print(f"{target}: not all of its shards have the same columns")
        _list("column", list(map(_shards_with_column, columns)))
    for source in found.sources:
        for one in source.halted:
            if not one.waits_for_shards:
                show_halted_tables(one, task, several=several)
    if found.published is not None:
        _show_published(found.published, found.change_tables)
    if (catalog := found.server_catalog) is not None:
        lag = f"; {plural('table', catalog.behind)} behind, by {catalog.lag_seconds:,.0f} s" if catalog.behind else ""
        print(f"published in {catalog.place}: {plural('table', catalog.tables)}{lag}")
        _list("problem", [f"{name}: {problem}" for name, problem in sorted(catalog.problems.items())])
    _show_end(found, task)
    retained = (
        f"; the relay keeps {in_units(found.held_bytes)} of log that only waiting tables need"
        if found.held_bytes
        else ""
    )
    state = f"{_running(found)}{_not_answering(found)}"
    if (cutover := found.cutover) is not None:
        print(f"{found.task}: {cutover}")
        print(f"  do         {indented(cutover.todo)}")
        state = "" if cutover.forbids_runs else state
    print(f"{found.task}: {state}{_in_short(found)}{retained}")


def _running(found: TaskStatus) -> str:
    """Returns a text that says whether the task runs and, if not, since when; empty if this machine cannot tell."""
    if found.runs is None:
        return ""
    if found.runs:
        process = f" (process {found.process})" if found.process else ""
        silent = ", but the source's log is not received here" if found.is_silent else ""
        paused = ", but is paused after an error, see above" if found.is_paused else ""
        return f"it is running{process}{silent}{paused}; "
    since = ""
    if found.ended is not None:
        since = "" if found.ended.is_failure else f"; the last run here ended at {moment(found.ended.at)}"
    elif found.was_killed and not found.has_died:
        since = f"; {_DIED}"
    if found.ended is None and found.heard_at:
        since += f"; its replicator was last active here at {moment(found.heard_at)}"
    return f"it is not running, as far as this machine can tell{since}; "


def _not_answering(found: TaskStatus) -> str:
    count = len(found.unreachable)
    if not count:
        return ""
    if len(found.sources) == 1:
        return "the source does not answer; "
    return f"{count} of {len(found.sources)} sources {'does' if count == 1 else 'do'} not answer; "


def _show_end(found: TaskStatus, task: Path) -> None:
    if (end := found.ended) is not None and end.is_failure:
        shown = [one.log.end.error for one in found.sources if one.log is not None]
        if any(one is not None and (one.code, one.what) == (end.error["code"], end.error["what"]) for one in shown):
            print(f"{found.task}: the last run here ended at {moment(end.at)}: [{end.error['code']}], as above")
            return
        print(f"{found.task}: the last run here ended at {moment(end.at)}: {end.text}")
        if todo := end.error.get("todo"):
            print(f"  do         {indented(with_task(todo, str(task)))}")
    if found.has_died:
        print(f"{found.task}: {_DIED}")
        todo = "Start the task again: pidts run TASK (with a service: `pidts start`, not `pidts run`)"
        print(f"  do         {indented(with_task(todo, str(task)))}")


def _shards_with_column(one: PartialColumn) -> str:
    count = len(one.having) + len(one.lacking)
    few = len(one.having) < len(one.lacking)
    names = f"only {listed(one.having)}" if few else f"all but {listed(one.lacking)}"
    return f"{one.column}: {len(one.having):,} of {plural('shard', count)} have it, {names}"


def _show_published(published: Mapping[TableName, Publication], changes: Mapping[TableName, ChangeTable]) -> None:
    """Prints the oldest of the published states, and the tables with a problem."""
    there = [one for one in published.values() if one.folder]
    if there:
        oldest = min(there, key=lambda one: one.read_at)
        print(f"published: {plural('table', len(there))}, as of {moment(oldest.read_at)} or later")
        print(f"             up to {oldest.lsn}")
    else:
        print("published: nothing yet")
    _list("problem", [f"{name}: {one.problem}" for name, one in sorted(published.items()) if one.problem])
    _list("changes", [f"{name}: {one.problem or f'up to {one.lsn}'}" for name, one in sorted(changes.items())])


def _in_short(found: TaskStatus) -> str:
    if found.needs_operator:
        return "action needed, see above"
    return "shards wait for each other; nothing is halted" if found.locks else "nothing is halted"


def _show_source(source: SourceStatus, task: Path) -> None:
    if source.applied_lsn is None:
        print(f"{source.source}: has not begun")
        return
    gtid = f", GTID {source.gtid}" if source.gtid else ""
    print(f"{source.source}: applied up to {_place(source, source.applied_lsn)}{gtid}")
    if source.standbys:
        print(f"  read from  {source.server}; may take over: {', '.join(source.standbys)}")
    _show_log(source.log, waits=bool(source.held.tables))
    if source.moved_at:
        print(f"  moved      {moment(source.moved_at)}")
    if source.silent_since:
        print(f"  silent     none of its log was received here since {moment(source.silent_since)}")
    if source.lack is not None and source.lack.error.code not in {REPLICATOR_SILENT, NOT_RUNNING}:
        known = source.log is not None and _is_same(source.log.end.error, source.lack.error)
        why = f"[{source.lack.error.code}], as above" if known else source.lack
        print(f"  receives   nothing since {moment(source.lack.since)}: {why}")
    _show_pause(source, task)
    if source.tables:
        print(f"  copied     {source.tables - len(source.copying):,} of {plural('table', source.tables)}")
    shown = sorted(source.copying, key=lambda table: table.copied == 0)  # tables without copied rows are shown last
    _list("copying", [f"{table}: {_rows(table)}" for table in shown])
    _list(
        "waiting",
        [f"{name}: applied only up to {_place(source, lsn)}" for name, lsn in sorted(source.held.tables.items())],
    )
    if source.held.tables:
        print(f"             {retained_log(source.held)}")
    if source.held.since:
        print(f"             the oldest change that waits is from {moment(source.held.since)}")
    _list(
        "copy due",
        [f"{one.table}: a ddl command has not given its rows the source's values" for one in source.due_copies],
    )
    if source.due_copies:
        zone = source.due_copies[0].into_zone
        copy = _resync(source, task, [one.table for one in source.due_copies])
        print(f"             {f'stop the task, then run: {copy}' if zone is None else f'run: {fill_zone(zone)}'}")
    hidden = "the account does not see it on the source, and its changes are left out"
    _list("unseen", [f"{name}: {hidden}" for name in source.unseen])
    if source.unseen:
        copy = _resync(source, task, source.unseen)
        print(
            "             if the table still exists on the source, give the account SELECT (pidts grants prints it), "
            f"then run: {copy}"
        )
    _list("locked", [f"{one.table}: {_differing(one.rows)} from the source" for one in source.locked_rows])
    if source.locked_rows:
        print(f"             see them: pidts locks list {shlex.quote(str(task))}")


def _resync(source: SourceStatus, task: Path, tables: Sequence[TableName]) -> str:
    again = shlex.quote(",".join(f"{source.source}:{name}" for name in tables))
    return f"pidts run {shlex.quote(str(task))} --resync {again}"


def _is_same(one: PidtsError | None, other: PidtsError) -> bool:
    return one is not None and (one.code, one.what) == (other.code, other.what)


def _show_pause(source: SourceStatus, task: Path) -> None:
    """Prints why the run is paused with a source, and when it tries again."""
    if (pause := source.pause) is None:
        return
    print(f"  paused     since {moment(pause.since)}: {indented(with_task(str(pause.error), str(task)))}")
    tries = "begins" if pause.next_attempt > time.time() else "has begun"
    print(f"             the next attempt {tries} at {time_text(pause.next_attempt)}")


def _show_log(log: SourceLog | None, *, waits: bool) -> None:
    """Prints the end of the source's log, and how much of it the target lacks. `waits`: whether tables wait."""
    if log is None:
        return
    lag = "lag unknown" if log.lag_seconds is None else f"lag {log.lag_seconds:,.0f} s"
    if log.end.position is None:
        print(f"  log ends   unknown; {lag}: {indented(str(log.end.error))}")
        return
    lacking = "not comparable with the applied place"
    if log.unapplied_bytes is not None:
        nothing = "; only waiting tables may need it" if waits else ", and it has nothing for this task"
        lacking = f"{in_units(log.unapplied_bytes)} of it is not applied"
        lacking += nothing if log.lag_seconds == 0 and log.unapplied_bytes else ""
    print(f"  log ends   {log.end.position}; {lacking}; {lag}")


def _differing(rows: int) -> str:
    return f"{plural('row', rows)} {'differs' if rows == 1 else 'differ'}"


def _list(label: str, lines: Sequence[str]) -> None:
    """Prints only the first lines, since there may be thousands. The JSON contains all of them."""
    for line in lines[:_SHOWN]:
        print(f"  {label:<10} {in_one_line(line)}")
    if len(lines) > _SHOWN:
        print(f"             and {len(lines) - _SHOWN:,} more")


def _rows(table: TableProgress) -> str:
    if table.phase is not Phase.ROWS:
        return PHASES[table.phase]
    if not table.copied:
        return "no part is finished yet" + (f"; about {table.estimate:,} rows" if table.estimate else "")
    total = max(table.estimate, table.copied)
    return f"{table.copied:,} of about {total:,} rows" if table.estimate else f"{table.copied:,} rows"


def _place(source: SourceStatus, lsn: Lsn) -> str:
    """Returns the Lsn as text. Adds its log file and byte, if there was no failover between it and the checkpoint."""
    position, applied = source.position, source.applied_lsn
    if lsn == applied:
        return f"{position or '-'}, Lsn {lsn}"
    if position is None or applied is None or applied.change_no != lsn.change_no:
        return f"Lsn {lsn}"
    return f"{lsn.position(position.base)}, Lsn {lsn}"
