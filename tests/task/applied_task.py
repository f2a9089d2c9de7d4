"""A task that has applied the whole log of its source."""

from __future__ import annotations

from contextlib import closing

from tests.target.conformance.samples import create

from pidts.apply import TargetSession
from pidts.model import Checkpoint, Lsn, SourceTablesKey
from pidts.source import connect, log_end, read_structures
from pidts.task.config.task_file import TaskConfig


def begin(part: TaskConfig, target: TargetSession) -> None:
    """Creates the tables and the records of a task that has applied the whole log."""
    target.meta.prepare()
    with closing(connect(part.source.server)) as session:
        read, end = read_structures(session, part.allow), log_end(session)
    for table in read.values():
        create(target, table.renamed(part.rules.target_name(table.name)))
    source = part.source.source_id
    target.begin()
    target.meta.structures.save(part.name, SourceTablesKey(source), Lsn(0, 0, 0), read)
    target.commit()
    place = Checkpoint(task=part.name, source=source, worker=0, lsn=Lsn.at(end, 0), position=str(end))
    target.meta.checkpoints.claim(part.name, source, 1, place)
