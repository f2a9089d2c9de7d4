"""Decides from the state of the source's log whether the source will purge log before the replicator has read it.

A server purges a log file in three cases: the file's last event is too old, all files together are too large, or an
operator purges the file. The server never purges its last file. A file can be purged although a replica is reading it.
The replica can continue to read until its connection ends, but after a reconnect its position no longer exists.
"""

from __future__ import annotations

from dataclasses import dataclass

from pidts.model import Position

_SHARE = 4
"""The replicator warns when at most one quarter of a limit (of age or of size) is left."""
_FILES_BEHIND = 2
"""The replicator warns if it still reads the oldest file and more than this number of files exist: an operator may
purge the oldest file.
"""


@dataclass(frozen=True, slots=True)
class SourceLogs:
    """The log files of a source and the limits for purging them."""

    files: tuple[tuple[str, int], ...]
    """Names and sizes, oldest first; never empty."""
    expire_seconds: int
    """The age at which files are purged; 0 if they are not purged by age."""
    size_limit: int
    """The total size at which the oldest files are purged; 0 if there is no limit."""
    now: int
    """The source's clock, in seconds since 1970 UTC."""


@dataclass(frozen=True, slots=True)
class ExpiryOutlook:
    """The amount of the source's log that the relay lacks, with a warning if the source may purge this log."""

    behind_bytes: int
    """The bytes that the source has logged and the relay has not received."""
    warning: str
    """Empty if there is none."""


def outlook(logs: SourceLogs, reading: Position, event_time: int) -> ExpiryOutlook:
    """Returns the amount of the source's log that the relay lacks, with a warning if the source may purge this log.

    `reading`: the relay's place in the source's log. `event_time`: the time at this place; 0 if it is not known.
    """
    names = [name for name, _ in logs.files]
    newest, oldest = logs.files[-1], logs.files[0]
    ahead = [(name, size) for name, size in logs.files if Position(name, 4).log_index > reading.log_index]
    missing = sum(size for _, size in ahead)
    if reading.file in names:
        missing += max(0, dict(logs.files)[reading.file] - reading.offset)
    if not ahead or reading.file == newest[0]:
        return ExpiryOutlook(missing, "")
    if reading.file not in names and reading.log_index < Position(oldest[0], 4).log_index:
        return ExpiryOutlook(
            missing,
            f"the source has purged {reading.file}, which the replicator is still reading; the source's oldest file "
            f"is {oldest[0]}. After a lost connection, the replicator could not continue: let it run until it has "
            "caught up",
        )
    return ExpiryOutlook(missing, _about_to_expire(logs, reading, event_time) or _oldest_of_all(logs, reading))


def _about_to_expire(logs: SourceLogs, reading: Position, event_time: int) -> str:
    if not (logs.expire_seconds and event_time):
        return ""
    left = event_time + logs.expire_seconds - logs.now
    if left > logs.expire_seconds / _SHARE:
        return ""
    when = f"in {_duration(left)}" if left > 0 else "at any moment"
    return (
        f"the source may purge {reading.file} {when}, before it is read (files expire after "
        f"{_duration(logs.expire_seconds)}). Keep logs longer on the source (binlog_expire_logs_seconds, "
        "expire_logs_days)"
    )


def _oldest_of_all(logs: SourceLogs, reading: Position) -> str:
    """Returns the warning that a purge may remove the file that the replicator reads; empty for newer files."""
    if reading.file != logs.files[0][0]:
        return ""
    total = sum(size for _, size in logs.files)
    if logs.size_limit and total >= logs.size_limit * (_SHARE - 1) / _SHARE:
        return (
            f"the source may purge {reading.file} before the replicator has read it: it is the oldest log file, and "
            f"all log files take {total:,} of at most {logs.size_limit:,} bytes. Raise max_binlog_total_size on the "
            "source"
        )
    if not (logs.expire_seconds or logs.size_limit) and len(logs.files) > _FILES_BEHIND:
        return (
            f"{reading.file} is the oldest log file of the source, and the replicator still has to read it and "
            f"{len(logs.files) - 1} newer files: until then, do not purge binary logs on the source"
        )
    return ""


def _duration(seconds: float) -> str:
    for size, name in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {name}"
    return f"{seconds:.0f} seconds"
