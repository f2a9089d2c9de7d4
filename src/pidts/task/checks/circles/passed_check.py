"""The note that a start has passed the check for circles, so that the task may continue without its source.

While the source does not answer, this check is impossible. A task that has begun then continues with the log in the
relay, but only if no start and no cutover has claimed the task since the last start that passed the check. The note
`CHECKED` has the epoch of that start's claim. A cutover's claim counts even if an earlier version made it, or if the
cutover's record was deleted by hand. Crash points of the note `CHECKED`:

1. After a claim of a start or of a cutover, or after a refused start: the note has another epoch than the checkpoints,
   so the next start needs the source.
2. After the check has passed, and before the note is written: the next start needs the source, and checks once more.
3. A start without the source writes its epoch into the note in the transaction of its claim.
"""

from __future__ import annotations

from collections.abc import Iterable

from pidts.apply import TargetSession
from pidts.model import Checkpoint, SourceTablesKey
from pidts.task.checks.task_records import CHECKED
from pidts.task.config.task_file import TaskConfig


def note_checked(config: TaskConfig, target: TargetSession, epoch: int, *, ignored: bool = False) -> None:
    """Notes, in the caller's transaction, that the start with this claim has passed the check, or has ignored it."""
    text = f"{epoch} ignored" if ignored else str(epoch)
    target.meta.notes.write(config.name, SourceTablesKey(config.source.source_id), CHECKED, text)


def is_checked(config: TaskConfig, target: TargetSession, stored: Iterable[Checkpoint]) -> bool:
    """Whether the start with the last claim has passed the check, so that the task may continue without its source."""
    if config.target.type != "mysql":
        return True
    noted = target.meta.notes.read(config.name, SourceTablesKey(config.source.source_id), CHECKED)
    return noted == str(max(row.epoch for row in stored))
