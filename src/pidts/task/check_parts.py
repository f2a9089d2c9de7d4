"""Whether a task is fit to run with all its sources: what is looked at of each, and of all together."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import replace

import structlog

from pidts.model import TableName
from pidts.source.finding import Finding, demand
from pidts.task.check import check_task, passed_over
from pidts.task.compose import target_of
from pidts.task.config import TaskConfig
from pidts.task.copying import Patterns
from pidts.task.idle_rules import idle_findings
from pidts.task.shard_checks import shard_findings

_log = structlog.get_logger(__name__)


def check_parts(parts: Sequence[TaskConfig], resync: Mapping[str, Patterns] | None = None) -> list[Finding]:
    """Every check of every source; what is the same of all is said once, all else with the source's name."""
    together = [passed_over(one, parts[0].ignored_checks) for one in shard_findings(parts)]
    seen: dict[str, Collection[TableName]] = {}
    of_each = _of_each(parts, resync or {}, seen)
    return [*of_each, *idle_findings(parts, seen), *together]


def _of_each(
    parts: Sequence[TaskConfig], wanted: Mapping[str, Patterns], seen: dict[str, Collection[TableName]]
) -> list[Finding]:
    found = {
        part.source.source_id: check_task(
            part, wanted.get(part.source.source_id), [other for other in parts if other is not part], seen
        )
        for part in parts
    }
    if len(parts) == 1:
        return next(iter(found.values()))
    common = [one for one in next(iter(found.values())) if all(one in findings for findings in found.values())]
    own = [
        replace(one, message=f"{source}: {one.message}")
        for source, findings in found.items()
        for one in findings
        if one not in common
    ]
    return [*common, *own]


def require_parts_fit(parts: Sequence[TaskConfig], resync: Mapping[str, Patterns]) -> None:
    """Raise for what a run would stumble over.

    Where several sources have all begun, one that cannot be reached now keeps the others from nothing; one that is new
    is let in only while all can be asked what they have.
    """
    findings = check_parts(parts, resync)
    down = [finding for finding in findings if finding.item == "source_connection" and not finding.ok]
    waits = len(parts) > 1 and bool(down) and all(finding.passes for finding in down) and _have_begun(parts)
    demand([finding for finding in findings if not (waits and finding in down)])
    for finding in down:
        _log.warning("a source cannot be reached, the others go on without it", cause=finding.message)


def _have_begun(parts: Sequence[TaskConfig]) -> bool:
    with closing(target_of(parts[0]).connect()) as target:
        return all(target.checkpoints(part.name, part.source.source_id) for part in parts)
