"""Runs the prechecks of one source: of the source, the target and this machine. Nothing is written."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path

from pidts.apply import TargetSession
from pidts.model import (
    Checkpoint,
    Halted,
    KeyNote,
    Lsn,
    PidtsError,
    Position,
    SourceTablesKey,
    Table,
    TableName,
    Transient,
)
from pidts.model.errors import listed, plural
from pidts.relay.permissions import is_open_to_others
from pidts.replicate import log_file_named
from pidts.source import Session
from pidts.source.connection import connect, variables
from pidts.source.finding import Finding, is_ignored
from pidts.source.prechecks import check_source
from pidts.source.prepared_xa import prepared_xids
from pidts.source.structures import TableSize, read_structures, table_sizes
from pidts.task.checks.added_source import waiting_reason
from pidts.task.checks.auto_increment import NUMBERING, auto_increment_findings
from pidts.task.checks.channel import channel_findings
from pidts.task.checks.circles.running_tasks import circle_findings
from pidts.task.checks.hive import hive_findings, image_findings
from pidts.task.checks.joining.both_have_rows import fits_between_zones, others_findings
from pidts.task.checks.not_carried import not_carried_findings
from pidts.task.checks.not_replicated import online_findings, sequence_findings
from pidts.task.checks.owners import owner_findings, record_findings
from pidts.task.checks.privileges import source_findings, target_findings
from pidts.task.checks.relay_server import relay_server_findings
from pidts.task.checks.rule_hints import rule_findings
from pidts.task.checks.standbys import standby_findings
from pidts.task.checks.switch_structures import structures_at_start
from pidts.task.checks.version_column import convergence_findings, version_column_findings
from pidts.task.checks.zone_start import may_find_rows
from pidts.task.config.current_server import address_of
from pidts.task.config.task_file import TaskConfig
from pidts.task.operate.backlog import load_held_tables
from pidts.task.operate.warehouse import catalog_finding, reached
from pidts.task.tables.copy_start import Patterns, is_selected
from pidts.task.tables.merged import (
    by_target,
    own_shards,
    shards_of_other_sources,
    target_name_of,
    with_extracted_keys,
)
from pidts.task.tables.rule_changes import (
    require_unmoved_rows,
    tables_without_checkpoint,
    tables_written_by,
    with_other_writers,
)
from pidts.task.tables.target_fit import TableFit, fit_of
from pidts.task.tables.target_triggers import trigger_hints

_WHOLE_ROWS = "SET GLOBAL binlog_row_image = 'FULL';   -- open sessions keep theirs"
_OF_TABLES = frozenset({"dump_privilege", "primary_key", "table_schema", "binlog_db"})
"""The checks of single tables."""


NO_TABLE = "no table of this server matches block-allow-list"
_LOOK = (
    "Check the patterns of do-dbs and do-tables; system schemas are never included. If the tables are created later, "
    "the task finds them in the log: ignore-checking-items: [table_list]"
)


def check_one_source(
    config: TaskConfig,
    resync: Patterns = None,
    other_parts: Sequence[TaskConfig] = (),
    seen: dict[str, Collection[TableName]] | None = None,
    step: Callable[[str], None] = lambda _: None,
) -> list[Finding]:
    """Returns the findings of every check. If a server cannot be reached, its other checks are left out.

    A finding of an ignored check is returned as passed. Tables that `resync` selects may have rows on the target; so
    may tables that share their target table with a table of another source. Puts the source's tables into `seen`.
    `step` receives a text about what is being checked.
    """
    findings = [_relay(config.relay, config.source.source_id), *relay_server_findings(config)]
    tables: dict[TableName, Table] = {}
    at_start: dict[TableName, Table] = {}
    with ExitStack() as cleanup:
        target: TargetSession | None = None
        refusing: TargetSession | None = None
        resumed = False
        place = f"the target {config.target.place}"
        step(f"waiting for {place}")
        try:
            target = cleanup.enter_context(closing(config.target.server.connect()))
            resumed = bool(target.meta.checkpoints.read(config.name, config.source.source_id))
            findings.append(Finding("target_connection", ok=True, message=reached(target)))
        except Halted as error:  # the account may log in, but may not read the task's records
            findings.append(_unreachable("target", error))
            refusing, target = target, None
        except PidtsError as error:
            findings.append(_unreachable("target", error))
            target = None
        findings += _source(config, target, tables, at_start, other_parts, step, resync, resumed=resumed)
        if config.source.standbys:
            step(f"checking the standbys of source {config.source.source_id}")
        findings += standby_findings(config)
        step(f"comparing {plural('table', len(tables))} with {place}")
        if seen is not None:
            seen[config.source.source_id] = tables.keys()
        if refusing is not None and tables:
            findings += target_findings(config, refusing, tables)
        if target is not None:
            if config.target.is_datacenter:
                findings += channel_findings(config, target, resumed=resumed)
                return [passed_if_ignored(finding, config.ignored_checks) for finding in findings]
            findings += catalog_finding(config, resumed=resumed)
            if tables:  # without tables, the needed privileges are not known
                findings += _fit(config, target, at_start or tables, resync, other_parts, resumed=resumed)
                findings += trigger_hints(target, filter(None, (target_name_of(config.rules, name) for name in tables)))
                findings += target_findings(config, target, tables)
                if config.target.type == "hive":
                    findings += hive_findings(config, tables.values(), resumed=resumed)
            findings += _held(config, target)
    return [passed_if_ignored(finding, config.ignored_checks) for finding in findings]


def _source(
    config: TaskConfig,
    target: TargetSession | None,
    tables: dict[TableName, Table],
    at_start: dict[TableName, Table],
    other_parts: Sequence[TaskConfig],
    step: Callable[[str], None],
    resync: Patterns,
    *,
    resumed: bool,
) -> list[Finding]:
    """Returns the findings about the source, and puts its tables into `tables`.

    If the task file gives a start at which a cutover has recorded the structures, puts these into `at_start`.
    """
    source = config.source.server
    place = f"source {config.source.source_id} ({address_of(source)})"
    step(f"waiting for {place}")
    try:
        with closing(connect(source)) as session:
            findings = [Finding("source_connection", ok=True, message="reachable")]
            step(f"reading the tables of {place}")
            tables.update(read_structures(session, config.allow))
            if not resumed:
                at_start.update(structures_at_start(config, session))
            sizes = table_sizes(session, tables)
            step(f"checking {place}")
            given = config.source.start if config.mode == "incremental" and not resumed else None
            start = given if isinstance(given, Position) else None
            # A table that was created while the task ran is not copied, and needs no key.
            copies = config.mode != "incremental" and not resumed
            receives = config.relay_from is None
            found = check_source(
                session, source, tables.values(), start, copies=copies, receives=receives, begun=resumed
            )
            privileges = source_findings(config, session, tables.values())
            findings.append(
                _table_list(sizes, len(tables), unseen=not all(one.ok for one in privileges), resumed=resumed)
            )
            # Without tables, a passed check of tables means nothing.
            findings += [one for one in found if tables or not (one.ok and one.item in _OF_TABLES)]
            findings += privileges
            findings += [] if resumed else _prepared_transactions(session)
            findings += online_findings(config, session)
            findings += sequence_findings(config, session)
            findings += not_carried_findings(
                [config, *other_parts], config, session, tables, None if resumed else target
            )
            findings += rule_findings(config.rules, tables.values())
            if target is not None:
                first = partial(_first_checkpoint, config, session, start) if start is not None else None
                findings += circle_findings(config, session, target, tables, resync, first)
                findings += [] if resumed else others_findings(config, session, target)
            if config.is_between_zones and target is not None:
                findings += _auto_increment(config, session, target, tables.values())
            image = variables(session, "binlog_row_image").get("binlog_row_image", "FULL")
            if config.is_between_zones and image != "FULL" and not (config.zones.converges or config.zones.owners):
                what = f"with binlog_row_image = {image} a row may stay unlocked although two zones change it"
                findings.append(Finding("binlog_row_image", ok=False, message=what, fix=_WHOLE_ROWS))
            if config.zones.owners:
                findings += owner_findings(config.zones.owners, tables.values(), image, resumed=resumed)
                if target is not None:
                    findings += record_findings(config.zones.owners, target.meta.range_owners.recorded())
            findings += image_findings(config, image)
            if config.version_column:
                if config.zones.converges:
                    findings += convergence_findings(config.version_column, tables.values(), image)
                else:
                    findings += version_column_findings(config, tables.values(), image, resumed=resumed)
            return findings
    except PidtsError as error:
        return [replace(_unreachable("source", error), passes=resumed and isinstance(error, Transient))]


def _first_checkpoint(config: TaskConfig, session: Session, start: Position) -> Checkpoint:
    """Returns the checkpoint of a first start at a place of the source's log."""
    source = config.source
    file = log_file_named(source.server, session, start.file)
    return Checkpoint(
        task=config.name, source=source.source_id, worker=0, lsn=Lsn.at(start), position=str(start), log_file=file
    )


