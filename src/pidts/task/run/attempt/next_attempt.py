"""Decides which extra work the next attempt does before it continues, and which errors this work can resolve.

The next attempt may let tables join, take a new position in the log, or copy tables again. When it has recorded this
work on the target, the request is forgotten.
"""

from __future__ import annotations

import re
from dataclasses import replace

import structlog

from pidts.apply import TargetSession
from pidts.model import CommandKind, DdlCommand, Halt, Halted, Lsn
from pidts.task.config.task_file import TaskConfig
from pidts.task.operate.log_loss import loses_log, loss_from
from pidts.task.run.locked_rows import has_locked_rows
from pidts.task.run.start import StartState
from pidts.task.run.table_set import StartRequest
from pidts.task.tables.copy_start import Patterns
from pidts.task.tables.rewind_request import RewindPoint

_log = structlog.get_logger(__name__)

_PATTERN = re.compile(r"[*?\[\]!~,:]")
"""Characters of a name that have a special meaning in patterns."""
_UNKNOWN = frozenset({"structure-unknown", "ddl-does-not-fit"})
"""Codes of errors that may be resolved when a table joins the task."""


class NextAttempt:
    """The request to the next attempt of one part, and the errors that earlier attempts have tried to resolve."""

    def __init__(self, resync: Patterns, rewind: RewindPoint | None = None) -> None:
        self.request = StartRequest(resync, rewind=rewind)
        self._starts_over = resync == ()
        """Whether the task may begin at a new position if the log is lost."""
        self._asked: Halted | None = None
        """The error that the next attempt tries to resolve by adding tables to the task."""
        self._answered: set[tuple[str, str, str]] = set()
        """The errors that have let tables join: the code, table and position of each."""
        self._copied_for: set[Lsn] = set()
        """Schema changes for which this run has copied tables again."""
        self._replaces: Halt | None = None
        """A schema change whose tables the next attempt copies again. The attempt first records the copy, and then a
        ddl command that replaces the statement of this schema change.
        """

    def is_final(self, error: Halted, config: TaskConfig) -> bool:
        """Whether letting a table join cannot resolve the error."""
        may_join = error.code in _UNKNOWN and error.where.table and config.mode != "incremental"
        return not may_join or _place(error) in self._answered

    def has_answered(self, error: Halted) -> bool:
        """Whether an earlier attempt has already let tables join because of this error."""
        return error.code in _UNKNOWN and _place(error) in self._answered

    def let_join(self, error: Halted) -> None:
        """Requests that the table of this error joins the task."""
        self._answered.add(_place(error))
        self._asked = error
        if error.code == "structure-unknown":
            self.request = replace(self.request, unknown=self.request.unknown | {error.where.table})
        self.request = replace(self.request, renames=True)
        _log.info("the log names a table that the task does not know", code=error.code, table=error.where.table)

    def takes_new_position(self, error: Halted) -> bool:
        """Requests a new position in the log, if the log is lost and the user has asked to copy all tables again.

        Returns whether a new position was requested, which happens at most once in a run.
        """
        if not (self._starts_over and loses_log(error)):
            return False
        self._starts_over = False
        self.request = replace(self.request, resync=(), lost=loss_from(error))
        _log.warning("the log is lost, a new position is taken", code=error.code, what=error.what)
        return True

    def may_copy_again(self, halt: Halt, config: TaskConfig) -> bool:
        """Whether a new copy of the halted tables may get the values that the change sets; only once for each halt."""
        return (
            config.mode != "incremental"
            and not config.is_between_zones
            and halt.lsn not in self._copied_for
            and bool(halt.tables)
            and not any(config.rules.routes.may_merge(name) or _PATTERN.search(str(name)) for name in halt.tables)
            # A copy would not wait until an operator has resolved the locks of rows. The operator could then resolve a
            # lock in the middle of the copy.
            and not has_locked_rows(config, halt.tables)
        )

    def copy_again(self, halt: Halt) -> None:
        """Requests that the tables of a schema change are copied again.

        A ddl command then replaces the schema change by statements that create its columns. The copy is recorded before
        the ddl command. So after a crash between the two records, the next run finds the schema change again. The copy
        cannot end before the schema change is run: all copied rows are read after its place in the log.
        """
        self._copied_for.add(halt.lsn)
        self._replaces = halt
        self.request = replace(self.request, resync=tuple(map(str, halt.tables)))
        _log.warning(
            "a schema change sets values that only the source knows: its tables are copied again", halt=str(halt)
        )

    def note_start(self, begun: StartState) -> None:
        """Forgets the request, since the start has recorded its work on the target.

        If the request was to resolve an error by letting tables join, and no table has joined, raises that error.
        """
        asked, self._asked, self.request = self._asked, None, StartRequest()
        if asked is not None and not begun.joined and asked.code != "ddl-does-not-fit":
            raise asked

    def replace_statement(self, target: TargetSession, config: TaskConfig) -> None:
        """Records the ddl command that replaces the statement of a schema change whose tables are copied again."""
        halt = self._replaces
        if halt is None:
            return
        command = DdlCommand(lsn=halt.lsn, kind=CommandKind.REPLACE, statements=halt.instead)
        target.begin()
        target.meta.ddl_commands.give(config.name, config.source.source_id, command)
        target.commit()
        self._replaces = None


def _place(error: Halted) -> tuple[str, str, str]:
    return error.code, error.where.table, error.where.position
