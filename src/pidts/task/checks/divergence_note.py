"""Makes the note of `plan` about rows of the target that differ from the source's rows before a change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pidts.model import OnDivergence
from pidts.model.errors import listed
from pidts.task.checks.preview import TablePreview
from pidts.task.config.task_file import TaskConfig

_ACTION = {
    OnDivergence.WARN: "a log line reports the row, and the source's values are written",
    OnDivergence.LOCK: "the row is set aside with its later changes until you decide (pidts locks list TASK); all "
    "other rows go on",
    OnDivergence.HALT: "the row's table halts",
}


def divergence_note(parts: Sequence[TaskConfig], found: Mapping[str, Sequence[TablePreview]]) -> str:
    """Returns the note; empty for a datacenter, which has no rows to compare. `found` has each source's tables."""
    if parts[0].target.is_datacenter:
        return ""
    policy = parts[0].on_divergence
    if policy is OnDivergence.OVERWRITE:
        return (
            "on-divergence: overwrite: rows are not compared, and a row that another program has changed on the target "
            "gets the source's values with its next change"
        )
    left = [
        str(table.source)
        for config in parts
        for table in found[config.source.source_id]
        if not table.key or table.merged or config.rules.drops(table.source)
    ]
    but = f"; not compared, since they are merged, filtered or have no key: {listed(left)}" if left else ""
    if policy is OnDivergence.LOCK and parts[0].version_column:
        but += f"; in tables with {parts[0].version_column}, this column decides instead"
    return (
        f"on-divergence: {policy}: each row that changes is read from the target first, so fewer rows a second are "
        "applied (docs/operate/rows-that-differ.md). If the target's row differs from the source's row before the "
        f"change, {_ACTION[policy]}{but}"
    )
