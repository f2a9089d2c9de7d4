"""Runs the prechecks of a task: those of each source, and those of all sources together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import replace

import structlog

from pidts.model import PidtsError, TableName
from pidts.source.finding import Finding, demand, lost_is_down
from pidts.task.checks.shards import shard_findings
from pidts.task.checks.source import NO_TABLE, check_one_source, passed_if_ignored
from pidts.task.checks.unused_rules import unused_rule_findings
from pidts.task.config.task_file import TaskConfig
from pidts.task.operate.log_loss import lost_log
from pidts.task.tables.copy_start import Patterns

_log = structlog.get_logger(__name__)

_OF_TASK = frozenset({"owners", "relay_directory", "relay_server", "rules", "target_connection", "target_privilege"})
"""Checks of the task, its target or this machine. If all sources have the same finding, it names no source."""


@lost_is_down()
def check_all_sources(parts: Sequence[TaskConfig], *, step: Callable[[str], None] = lambda _: None) -> list[Finding]:
    """Returns the findings of every check. `step` receives a text about what is being checked.

    In a task with several sources, a finding names its source. If all sources have the same finding, it is returned
    once: its text says "all sources", or names no source if the finding is about the task or its target. Raises
    `ServerDown` if a connection is lost.
    """
    seen: dict[str, Collection[TableName]] = {}
    found = _requirements(parts, {}, seen, step)
    return [*found, *unused_rule_findings(parts, seen, step)]


def _requirements(
    parts: Sequence[TaskConfig],
    resync: Mapping[str, Patterns],
    seen: dict[str, Collection[TableName]],
    step: Callable[[str], None] = lambda _: None,
) -> list[Finding]:
    """Returns the findings on which a run depends. Puts the tables of each source into `seen`."""
    step("comparing merged tables")
    together = [passed_if_ignored(one, parts[0].ignored_checks) for one in shard_findings(parts)]
    of_each = _of_each(parts, resync, seen, step)
    if any(seen.values()):
        of_each = [_with_tables_elsewhere(one) for one in of_each]
    return [*of_each, *together]


def lost_log_findings(parts: Sequence[TaskConfig]) -> list[Finding]:
    """Returns a failed finding for each source whose log after the target's checkpoint is known to be gone.

    Only `pidts check` calls this: a run finds the loss by itself, unless it copies all tables again.
    """
    found = []
    for part in parts:
        try:
            error = lost_log(part, is_one_of_several=len(parts) > 1)
        except PidtsError:
            continue  # Another check reports why a server cannot be queried.
        if error is not None:
            named = f"{part.source.source_id}: " if len(parts) > 1 else ""
            message = f"{named}[{error.code}] {error.what}"
            found.append(Finding("log_kept", ok=False, message=message, fix=error.todo, code=error.code))
    return [passed_if_ignored(finding, parts[0].ignored_checks) for finding in found]


def _with_tables_elsewhere(finding: Finding) -> Finding:
    """Returns a finding as passed if it fails only because this source has no tables: another source has tables."""
    if finding.item != "table_list" or finding.ok or not finding.message.endswith(NO_TABLE):
        return finding
    message = f"{finding.message}; a table that is created later joins the task"
    return replace(finding, ok=True, message=message, fix="")


def with_tables_from(finding: Finding, zone: str) -> Finding:
    """Returns a finding as passed if it fails only because its zone has no tables yet: another task copies them."""
    if finding.item != "table_list" or finding.ok or not finding.message.endswith(NO_TABLE):
        return finding
    message = f"{finding.message} yet; the tables are copied from zone {zone} before this direction starts"
    return replace(finding, ok=True, message=message, fix="")


def _of_each(
    parts: Sequence[TaskConfig],
    wanted: Mapping[str, Patterns],
    seen: dict[str, Collection[TableName]],
    step: Callable[[str], None],
) -> list[Finding]:
    found = {
        part.source.source_id: check_one_source(
            part, wanted.get(part.source.source_id), [other for other in parts if other is not part], seen, step
        )
        for part in parts
    }
    if len(parts) == 1:
        return next(iter(found.values()))
    same = [one for one in next(iter(found.values())) if all(one in findings for findings in found.values())]
    common = [one if one.item in _OF_TASK else replace(one, message=f"all sources: {one.message}") for one in same]
    own = [
        replace(one, message=f"{source}: {one.message}")
        for source, findings in found.items()
        for one in findings
        if one not in same
    ]
    return [*common, *own]


@lost_is_down()
def require_all_sources_fit(parts: Sequence[TaskConfig], resync: Mapping[str, Patterns]) -> None:
    """Raises if a finding prevents the run; raises `ServerDown` if only an unreachable server prevents it.

    If the task has begun with all its sources, an unreachable source prevents nothing: the task waits for it, and the
    other sources continue. A new source can join only while all sources answer, because their structures are compared.
    """
    findings = _requirements(parts, resync, {})
    down = [finding for finding in findings if finding.item == "source_connection" and not finding.ok]
    waits = bool(down) and all(finding.passes for finding in down) and _have_begun(parts)
    demand([finding for finding in findings if not (waits and finding in down)])
    for finding in down:
        if len(parts) > 1:
            _log.warning("a source cannot be reached, the other sources go on without it", cause=finding.message)
        else:
            _log.warning("the source cannot be reached, and is waited for", cause=finding.message)


def _have_begun(parts: Sequence[TaskConfig]) -> bool:
    with closing(parts[0].target.server.connect()) as target:
        return all(target.meta.checkpoints.read(part.name, part.source.source_id) for part in parts)