def _prepared_transactions(session: Session) -> list[Finding]:
    """Returns a hint if XA transactions are prepared now: a task that begins now needs the log that has their rows."""
    found = prepared_xids(session)
    if not found:
        return []
    what = (
        f"{plural('XA transaction', len(found), 'is', 'are')} prepared and not committed (XA RECOVER): a task that "
        "begins now receives the log from the first of them on. If the source does not have this log any more, the "
        "task halts when one of them is committed (xa-not-received)"
    )
    fix = "If they are forgotten, commit them or roll them back before the first start: XA COMMIT or XA ROLLBACK"
    return [Finding("prepared_xa", ok=True, message=what, fix=fix)]


def _auto_increment(
    config: TaskConfig, source: Session, target: TargetSession, tables: Iterable[Table]
) -> list[Finding]:
    from pidts.target.mysql import MySqlSession

    assert isinstance(target, MySqlSession)  # noqa: S101 - a zone's server has this type
    here, there = variables(source, *NUMBERING), target.global_variables(NUMBERING)
    return auto_increment_findings((config.zone, config.zones.target), here, there, tables)


def _table_list(sizes: Mapping[TableName, TableSize], count: int, *, unseen: bool, resumed: bool) -> Finding:
    if count:
        rows = sum(size.rows for size in sizes.values())
        return Finding("table_list", ok=True, message=f"{plural('table', count)}, about {plural('row', rows)}")
    if unseen:
        what = "the account sees no table of this task"
        return Finding("table_list", ok=False, message=what, fix="See dump_privilege", is_consequence=True)
    if resumed:  # the rest of the log may still change tables that the source no longer has, or create tables
        return Finding(
            "table_list", ok=True, message=f"{NO_TABLE}; the task goes on with the log that it has not applied yet"
        )
    return Finding("table_list", ok=False, message=NO_TABLE, fix=_LOOK)


