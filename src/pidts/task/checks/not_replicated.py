"""Reports what the task leaves out: tables with names of schema change tools, and MariaDB's SEQUENCE objects."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

from pidts.batch.online_ddl import online_of
from pidts.model import TableName
from pidts.model.errors import listed
from pidts.schema.online.names import Role
from pidts.source import Session, connect, read_structures
from pidts.source.finding import Finding
from pidts.source.structures import sequences
from pidts.task.checks.not_carried import program_note
from pidts.task.config.task_file import TaskConfig


def online_findings(config: TaskConfig, session: Session) -> list[Finding]:
    """Returns a finding about the tables that the task leaves out because an online schema change tool may own them.

    Only the table's name shows this. So an application's own table `_report_new` is also left out, and only this
    finding says so.
    """
    online = online_of(config.allow)
    if not online.is_on:
        return []
    takes = replace(config.allow, shadow=(), trash=())

    def is_passed_by(name: TableName) -> bool:
        return online.role(name) is not Role.REAL and any(map(takes, (name, *(online.reals(name) or ()))))

    names = sorted(map(str, read_structures(session, is_passed_by)))
    if not names:
        return []
    what = (
        f"not replicated, because their names are those of gh-ost and pt-online-schema-change: "
        f"{listed(names)} (if they are tables of your own: online-ddl: false, or your own rules)"
    )
    return [Finding("online_ddl", ok=True, message=what)]


def sequence_findings(config: TaskConfig, session: Session) -> list[Finding]:
    """Returns a finding about the sequences whose names the block-allow-list selects."""
    note = sequence_note(config, session)
    return [Finding("sequences", ok=True, message=note)] if note else []


def sequence_notes(parts: Sequence[TaskConfig]) -> list[str]:
    """Returns the notes of `plan` on sequences, views, routines and events, source by source."""
    found: dict[str, None] = {}
    for config in parts:
        with closing(connect(config.source.server)) as session:
            found[sequence_note(config, session)] = None
            if config.target.allows_cutover:
                found[program_note(session, read_structures(session, config.allow))] = None
    return [note for note in found if note]


def sequence_note(config: TaskConfig, session: Session) -> str:
    """Returns a text about the sequences that the block-allow-list selects; empty if it selects none."""
    names = sorted(map(str, filter(config.allow, sequences(session))))
    if not names:
        return ""
    return (
        f"not replicated, because they are SEQUENCE objects: {listed(names)}; if the target needs them, "
        "create them there, and set them (SETVAL) before an application writes there"
    )
