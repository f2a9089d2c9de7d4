"""Lets a zone return if it has lost its log or was restored from a backup: the zone is filled again from a seed.

The zone's rows are made equal to the seed's rows while programs write to the seed and all other zones. As when a table
with rows is copied again, no reader sees an empty table.

Programs must not write to the zone itself meanwhile: the copy could overwrite a program's row by a row that was read
from the seed before. All zones would get the program's change, and only the zone itself would lose it. A server
cannot refuse programs and serve tasks at the same time. So the command reads the zone's own log after the copy. If this
log contains a change of a program, the zone has not returned, and the command has to be repeated.

The zone's rows are overwritten, so changes of the zone that no other zone has are lost. The command counts these
changes first. If there are any, or if they cannot be counted because the zone's log is gone, the command continues only
with `--discard-unsent`.

0. Check that no task from or to the zone runs. This check only spares the operator a later error: steps 2 and 3 stop a
   task that begins after the check.
1. Count the zone's changes from the checkpoints of the tasks out of the zone up to the end of the zone's log. Record
   this end in the zone. While the record exists, a copy into the zone removes the rows that the seed does not have
   (`removes_extra_rows`).
2. Remove the checkpoints of the tasks out of the zone, each on its target. A run of such a task commits nothing any
   more.
3. Remove the checkpoints of the tasks into the zone. Then empty the relays, on this machine, of all tasks into and out
   of the zone. An earlier, killed run of the command may have removed checkpoints and left these relays.
4. Record in the zone that the seed's task may find rows there.
5. The seed's task begins, and copies. The copied rows have the seed's mark, so they are not carried back.
6. Count the changes of programs after the recorded end.
7. If there are no such changes, let the tasks out of the zone begin where the count has ended. Remove the record of
   this end.

The state after a crash at each point:

    in 0 and 1       nothing has changed
    in 2 to 7        the checkpoints of some tasks are removed, or tasks have begun. The repeated command also counts
                     the changes after the recorded end. So it reports the programs' writes since then before it
                     overwrites them. Then the command begins anew
    in 5             the next run of the seed's task also continues the copy, and removes extra rows: the record of
                     step 1 exists
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pidts.model import PrecheckFailed, TableName, Where


@dataclass(frozen=True, slots=True)
class RecordedTask:
    """A task between zones, as the meta tables of its target name it."""

    zone: str
    """The zone that the task reads."""
    target_zone: str
    """The zone to which the task writes."""
    task: str
    source: str


@dataclass(frozen=True, slots=True)
class Steps:
    """The work of the command on servers."""

    running: Callable[[], Sequence[str]]
    """Returns the tasks into and out of the zone that run now, on any machine."""
    unsent: Callable[[], Counter[TableName] | None]
    """Returns, for each table, how many of the zone's changes the other zones lack; None if the zone's log is gone."""
    forget: Callable[[RecordedTask], None]
    """Removes a task's checkpoints on its target: its run commits nothing more, its next start begins anew."""
    forget_relays: Callable[[], None]
    """Empties the relays on this machine of tasks from and to the zone."""
    allow: Callable[[], None]
    """Records that the seed's task may find rows in the zone."""
    copy: Callable[[], None]
    """Runs the seed's task until the zone has all rows."""
    written: Callable[[], Counter[TableName]]
    """Returns, for each table, how many changes programs have made in the zone since the recorded end of its log."""
    note_place: Callable[[], None]
    """Records in the zone the end of its log, up to which `unsent` has counted."""
    begin_out: Callable[[], None]
    """Lets the tasks out of the zone begin where `written` has ended, and removes the record."""


def let_return(
    zone: str, tasks: Sequence[RecordedTask], steps: Steps, *, discard: bool, say: Callable[[str], None]
) -> None:
    """Lets the zone return. `discard` is the option `--discard-unsent`; `say` prints the progress."""
    if running := steps.running():
        raise PrecheckFailed(
            "zone-tasks-run",
            f"tasks from or to zone {zone} run: {', '.join(running)}. Their records would be removed",
            where=Where(),
            todo="Stop these tasks, and let the tasks between the other zones run. Then repeat the command",
        )
    unsent = steps.unsent()
    if unsent is None:
        if not discard:
            raise _refused(
                zone,
                "its log is gone, so it is not known which of its changes other zones do not have",
                "Changes that the other zones do not have are lost. To accept this, add --discard-unsent",
            )
        say(f"the changes of zone {zone} that other zones do not have are lost; its log is gone")
    elif unsent:
        if not discard:
            raise _refused(
                zone,
                f"other zones do not have these changes of the zone: {counted(unsent)}",
                "Run the tasks out of the zone until they are synced (pidts run FILE@ZONE-OTHER --until-synced). "
                "Or give these changes up: repeat this command with --discard-unsent",
            )
        say(f"discarded: {counted(unsent)} of zone {zone}, which other zones do not have")
    steps.note_place()
    for one in [*(one for one in tasks if one.zone == zone), *(one for one in tasks if one.target_zone == zone)]:
        steps.forget(one)
        say(f"forgotten: task {one.task} from zone {one.zone} to zone {one.target_zone}")
    steps.forget_relays()
    steps.allow()
    steps.copy()
    if written := steps.written():
        raise PrecheckFailed(
            "zone-written",
            f"programs have written to zone {zone} while it was filled: {counted(written)}",
            where=Where(),
            todo="Stop the programs that write there, then repeat the command",
        )
    steps.begin_out()
    say(f"zone {zone} has all rows")


def counted(changes: Mapping[TableName, int]) -> str:
    """Returns the number of changed rows of each table as text."""
    return ", ".join(
        f"{number} changed row{'s' if number > 1 else ''} of {name if name.name else 'a table'}"
        for name, number in sorted(changes.items())
    )


def _refused(zone: str, what: str, todo: str) -> PrecheckFailed:
    return PrecheckFailed("zone-unsent", f"zone {zone}: {what}", where=Where(), todo=todo)
