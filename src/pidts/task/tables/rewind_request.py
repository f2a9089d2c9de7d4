"""Reads and checks the Lsn or time of `--rewind-to`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime

from pidts.excerpt.range import parse_point
from pidts.model import Checkpoint, ConfigError, Lsn, PrecheckFailed, Where
from pidts.source import Session
from pidts.source.position import binary_logs
from pidts.task.config.task_file import TaskConfig

RewindPoint = Lsn | datetime
_FORMS = "an Lsn, a time such as 2024-05-01T08:00:00Z, or how long ago: -1h30m. A time without a zone is UTC"


def rewinds_of(source_ids: Collection[str], text: str) -> dict[str, RewindPoint | None]:
    """Returns, for each source, the Lsn or time from which its log is sent again; None: nothing is sent again.

    A time applies to all sources. `SOURCE-ID:` before an Lsn or a time names one source.
    """
    if not text:
        return dict.fromkeys(source_ids)
    named, colon, rest = text.partition(":")
    is_named = bool(colon) and named in source_ids
    try:
        point = parse_point(rest if is_named else text)
    except ValueError as error:
        if colon and not is_named and _is_point(rest):
            todo = f"Name one of {', '.join(source_ids)}"
            raise ConfigError("unknown-name", f"--rewind-to: the task has no source {named!r}", todo=todo) from None
        raise ConfigError("bad-value", f"--rewind-to: {error}", todo=f"Write {_FORMS}") from None
    if not isinstance(point, Lsn | datetime):
        raise ConfigError("bad-value", f"--rewind-to: {text} is neither an Lsn nor a time", todo=f"Write {_FORMS}")
    if isinstance(point, datetime):
        point = point.replace(microsecond=0)  # times in the log are whole seconds
    if isinstance(point, datetime) and point > datetime.now(UTC):
        raise ConfigError("rewind-place", f"--rewind-to: {shown(point)} is in the future", todo=f"Write {_FORMS}")
    if isinstance(point, Lsn) and not is_named and len(source_ids) > 1:
        todo = f"Name the source: --rewind-to {min(source_ids)}:{point}. Or give a time: it applies to all sources"
        raise ConfigError(
            "rewind-place", "an Lsn is a place in the log of one source, and the task has several", todo=todo
        )
    return {source: point if source == named or not is_named else None for source in source_ids}


def _is_point(text: str) -> bool:
    try:
        return isinstance(parse_point(text), Lsn | datetime)
    except ValueError:
        return False


def demand_sent(config: TaskConfig, source: Session, stored: Sequence[Checkpoint], point: RewindPoint) -> None:
    """Raises if `point` is not before the checkpoint, or if the source lacks the log after `point`."""
    where = Where(source=config.source.source_id, file=str(config.path))
    if not stored:
        todo = "Run the task without --rewind-to"
        raise ConfigError("rewind-place", "the task has not begun: it has sent nothing yet", where=where, todo=todo)
    reached = max(row.lsn for row in stored)
    if isinstance(point, datetime):
        return  # `begin_of` checks whether the source has the log.
    if point.change_no != reached.change_no:
        what = f"{point} is in the log of another server than the checkpoint: the source was replaced between the two"
        raise ConfigError("rewind-place", what, where=where, todo="Write a time instead of the Lsn")
    if point >= reached:
        what = f"{point} is not before the task's checkpoint, {reached}: later changes were not sent yet"
        raise ConfigError("rewind-place", what, where=where, todo="Run the task without --rewind-to")
    if point.log_index not in {int(name.rpartition(".")[2]) for name, _ in binary_logs(source)}:
        raise purged(config, f"the source has no log file {point.log_index:06} any more")


def shown(point: RewindPoint) -> str:
    """Returns the Lsn or time as messages show it."""
    return point.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if isinstance(point, datetime) else str(point)


def purged(config: TaskConfig, why: str) -> PrecheckFailed:
    """Returns the error for a range that cannot be sent again, because the source lacks a part of its log."""
    return PrecheckFailed(
        "rewind-log-purged",
        f"the range cannot be sent again: {why}. Nothing was changed",
        where=config.source.server.where,
        todo=f"Begin later, or copy the tables again: {config.run_command(' --resync')}",
    )
