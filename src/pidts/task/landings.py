"""By which rules a task's rows have landed, kept on the target: a change of them while it is stopped is found out.

The counterexample: with another route, new changes of a table would go to another table of the target, and those of
rows that were copied before would find nothing there. With another column mapping, a row would be there twice, under
the old key and the new one. It also tells a task what others have brought to the target's tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from pidts.apply import TargetSession
from pidts.apply.prepare import is_guarded
from pidts.apply.residents import RULES, residents, tells_apart
from pidts.apply.shard_keys import keyed_landings
from pidts.model import ConfigError, Table, TableName, Where
from pidts.plan import Way
from pidts.rules import Landing, Rules, mapping_of
from pidts.rules.record import from_text, to_text
from pidts.task.config import TaskConfig
from pidts.task.fit import Fit


def moved(before: Rules, after: Rules, tables: Iterable[Table]) -> str:
    """Why rows of these tables, which are on the target, are not where and what new rules say; empty where they are."""
    for table in tables:
        old, new = before.routes.landing(table.name), after.routes.landing(table.name)
        if (old.name, old.extracted) != (new.name, new.extracted):
            was, becomes = _landing(old), _landing(new)
            return f"{table.name} has rows on the target by another route: {was}, and would have to land in {becomes}"
        if mapping_of(before.mappings, table.name) != mapping_of(after.mappings, table.name):
            return f"{table.name} has rows on the target with values of another column mapping"
    return ""


def lock_open(waiting: Iterable[TableName]) -> ConfigError:
    """Which tables become one is not changed while some of them wait for others of them."""
    names = ", ".join(sorted(map(str, waiting)))
    return ConfigError(
        "shard-lock-open",
        f"a schema change of {names} waits for other shards, and routes and column mappings stay until it is made",
        todo="Take the change back until then. See: pidts ddl list",
    )


def demand_unmoved(config: TaskConfig, target: TargetSession, beside: Iterable[TaskConfig] = ()) -> None:
    """Raise where rows would land elsewhere than those that are there; `beside` are the task's other sources."""
    task, source_id = config.name, config.source.source_id
    text = target.noted(task, source_id, RULES)
    before = from_text(text) if text else config.rules
    if (before.routes, before.mappings) != (config.rules.routes, config.rules.mappings):
        sources = [source_id, *(part.source.source_id for part in beside)]
        halts = [halt for source in sources for halt in target.halts.halts(task, source)]
        waiting = {name for halt in halts if halt.awaits for name in halt.tables}
        if waiting:
            raise lock_open(waiting)
    known = target.load_structures(task, source_id)
    kept = [table for name, table in known.items() if config.allow(name)]
    refused = moved(before, config.rules, kept)
    if refused:
        raise ConfigError(
            "rules-moved",
            refused,
            where=Where(source=source_id, file=str(config.path)),
            todo="Take the change back, or give the task another name: a new task copies its tables again",
        )


def remember(config: TaskConfig, target: TargetSession) -> None:
    """From now on rows land by these rules."""
    target.begin()
    target.note(config.name, config.source.source_id, RULES, to_text(config.rules))
    target.commit()


def beside_strangers(config: TaskConfig, target: TargetSession, fits: Sequence[Fit]) -> list[Fit]:
    """The same, with care for rows that others have brought to where these land: tasks, sources, shards that are gone.

    To a table that is put right they would be rows that the source has not got.
    """
    if not any(fit.way is Way.REPAIR or fit.has_rows for fit in fits):
        return list(fits)
    task, source = config.name, config.source.source_id
    there = residents(target)
    found = []
    for fit in fits:
        others = [one for one in there.get(fit.landed.name, ()) if (one.task, one.source) != (task, source)]
        strangers = sorted(f"{one.table} of task {one.task}" for one in others if one.task != task and one.table)
        careful = replace(fit, way=Way.ADD) if others and fit.way is Way.REPAIR else fit
        found.append(_with(careful, strangers))
    return found


def own_rows(
    config: TaskConfig, target: TargetSession, fits: Sequence[Fit], tables: Mapping[TableName, Table]
) -> list[Fit]:
    """The same, where a table that stands beside others is told by the target's key to look at its own rows alone.

    Under a version column it is not: who removes a row would have to know of the version that it had.
    """
    rules = replace(config.rules, keyed=keyed_landings(target, config.rules, tables.values()))
    found = []
    for fit in fits:
        table = tables[fit.name]
        is_told = (
            fit.way is Way.ADD
            and not (rules.keeps_rows(fit.name) or rules.maps_key(table))
            and not is_guarded(fit.landed, config.version_column)
            and tells_apart(target, rules, config.name, config.source.source_id, fit.name)
        )
        found.append(replace(fit, way=Way.OWN) if is_told else fit)
    return found


def notes_of_rows(fits: Sequence[Fit]) -> list[str]:
    """What becomes of rows that are on the target, and not on the source, when these tables are copied once more."""
    notes = [
        f"of {fit.landed.name}, rows that {fit.name} has not are removed where the extracted columns are its own"
        for fit in fits
        if fit.way is Way.OWN
    ]
    added = sorted({str(fit.landed.name) for fit in fits if fit.way is Way.ADD})
    if added:
        why = "since others have rows there, filters may have kept them, or a mapping has changed their keys"
        notes.append(
            f"rows that the source has not are not removed from {', '.join(added)}, {why}; pidts verify tells which"
        )
    return notes


def _with(fit: Fit, strangers: Sequence[str]) -> Fit:
    if strangers and fit.has_rows and fit.problem:
        fix = f"{fit.fix}. Or name the sources of both tasks in one"
        return replace(fit, problem=f"{fit.problem}, and {', '.join(strangers)} lands there", fix=fix)
    return fit


def _landing(landing: Landing) -> str:
    extracted = ", ".join(f"{column} = {value!r}" for column, value in landing.extracted)
    return f"{landing.name} with {extracted}" if extracted else str(landing.name)
