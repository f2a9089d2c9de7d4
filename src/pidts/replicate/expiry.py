"""Whether the source will purge its log before we have read it: a pure decision over what the server says of its log.

A server purges a file when its last event is older than a limit, when all files together are larger than one, or when
somebody says so; the last file stays. The open stream of a replica keeps its file from none of that: as long as the
connection lives it may read on, and after the next reconnect the position is lost.
"""

from __future__ import annotations

from dataclasses import dataclass

from pidts.model import Position

_SHARE = 4
"""It is time to warn when a quarter of the limit, or less, is left."""
_FILES_BEHIND = 2
"""So many files behind at the oldest one, the next purge by hand is the end."""


@dataclass(frozen=True, slots=True)
class SourceLogs:
    """What a source keeps."""

    files: tuple[tuple[str, int], ...]
    """Names and sizes, oldest first; never empty."""
    expire_seconds: int
    """Age at which files are purged; 0 where they are not."""
    size_limit: int
    """Bytes of all files at which the oldest are purged; 0 where there is none."""
    now: int
    """The source's clock, in seconds since 1970 UTC."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """How the relay stands to the source's log."""

    behind_bytes: int
    """What the source has logged and the relay has not."""
    warning: str
    """Empty where all is well."""


def outlook(logs: SourceLogs, reading: Position, event_time: int) -> Outlook:
    """`reading` is how far the relay is in the source's log, `event_time` when that was executed (0: not known)."""
    names = [name for name, _ in logs.files]
    newest, oldest = logs.files[-1], logs.files[0]
    ahead = [(name, size) for name, size in logs.files if Position(name, 4).log_index > reading.log_index]
    behind = sum(size for _, size in ahead)
    if reading.file in names:
        behind += max(0, dict(logs.files)[reading.file] - reading.offset)
    if not ahead or reading.file == newest[0]:
        return Outlook(behind, "")
    if reading.file not in names and reading.log_index < Position(oldest[0], 4).log_index:
        return Outlook(
            behind,
            f"the source has purged {reading.file}, which is still being read; its oldest file is {oldest[0]}. A lost "
            "connection cannot be resumed: let the replicator run until it has caught up",
        )
    return Outlook(behind, _about_to_expire(logs, reading, event_time) or _oldest_of_all(logs, reading))


def _about_to_expire(logs: SourceLogs, reading: Position, event_time: int) -> str:
    if not (logs.expire_seconds and event_time):
        return ""
    left = event_time + logs.expire_seconds - logs.now
    if left > logs.expire_seconds / _SHARE:
        return ""
    when = f"in {_duration(left)}" if left > 0 else "at any moment"
    return (
        f"the source may purge {reading.file} {when}, before it is read (files expire after "
        f"{_duration(logs.expire_seconds)}). Keep logs longer there (binlog_expire_logs_seconds, expire_logs_days)"
    )


def _oldest_of_all(logs: SourceLogs, reading: Position) -> str:
    """The oldest file is the next to go; whether soon, only its size limit or a person decides."""
    if reading.file != logs.files[0][0]:
        return ""
    total = sum(size for _, size in logs.files)
    if logs.size_limit and total >= logs.size_limit * (_SHARE - 1) / _SHARE:
        return (
            f"the source may purge {reading.file} before it is read: it is the oldest of its files, and they have "
            f"{total:,} of at most {logs.size_limit:,} bytes. Raise max_binlog_total_size there"
        )
    if not (logs.expire_seconds or logs.size_limit) and len(logs.files) > _FILES_BEHIND:
        return (
            f"{reading.file} is the oldest file that the source keeps, and {len(logs.files) - 1} newer ones wait: "
            "do not purge binary logs there before it is read"
        )
    return ""


def _duration(seconds: float) -> str:
    for size, name in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {name}"
    return f"{seconds:.0f} seconds"
