"""Whether both servers and this machine are fit for a task; nothing is written by looking."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

from pidts.apply import TargetSession, can_be_version
from pidts.model import PidtsError, Position, Table, TableName, Transient
from pidts.source.connection import connect, variables
from pidts.source.finding import Finding, demand
from pidts.source.prechecks import check_source
from pidts.source.sizes import Size, table_sizes
from pidts.source.structures import read_structures
from pidts.task.compose import source_config, target_of
from pidts.task.config import TaskConfig
from pidts.task.copying import Patterns, is_meant
from pidts.task.fit import Fit, fit_of
from pidts.task.landings import demand_unmoved
from pidts.task.online import online_findings
from pidts.task.privileges import source_findings, target_findings
from pidts.task.rule_notes import rule_findings
from pidts.task.shard_start import comes
from pidts.task.shards import own_shards, shards_beside, with_keys
from pidts.task.waiting import held_on

_OF_TABLES = frozenset({"dump_privilege", "primary_key", "table_schema", "binlog_db"})
"""Checks that look at one table after the other."""


_NAMED = 5
"""So many of the tables that are held back are named."""


def check_task(
    config: TaskConfig,
    resync: Patterns = None,
    beside: Sequence[TaskConfig] = (),
    seen: dict[str, Collection[TableName]] | None = None,
) -> list[Finding]:
    """Every check, whatever the ones before it found; a server that cannot be reached ends its own part.

    Tables of `resync` may have rows on the target, and so may those where tables of a source `beside` this one land.
    A check that the task ignores is in the list, as passed, with what it found. `seen` gets the source's tables.
    """
    findings = [_relay(config.relay)]
    tables: dict[TableName, Table] = {}
    with ExitStack() as cleanup:
        target: TargetSession | None = None
        resumed = False
        try:
            target = cleanup.enter_context(closing(target_of(config).connect()))
            resumed = bool(target.checkpoints(config.name, config.source.source_id))
            findings.append(Finding("target_connection", ok=True, message="reachable"))
        except PidtsError as error:
            findings.append(_unreachable("target", error))
        findings += _source(config, tables, resumed=resumed)
        if seen is not None:
            seen[config.source.source_id] = tables.keys()
        if target is not None:
            if tables:  # else nothing is known of what the target is to have
                findings += _fit(config, target, tables, resync, beside, resumed=resumed)
                findings += target_findings(config, target, tables)
            findings += _held(config, target)
    return [passed_over(finding, config.ignored_checks) for finding in findings]


def require_fit(config: TaskConfig, resync: Patterns = None, beside: Sequence[TaskConfig] = ()) -> None:
    """Raise for what a run would stumble over."""
    demand(check_task(config, resync, beside))


def _source(config: TaskConfig, tables: dict[TableName, Table], *, resumed: bool) -> list[Finding]:
    """What speaks against the source; fills in its tables."""
    source = source_config(config)
    try:
        with closing(connect(source)) as session:
            findings = [Finding("source_connection", ok=True, message="reachable")]
            tables.update(read_structures(session, config.allow))
            sizes = table_sizes(session, tables)
            given = config.source.start if config.mode == "incremental" and not resumed else None
            start = given if isinstance(given, Position) else None
            # A table that came while the task ran is not copied, and may be without a key.
            copies = config.mode != "incremental" and not resumed
            found = check_source(session, source, tables.values(), start, copies=copies)
            privileges = source_findings(config, session, tables.values())
            findings.append(_table_list(sizes, len(tables), unseen=not all(one.ok for one in privileges)))
            # Of no tables all is well.
            findings += [one for one in found if tables or not (one.ok and one.item in _OF_TABLES)]
            findings += privileges
            findings += online_findings(config, session)
            findings += rule_findings(config.rules, tables.values())
            if config.version_column:
                image = variables(session, "binlog_row_image").get("binlog_row_image", "FULL")
                findings += _version_column(config.version_column, tables.values(), image, resumed=resumed)
            return findings
    except PidtsError as error:
        return [replace(_unreachable("source", error), passes=resumed and isinstance(error, Transient))]


def _version_column(name: str, tables: Iterable[Table], row_image: str, *, resumed: bool) -> list[Finding]:
    """Refused where it guards nothing, or where the log does not tell it; tables without it pass with a note.

    A table that came while the task ran does not keep it from starting again.
    """
    guarded, others, spelled = 0, [], ""
    for table in tables:
        if name not in table.arrow.names:
            alike = [column for column in table.arrow.names if column.lower() == name.lower()]
            spelled = alike[0] if alike else spelled
            has = f" but {alike[0]}" if alike else ""
            others.append(f"{table.name} has no column {name}{has}: any event is applied")
        elif not table.identity:
            others.append(f"{table.name} has no key: any event is applied")
        elif not can_be_version(table.column(name)):
            what = f"{table.name}.{name} is a {table.column(name).type.kind}, which not every target compares alike"
            if not resumed:
                fix = "Name a column of a date and time, a whole number or a decimal number"
                return [Finding("version_column", ok=False, message=what, fix=fix)]
            others.append(f"{what}: any event is applied")
        else:
            guarded += 1
    if not guarded:
        fix = "Look at the name that pidts.version-column gives, or take it out"
        if spelled:
            fix = f"Write pidts.version-column as the tables do: {spelled}"
        return [Finding("version_column", ok=False, message=f"no table of this task can be guarded by {name}", fix=fix)]
    if row_image == "MINIMAL":
        fix = "SET GLOBAL binlog_row_image = 'FULL';   -- or NOBLOB; open sessions keep theirs"
        what = f"binlog_row_image = MINIMAL does not tell the {name} that a row had before"
        return [Finding("version_column", ok=False, message=what, fix=fix)]
    fine = Finding("version_column", ok=True, message=f"{guarded} tables are guarded by {name}")
    return [fine, *(Finding("version_column", ok=True, message=f"not guarded: {other}") for other in others)]


def _table_list(sizes: Mapping[TableName, Size], count: int, *, unseen: bool) -> Finding:
    if count:
        rows = sum(size.rows for size in sizes.values())
        return Finding("table_list", ok=True, message=f"{count} tables, about {rows:,} rows")
    if unseen:
        what = "no table of this task can be seen: SELECT is missing"
        return Finding("table_list", ok=False, message=what, fix="See dump_privilege")
    return Finding(
        "table_list",
        ok=False,
        message="block-allow-list lets no table of this server pass",
        fix="Look at the patterns of do-dbs and do-tables; system schemas are never taken",
    )


def _fit(
    config: TaskConfig,
    target: TargetSession,
    tables: Mapping[TableName, Table],
    resync: Patterns,
    beside: Sequence[TaskConfig],
    *,
    resumed: bool,
) -> list[Finding]:
    """All tables before the first start; later those that would join, since the source may be ahead of the others."""
    copies = config.mode != "incremental"
    rules, new = config.rules, list(tables.values())
    known: Mapping[TableName, Table] = {}
    findings: list[Finding] = []
    if resumed:
        try:
            demand_unmoved(config, target)
        except PidtsError as error:
            findings.append(Finding("target_tables", ok=False, message=error.what, fix=error.todo))
        known = target.load_structures(config.name, config.source.source_id)
        # One that lands where another did may have its name by the log: what it needs is told when that is read.
        landed = {_landed_name(config, name) for name in known}
        new = [table for table in new if copies and _landed_name(config, table.name) not in landed]
    missing = 0
    others = shards_beside(target, beside, rules, tables, asks=False)
    own = [table for name, table in tables.items() if name not in known]
    others += [*own_shards(rules, own, begun=False), *own_shards(rules, known.values(), begun=True)]
    rules, others = with_keys(target, rules, new, others)
    for table in new:
        may_have_rows = resumed and is_meant(resync, table.name)
        try:
            fit = fit_of(target, table, rules, copies=copies, may_have_rows=may_have_rows, beside=others)
        except PidtsError as error:
            fit = Fit(table.name, table, problem=error.what, fix=error.todo)
        missing += fit.missing
        ahead = ""
        if fit.problem and fit.is_shared and not resumed:
            ahead = comes(config, target, beside, [one for one in others if one.lands == fit.landed.name])
        if ahead:
            findings.append(Finding("target_tables", ok=True, message=ahead))
        elif fit.problem:
            message = f"{fit}: {fit.problem}"
            findings.append(Finding("target_tables", ok=False, message=message, fix=fit.fix))
    return findings or [Finding("target_tables", ok=True, message=_fine(len(new), missing, resumed=resumed))]


def _held(config: TaskConfig, target: TargetSession) -> list[Finding]:
    """What no restart makes shorter."""
    held = held_on(target, config)
    if not held.tables:
        return []
    names = ", ".join(map(str, sorted(held.tables)[:_NAMED]))
    if len(held.tables) > _NAMED:
        names = f"{names} and {len(held.tables) - _NAMED:,} more"
    kept = f"{held.log_bytes:,} bytes of log are kept in the relay for that"
    if not held.is_known:
        kept = "how much log is kept for that is known where the relay is"
    message = f"{names}: behind the other tables; {kept}"
    return [Finding("held_back", ok=True, message=f"{message}. See: pidts ddl list {config.path}")]


def _landed_name(config: TaskConfig, name: TableName) -> TableName | None:
    """None where the rules cannot say; that is told of the table."""
    try:
        return config.rules.landed_name(name)
    except PidtsError:
        return None


def _fine(count: int, missing: int, *, resumed: bool) -> str:
    if resumed:
        joining = f"; {count} tables join it" if count else ""
        return f"the task goes on from its checkpoint{joining}"
    return f"{missing} tables are created, {count - missing} are there and fit"


def _relay(directory: Path) -> Finding:
    there = directory
    while not there.exists():
        there = there.parent
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        return Finding("relay_directory", ok=True, message=str(directory))
    why = "may not be written to" if there.is_dir() else "is no directory"
    return Finding(
        "relay_directory",
        ok=False,
        message=f"{directory} cannot be used: {there} {why}",
        fix="Set pidts.relay to a directory that this user may write to",
    )


def _unreachable(side: str, error: PidtsError) -> Finding:
    place = f" ({error.where})" if str(error.where) else ""
    return Finding(f"{side}_connection", ok=False, message=f"[{error.code}] {error.what}{place}", fix=error.todo)


def passed_over(finding: Finding, ignored: tuple[str, ...]) -> Finding:
    """The same as passed, where the task wants it so."""
    if finding.ok or not {finding.item, "all"} & set(ignored) or finding.item.endswith("_connection"):
        return finding
    return replace(finding, ok=True, message=f"ignored: {finding.message}", fix="")
