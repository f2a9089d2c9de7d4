"""Looks in the target's own log for changes that programs have made after the switch of a cutover.

After an undo, the task would continue where it was. It would overwrite these changes, and the source would never get
them. So an undo is refused if the log shows such changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from pidts.apply import TargetSession
from pidts.model import Cutover, PidtsError, Position, PrecheckFailed, TableName, Transient
from pidts.model.errors import listed, plural, utc_time
from pidts.rules import AllowList
from pidts.source import connect, source_dialect
from pidts.task.config.task_file import TaskConfig
from pidts.task.cutover.drain import tables_of
from pidts.task.cutover.log_after_stop import changes_after, shortened
from pidts.task.cutover.reverse import irreversible
from pidts.task.cutover.target_log_end import target_as_source
from pidts.task.draft.task_file import pattern

_MOST = 1000
"""At most this number of transactions is counted. The log after the switch may be long."""


def demand_unwritten(parts: Sequence[TaskConfig], target: TargetSession, record: Cutover) -> bool:
    """Raises if programs have changed the task's tables on the target after the switch of this cutover.

    Also raises if the target's log cannot be read. Returns whether the log was read: if the cutover has recorded no
    place of the log, nothing is known. The transactions of PiDTS itself, which also change its own tables, do not
    count. If an undo has begun already, schema changes do not count either, since that undo may have made them.
    """
    if not record.position:
        return False
    config = parts[0]
    tables = {part.rules.target_name(name): name for part in parts for name in tables_of(part, target)}
    undo = f"pidts cutover {config.shell_path} --undo --yes --discard-writes"
    names, number, first, statements = set[TableName](), 0, 0, list[str]()
    try:
        server = target_as_source(config)
        with closing(connect(server)) as session:
            dialect = source_dialect(session)
        allow = AllowList(do_tables=tuple((pattern(name.schema), pattern(name.name)) for name in tables))
        for found in changes_after(server, Position.parse(record.position), allow, dialect):
            if any(name.schema.lower() == config.target.meta_schema.lower() for name in found.tables):
                continue
            if record.is_undone and found.ddl is not None:
                continue
            names.update(filter(allow, found.tables))
            first = first or found.timestamp
            number += 1
            statements += [found.ddl] if found.ddl is not None else []
            if number == _MOST:
                break
    except Transient:
        raise
    except PidtsError as error:
        what = (
            "it is not known whether programs have written to the target since the switch: its log after "
            f"{record.position} cannot be read: {error.what}"
        )
        todo = error.todo
        if error.code == "missing-privilege":
            todo = f"Run pidts grants {config.shell_path} --cutover, and grant the target's account what it prints"
        todo = (
            f"{todo}. Then repeat the command. Or, if no program has written there, or if its changes may be lost, "
            f"run: {undo}"
        )
        raise PrecheckFailed("target-written", what, todo=todo) from error
    if number:
        more = " or more" if number == _MOST else ""
        what = (
            f"programs have changed {listed(sorted(names)) or 'tables of the task'} on the target since the switch "
            f"({plural('transaction', number)}{more}, the first at {utc_time(first)}). The source does not have these "
            "changes, unless a task of the way back has carried them there"
        )
        if number > len(statements):
            what += ". After an undo, the task would overwrite the changed rows"
        if statements:
            what += (
                f". {plural('transaction', len(statements), 'has', 'have')} a statement in place of rows, such as a "
                f"schema change, and an undo does not take it back. The first one: {shortened(statements[0])}"
            )
        reverse = f"pidts cutover {config.shell_path} --reverse"
        if irreversible(parts, list(tables.values())):
            keep = "To keep them, stay with the target"
        elif record.is_undone:
            keep = f"To carry them to the source, let no run of the task begin, run {undo}, and then {reverse}"
        else:
            keep = f"To carry them to the source, do not undo the cutover: {reverse}"
        raise PrecheckFailed("target-written", what, todo=f"{keep}. If they may be lost, run: {undo}")
    return True
