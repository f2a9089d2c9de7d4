"""Finds the conditions that alerts report while a task runs, in snapshots of the task's progress."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from pidts.model.errors import plural, sentence
from pidts.task.operate.ddl_commands import needs_operator
from pidts.task.operate.progress import Progress, SourceProgress, Stage

AlertKind = Literal[
    "halt", "lag", "log-at-risk", "not-receiving", "relay-disk", "rows-locked", "run-ended", "verify-differences"
]
_KNOWN: frozenset[Stage] = frozenset({"copy", "sync", "halted", "synced"})
"""The stages in which a run knows all conditions of a source. In other stages, it may not know the halts yet."""


@dataclass(frozen=True, slots=True)
class AlertKey:
    """The key of a condition, which stays the same as long as the condition lasts."""

    kind: AlertKind
    source: str = ""
    subject: str = ""
    """The table or file; empty if the condition concerns the whole source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A condition that is reported to an operator."""

    key: AlertKey
    what: str
    todo: str = ""
    code: str = ""
    since: float = 0.0
    """The time at which the condition began, in seconds since 1970; 0 if it is not known."""
    reported_separately: bool = False
    """Whether the beginning of the condition is reported by a separate alert."""

    def to_json(self) -> dict[str, Any]:
        """Returns plain values for JSON, which `of` reads."""
        key = self.key
        return {
            "kind": key.kind,
            "source": key.source,
            "subject": key.subject,
            "what": self.what,
            "todo": self.todo,
            "code": self.code,
            "since": self.since or None,
        }

    @classmethod
    def of(cls, data: dict[str, Any]) -> Condition:
        """Reads the values of `to_json`."""
        key = AlertKey(data["kind"], data["source"], data["subject"])
        return cls(key=key, what=data["what"], todo=data["todo"], code=data["code"], since=data["since"] or 0.0)


def conditions_of(progress: Progress, lag_limit: float | None) -> Iterator[Condition]:
    """Yields the conditions that a snapshot shows; a lag above `lag_limit` seconds is one of them."""
    for one in progress.sources:
        for halt in one.halted:
            if needs_operator(halt):
                subject = ", ".join(map(str, halt.tables)) or "*"
                key = AlertKey("halt", one.source, f"{subject} at {halt.lsn}")
                yield Condition(
                    key=key, what=sentence(str(halt)), todo="pidts ddl list TASK", code=halt.code, since=halt.since
                )
        if one.lack is not None:
            error = one.lack.error
            kind: AlertKind = "relay-disk" if one.lack.needs_operator else "not-receiving"
            yield Condition(
                key=AlertKey(kind, one.source),
                what=sentence(str(error)),
                todo=error.todo,
                code=error.code,
                since=one.lack.since,
            )
        if lag_limit is not None and one.lag_seconds is not None and one.lag_seconds > lag_limit:
            yield _lag_condition(one, lag_limit)
        if one.log_warning:
            yield Condition(
                key=AlertKey("log-at-risk", one.source),
                what=one.log_warning,
                todo="Keep the source's log longer, or let the replicator catch up: docs/operate/log-purged.md",
            )
        if one.disk_warning and not (one.lack is not None and one.lack.needs_operator):
            yield Condition(
                key=AlertKey("relay-disk", one.source), what=one.disk_warning, todo="See docs/operate/relay-disk.md"
            )
    for table, count in progress.locked.items():
        yield Condition(
            key=AlertKey("rows-locked", "", table),
            what=f"{plural('row', count, 'differs', 'differ')} from the source, and {'is' if count == 1 else 'are'} "
            "set aside for a decision",
            todo="pidts locks list TASK",
            reported_separately=True,
        )


def is_known(key: AlertKey, progress: Progress) -> bool:
    """Whether a snapshot would show this condition if it still lasted. If so, a missing condition has ended."""
    if key.kind == "verify-differences":
        return False
    sources = [one for one in progress.sources if key.source in ("", one.source)]
    if not sources or any(one.stage not in _KNOWN for one in sources):
        return False
    return key.kind != "lag" or all(one.lag_seconds is not None for one in sources)


def _lag_condition(one: SourceProgress, limit: float) -> Condition:
    slow = one.stage_report.slow if one.stage_report is not None else None
    why = f"; the slow stage is {slow.name}, because {slow.why}" if slow is not None else ""
    lag = one.lag_seconds or 0.0
    return Condition(
        key=AlertKey("lag", one.source),
        what=f"the target is {lag:,.0f} seconds behind the source, more than {limit:,.0f}{why}",
        todo="See docs/operate/lag.md",
        since=time.time() - lag,
    )