def _fit(
    config: TaskConfig,
    target: TargetSession,
    tables: Mapping[TableName, Table],
    resync: Patterns,
    other_parts: Sequence[TaskConfig],
    *,
    resumed: bool,
) -> list[Finding]:
    """Returns findings about the target's tables: at the first start about all tables, later about joining tables.

    Tables that the task already carries are not compared, since the source may be ahead of the target.
    """
    copies = config.mode != "incremental"
    rules, new = config.rules, list(tables.values())
    known: Mapping[TableName, Table] = {}
    findings: list[Finding] = []
    if resumed:
        try:
            require_unmoved_rows(config, target)
        except PidtsError as error:
            findings.append(Finding("target_tables", ok=False, message=error.what, fix=error.todo, code=error.code))
        known = target.meta.structures.load(config.name, SourceTablesKey(config.source.source_id))
        # A table whose target table the task already writes to may be a known table that was renamed. The log shows
        # this later.
        target_table = {target_name_of(config.rules, name) for name in known}
        new = [table for table in new if copies and target_name_of(config.rules, table.name) not in target_table]
    missing = 0
    keys: dict[TableName, str] = {}
    others = shards_of_other_sources(target, other_parts, rules, tables, asks=False)
    own = [table for name, table in tables.items() if name not in known]
    others += [*own_shards(rules, own, begun=False), *own_shards(rules, known.values(), begun=True)]
    rules, others = with_extracted_keys(target, rules, new, others)
    if resumed:
        # Rows of dropped shards stay in their target table. A table that joins it is checked when the log creates it.
        left = tables_written_by(target, config.name) - {one.target_name for one in others if one.begun}
        new = [table for table in new if target_name_of(config.rules, table.name) not in left]
    merged = by_target(others)
    recorded: Collection[TableName] = known if resumed or resync is None else tables_without_checkpoint(config, target)
    for table in new:
        there = merged.get(target_name_of(rules, table.name), [])
        begins = config.zones.both_have_rows or may_find_rows(config, target)
        may_have_rows = is_selected(resync, table.name) and (resumed or table.name in recorded)
        may_have_rows = may_have_rows or (begins and not resumed)
        try:
            fit = fit_of(target, table, rules, copies=copies, may_have_rows=may_have_rows, other_shards=there)
            (fit,) = with_other_writers(config, target, [fit])
            (fit,) = fits_between_zones(config, [fit]) if copies and not resumed else [fit]
        except PidtsError as error:
            fit = TableFit(table.name, table, problem=error.what, fix=error.todo)
        missing += fit.missing
        if notes := [note for note in fit.notes if isinstance(note, KeyNote)]:
            keys[fit.target_table.name] = f"{fit} ({'; '.join(notes)})"
        ahead = ""
        if fit.problem and fit.is_shared and not resumed:
            ahead = waiting_reason(config, target, other_parts, there)
        if ahead:
            findings.append(Finding("target_tables", ok=True, message=ahead))
        elif fit.problem and fit.has_rows and resumed and config.is_between_zones:
            # The target's zone may have created the table, and another task may have carried the statement to the
            # source. Then this task finds the statement in the source's log when it starts.
            message = f"{fit}: {fit.problem}; the task starts only if the log has the statement that created the table"
            findings.append(Finding("target_tables", ok=True, message=message))
        elif fit.problem:
            message = f"{fit}: {fit.problem}"
            findings.append(Finding("target_tables", ok=False, message=message, fix=fit.fix))
    findings = findings or [Finding("target_tables", ok=True, message=_fine(len(new), missing, resumed=resumed))]
    if keys:
        what = f"the target will not have these keys as the source has them: {listed(keys.values())}"
        what += f". See: pidts plan {config.shell_path}"
        findings.append(Finding("target_tables", ok=True, is_note=True, message=what))
    return findings


