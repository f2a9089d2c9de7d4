"""Lets a zone return whose log was lost, or that was restored from a backup: it is filled from a seed once more.

The rows of the zone are put right from the seed's while the seed and all other zones are written to, as a copy of a
table that has rows does it: no reader sees an empty table. The zone itself must not be written to meanwhile. A row that
a program writes there could be overwritten by one that was read from the seed before the write had reached it; the
write would be on its way to all zones, and the zone alone would not have it. No server can be asked to refuse programs
and to serve tasks, so the zone's own log is looked at when the rows are there: with a write of a program in it, the
zone has not returned, and the command has to be repeated.

What the zone has written and no other zone has got is lost by this. So it is counted first, and the command refuses to
go on unless it is told to. Where the zone's log is gone, nobody can count it.

1. Count what the zone has written behind the checkpoints of the tasks out of it, up to the end of its log. Record this
   end in the zone: what stands before it is accounted for.
2. Forget the tasks out of the zone, each on its target. A run of one of them commits nothing any more.
3. Forget the tasks into the zone. Then forget their relays and those of the tasks out of it, on this machine: also
   where an earlier run of the command has removed a task's records and was killed before it came to the relay.
4. Record in the zone that the seed's task may find rows there.
5. The seed's task begins, and copies. Its rows are marked as the seed's, so nothing of them goes back.
6. Count what programs have written behind the recorded end.
7. If that is nothing, let the tasks out of the zone begin where the count has ended. Remove the record.

These cases cover a break at each point:

    in 1             nothing has changed
    in 2 to 7        some tasks are forgotten, or have begun. Said again, the command counts behind the recorded end,
                     too, so that a write of a program since then is told before it is overwritten. Then it begins anew
    in 5             the copy goes on with the next run of the seed's task, too
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pidts.model import PrecheckFailed, TableName, Where


@dataclass(frozen=True, slots=True)
class RecordedTask:
    """A task between zones, as the meta tables of its target record it."""

    zone: str
    """The zone that it reads."""
    target_zone: str
    """The zone that it writes to."""
    task: str
    source: str


@dataclass(frozen=True, slots=True)
class Steps:
    """What the command does with servers."""

    unsent: Callable[[], Counter[TableName] | None]
    """Returns what the zone has written and others have not got; None: its log is gone."""
    forget: Callable[[RecordedTask], None]
    """Removes the checkpoints of a task on its target: its run commits nothing any more, a start begins anew."""
    forget_relays: Callable[[], None]
    """Removes what relays on this machine have for tasks from and to the zone."""
    allow: Callable[[], None]
    """Records that the seed's task may find rows in the zone."""
    copy: Callable[[], None]
    """Runs the seed's task until all rows are there."""
    written: Callable[[], Counter[TableName]]
    """Returns what programs have written in the zone since the recorded end of its log."""
    note_place: Callable[[], None]
    """Records in the zone the end of the log up to which `unsent` has counted."""
    begin_out: Callable[[], None]
    """Lets the tasks out of the zone begin where `written` has ended, and removes the record."""


def let_return(
    zone: str, tasks: Sequence[RecordedTask], steps: Steps, *, discard: bool, say: Callable[[str], None]
) -> None:
    """Runs the command."""
    unsent = steps.unsent()
    if unsent is None:
        if not discard:
            raise _refused(
                zone,
                "its log is gone, so nobody can say what it has written that other zones have not got",
                "What that was is lost. If that is right: --discard-unsent",
            )
        say(f"what zone {zone} has written and other zones have not got is lost; its log is gone")
    elif unsent:
        if not discard:
            raise _refused(
                zone,
                f"other zones have not got what it has written: {counted(unsent)}",
                "Run the tasks out of the zone until they are synced (pidts run FILE@ZONE-OTHER --until-synced). "
                "Or give these changes up: --discard-unsent",
            )
        say(f"given up: {counted(unsent)} of zone {zone}, which other zones have not got")
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
    """Returns the changed rows of each table as words."""
    return ", ".join(
        f"{number} changed row{'s' if number > 1 else ''} of {name if name.name else 'a table'}"
        for name, number in sorted(changes.items())
    )


def _refused(zone: str, what: str, todo: str) -> PrecheckFailed:
    return PrecheckFailed("zone-unsent", f"zone {zone}: {what}", where=Where(), todo=todo)
