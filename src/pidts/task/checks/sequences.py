"""Notes of `check` and `plan` on MariaDB's SEQUENCE objects in the schemas of a task."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from pidts.source import Session, connect
from pidts.source.finding import Finding
from pidts.source.structures import sequences
from pidts.task.config.task_file import TaskConfig

_SHOWN = 5


def sequence_findings(config: TaskConfig, session: Session) -> list[Finding]:
    """Names the sequences that the block-allow-list would take if they were tables."""
    note = sequence_note(config, session)
    return [Finding("sequences", ok=True, message=note)] if note else []


def sequence_notes(parts: Sequence[TaskConfig]) -> list[str]:
    """Returns the notes of `plan` on sequences, source by source."""
    found: dict[str, None] = {}
    for config in parts:
        with closing(connect(config.source.server)) as session:
            found[sequence_note(config, session)] = None
    return [note for note in found if note]


def sequence_note(config: TaskConfig, session: Session) -> str:
    """Returns the finding's text; empty where there is no such sequence."""
    names = sorted(map(str, filter(config.allow, sequences(session))))
    if not names:
        return ""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return (
        f"not carried, as SEQUENCE objects: {', '.join(names[:_SHOWN])}{more}; where the target is to go on counting, "
        "create them there, and set them (SETVAL) before anything writes there"
    )