def _held(config: TaskConfig, target: TargetSession) -> list[Finding]:
    held = load_held_tables(target, config)
    if not held.tables:
        return []
    kept = f"the relay keeps {held.log_bytes:,} bytes of log for this"
    if not held.is_known:
        kept = "how much log the relay keeps for this can be seen only on the machine that has the relay"
    message = f"{listed(sorted(held.tables))}: still at an earlier place of the log than the other tables; {kept}"
    return [Finding("held_back", ok=True, message=f"{message}. See: pidts ddl list {config.shell_path}")]


def _fine(count: int, missing: int, *, resumed: bool) -> str:
    if resumed:
        joining = f"; {plural('table', count, 'joins', 'join')} it" if count else ""
        return f"the task continues from its checkpoint{joining}"
    return f"{plural('table', missing)} will be created, {count - missing} exist and fit"


def _relay(directory: Path, source_id: str) -> Finding:
    there, folder = directory, directory / source_id
    while not there.exists():
        there = there.parent
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        message = str(directory)
        if folder.is_dir() and is_open_to_others(folder):
            message += f"; other users of this machine can read the rows in it: chmod -R go= '{folder}'"
        return Finding("relay_directory", ok=True, message=message)
    why = "is not writable for this user" if there.is_dir() else "is not a directory"
    return Finding(
        "relay_directory",
        ok=False,
        message=f"{directory} cannot be used: {there} {why}",
        fix="Set pidts.relay to a directory that this user may write to",
    )


def _unreachable(side: str, error: PidtsError) -> Finding:
    place = f" ({error.where})" if str(error.where) else ""
    return Finding(
        f"{side}_connection",
        ok=False,
        message=f"[{error.code}] {error.what}{place}",
        fix=error.todo,
        is_down=isinstance(error, Transient),
        code=error.code,
    )


def passed_if_ignored(finding: Finding, ignored: tuple[str, ...]) -> Finding:
    """Returns the finding as passed if the task file ignores this check, otherwise unchanged."""
    if not (finding.can_be_ignored and is_ignored(finding.item, ignored)):
        return finding
    return replace(finding, ok=True, is_ignored=True, message=f"ignored: {finding.message}", fix="")
