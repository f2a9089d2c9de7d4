"""Detects changed routes and column mappings: the target records the rules by which a task's rows were written.

After a change of a route, later changes of a table would go to a target table that lacks the rows that were copied
before. After a change of a column mapping, the target could have a row twice: with the old key and with the new key.
The record also shows which other tasks and sources write to a target table.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from pidts.apply import TargetSession
from pidts.apply.apply_rules import is_guarded
from pidts.apply.merge.discriminating_keys import keyed_targets
from pidts.apply.merge.recorded_tables import RULES, identifies_own_rows, recorded_rules, tables_in_targets
from pidts.model import ConfigError, SourceTablesKey, Table, TableName, Where
from pidts.model.advice import START_ANEW
from pidts.plan import CopyMode
from pidts.rules import Destination, Rules, mapping_of
from pidts.rules.record import to_text
from pidts.task.config.task_file import TaskConfig
from pidts.task.tables.target_fit import CHANGE, OTHER_TABLES, TableFit


def rule_conflict(before: Rules, after: Rules, tables: Iterable[Table]) -> str:
    """Returns why rows of these tables on the target contradict the new rules; empty if no row does."""
    for table in tables:
        old, new = before.routes.destination(table.name), after.routes.destination(table.name)
        if (old.name, old.extracted) != (new.name, new.extracted):
            was, becomes = _destination(old), _destination(new)
            return f"{table.name} has rows on the target in {was}, and the new route leads to {becomes}"
        if mapping_of(before.mappings, table.name) != mapping_of(after.mappings, table.name):
            return f"{table.name} has rows on the target with values of an earlier column mapping"
    return ""


def lock_open_error(waiting: Iterable[TableName]) -> ConfigError:
    """Returns the error for a change of routes or mappings while shards wait for each other."""
    names = ", ".join(sorted(map(str, waiting)))
    return ConfigError(
        "shard-lock-open",
        f"a schema change of {names} waits for other shards; routes and column mappings cannot change before "
        "it is done",
        todo="Undo the edit of the task file until the schema change is done. For its state, run: pidts ddl list TASK",
    )


def require_unmoved_rows(config: TaskConfig, target: TargetSession, other_parts: Iterable[TaskConfig] = ()) -> None:
    """Raises if the new rules contradict rows that are already on the target, or if rules change while shards wait."""
    task, source_id = config.name, config.source.source_id
    text = target.meta.notes.read(task, SourceTablesKey(source_id), RULES)
    before = recorded_rules(text, task, source_id) or config.rules
    if (before.routes, before.mappings) != (config.rules.routes, config.rules.mappings):
        sources = [source_id, *(part.source.source_id for part in other_parts)]
        halts = [halt for source in sources for halt in target.meta.halts.read(task, source)]
        waiting = {name for halt in halts if halt.awaits for name in halt.tables}
        if waiting:
            raise lock_open_error(waiting)
    known = target.meta.structures.load(task, SourceTablesKey(source_id))
    kept = [table for name, table in known.items() if config.allow(name)]
    refused = rule_conflict(before, config.rules, kept)
    if refused:
        raise ConfigError(
            "rules-moved",
            refused,
            where=Where(source=source_id, file=str(config.path)),
            todo=f"Undo the edit of the task file. To keep the edit, give the task another name, and {START_ANEW}",
        )


def record_rules(config: TaskConfig, target: TargetSession) -> None:
    """Records on the target the rules by which rows are written from now on."""
    target.begin()
    target.meta.notes.write(config.name, SourceTablesKey(config.source.source_id), RULES, to_text(config.rules))
    target.commit()


def with_other_writers(config: TaskConfig, target: TargetSession, fits: Sequence[TableFit]) -> list[TableFit]:
    """Returns the fits, adjusted for rows of other tasks, other sources and dropped shards in the target tables.

    A repair would treat these rows as extra rows, and remove them. So the copy only adds rows to these target tables.
    """
    if not any(fit.mode is CopyMode.REPAIR or fit.has_rows or fit.problem for fit in fits):
        return list(fits)
    task, source = config.name, config.source.source_id
    there = tables_in_targets(target)
    begun = bool(target.meta.checkpoints.read(task, source))
    found = []
    for fit in fits:
        others = [one for one in there.get(fit.target_table.name, ()) if (one.task, one.source) != (task, source)]
        strangers = sorted(f"{one.table} of task {one.task}" for one in others if one.task != task and one.table)
        keeps = bool(others) and fit.mode is CopyMode.REPAIR
        careful = replace(fit, mode=CopyMode.ADD, stay=(OTHER_TABLES,)) if keeps else fit
        owners = [one for one in there.get(fit.target_table.name, ()) if one.task == task]
        is_recorded = any((one.source, one.table) == (source, fit.name) for one in owners)
        advised = _with_safe_advice(careful, config, own=bool(owners), begun=begun, is_recorded=is_recorded)
        found.append(_with(advised, strangers))
    return found


def tables_without_checkpoint(config: TaskConfig, target: TargetSession) -> frozenset[TableName]:
    """Returns the tables that the task has recorded for this source. The task has no checkpoint.

    Recorded tables without a checkpoint have one of two causes. Somebody has deleted the checkpoint, and the target
    still has the task's rows, which `--resync` may repair. Or the first start was killed before it wrote a row.
    """
    place = config.name, SourceTablesKey(config.source.source_id)
    return frozenset(name for *found, name in target.meta.structures.tables() if tuple(found) == place)


def tables_written_by(target: TargetSession, task: str) -> frozenset[TableName]:
    """Returns the target tables to which a task has written rows, as the target's records show."""
    return frozenset(name for name, ones in tables_in_targets(target).items() if any(one.task == task for one in ones))


