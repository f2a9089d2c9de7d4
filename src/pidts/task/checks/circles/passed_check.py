"""The note of the last claim whose start has passed the check for circles: the task may continue without its source.

While the source does not answer, this check is impossible. A task that has begun then continues with the log in the
relay, but only if it has passed the check, and no cutover has claimed the task since then. The note `CHECKED` has the
epoch of the last claim in this case. A cutover's claim does not write the note. So it counts even if an earlier version
made it, or if the cutover's record was deleted by hand. Crash points of the note:

1. A later start writes its epoch into the note in the transaction of its claim, if the note had the epoch of the last
   claim. If this start ends before its check, the next start without the source continues as it could have continued
   before. The claim of a first start, and of a start after a cutover, leaves the note as it is.
2. After the check, and before its outcome is written: as in 1. No cutover has claimed the task since the last check
   that has passed, so no task can have carried changes back with a check of its own that has passed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pidts.apply import TargetSession
from pidts.model import Checkpoint, SourceTablesKey
from pidts.task.checks.task_records import CHECKED
from pidts.task.config.task_file import TaskConfig


def note_checked(config: TaskConfig, target: TargetSession, epoch: int, *, passed: bool = True) -> None:
    """Notes, in the caller's transaction, whether the start with this claim has passed the check."""
    text = str(epoch) if passed else f"{epoch} ignored"  # The text is the same if the start was refused.
    target.meta.notes.write(config.name, SourceTablesKey(config.source.source_id), CHECKED, text)


def is_checked(config: TaskConfig, target: TargetSession, stored: Iterable[Checkpoint]) -> bool:
    """Whether the start with the last claim has passed the check, so that the task may continue without its source."""
    if config.target.type != "mysql":
        return True
    noted = target.meta.notes.read(config.name, SourceTablesKey(config.source.source_id), CHECKED)
    return noted == str(max(row.epoch for row in stored))


def noted_claim(
    config: TaskConfig, target: TargetSession, stored: Iterable[Checkpoint], on_claim: Callable[[int], None]
) -> Callable[[int], None]:
    """Returns a function for the transaction of a claim: if the last claim has passed the check, the note follows."""
    has_passed = config.target.type == "mysql" and is_checked(config, target, stored)

    def claims(epoch: int) -> None:
        if has_passed:
            note_checked(config, target, epoch)
        on_claim(epoch)

    return claims