def _with_safe_advice(fit: TableFit, config: TaskConfig, *, own: bool, begun: bool, is_recorded: bool) -> TableFit:
    """Returns the fit with advice that does not delete the task's own rows.

    The task's own rows include those of dropped shards, and of tables that have left the task.

    - `own`: the target table belongs to the task.
    - `begun`: the task has begun with this source.
    - `is_recorded`: the task has a record of the source table. If the task has not begun, somebody has deleted its
      checkpoint. Or the first start was killed before it wrote a row: then another program has written the rows.
    """
    if own and fit.fix == CHANGE:
        return replace(fit, fix="Change the table on the target, or exclude it in block-allow-list")
    if not (fit.has_rows and fit.problem):
        return fit
    if begun:
        name = shlex.quote(f"{config.source.source_id}:{fit.name}")
        fix = f"Compare its rows with the source's and repair them: {config.run_command(f' --resync {name}')}"
        return replace(fit, fix=fix)
    if is_recorded and not config.is_between_zones:
        fix = (
            "The task has recorded this table, and has no checkpoint. If the rows are this task's, compare them with "
            f"the source's and repair them: {config.run_command(' --resync')}. This removes rows that the source lacks"
        )
        return replace(fit, fix=fix)
    if own:
        fix = (
            f"The table has rows of this task; keep them. Exclude {fit.name} in block-allow-list, and run the task. "
            "Then include the table again, and run the task with --resync"
        )
        return replace(fit, fix=fix)
    return fit


def with_own_rows_only(
    config: TaskConfig, target: TargetSession, fits: Sequence[TableFit], tables: Mapping[TableName, Table]
) -> list[TableFit]:
    """Returns the fits. If the target's key shows which rows belong to a shard, the shard's copy removes extra rows.

    The copy does so only among the shard's own rows (`CopyMode.OWN`). In a table with a version column, it removes no
    rows, because removing a row needs the row's version.
    """
    rules = replace(config.rules, keyed=keyed_targets(target, config.rules, tables.values()))
    found = []
    for fit in fits:
        table = tables[fit.name]
        has_own_rows_only = (
            fit.mode is CopyMode.ADD
            and not (rules.keeps_rows(fit.name) or rules.maps_key(table))
            and not is_guarded(fit.target_table, config.version_column)
            and identifies_own_rows(target, rules, config.name, config.source.source_id, fit.name)
        )
        found.append(replace(fit, mode=CopyMode.OWN) if has_own_rows_only else fit)
    return found


class Caution(str):
    """A note that is logged as a warning: rows stay, although an operator may expect that they are removed."""

    __slots__ = ()


def row_notes(fits: Sequence[TableFit]) -> list[str]:
    """Returns notes about extra rows of the target when these tables are copied again."""
    notes = [
        f"rows of {fit.target_table.name} whose extracted columns name {fit.name} are removed unless "
        f"{fit.name} has them"
        for fit in fits
        if fit.mode is CopyMode.OWN
    ]
    found = [fit for fit in fits if fit.mode in (CopyMode.REPAIR, CopyMode.ADD)]
    # The rows of a table without a key are always replaced as a whole.
    adding = [fit for fit in found if fit.mode is CopyMode.ADD and fit.target_table.identity]
    repaired = sorted({str(fit.target_table.name) for fit in found if fit not in adding})
    if repaired:
        notes.append(
            f"the source's rows overwrite those of {', '.join(repaired)}, and rows that the source does not have "
            "are removed from the target"
        )
    reasons: dict[str, list[str]] = {}
    for fit in adding:
        reasons.setdefault(str(fit.target_table.name), []).extend(fit.stay or (OTHER_TABLES,))
    alike: dict[str, list[str]] = {}
    for name, why in sorted(reasons.items()):
        alike.setdefault(" and ".join(dict.fromkeys(why)), []).append(name)
    for reason, tables in alike.items():
        stay = f"extra rows of {', '.join(tables)} that the source does not have stay, because {reason}"
        note = f"{stay}; pidts verify TASK lists them"
        notes.append(Caution(note) if OTHER_TABLES in reason else note)
    return notes


def _with(fit: TableFit, strangers: Sequence[str]) -> TableFit:
    if strangers and fit.has_rows and fit.problem:
        fix = "Put the sources of both tasks into one task, or exclude the table in block-allow-list"
        return replace(fit, problem=f"{fit.problem}, and it also gets rows of {', '.join(strangers)}", fix=fix)
    return fit


def _destination(destination: Destination) -> str:
    extracted = ", ".join(f"{column} = {value!r}" for column, value in destination.extracted)
    return f"{destination.name} with {extracted}" if extracted else str(destination.name)
