"""Moves a range of rows from the zone that owns it to another zone, while all tasks run.

Each zone's meta tables record the owner of the range. The tasks that write to the zone read this record in the
transaction of their rows. The command locks the checkpoints of these tasks before it changes the record. So every
transaction that has read the former record has ended by then.

If one zone applies a change, no other zone may set it aside. So the range has no owner for a moment:

1. Claim: each record says that a move is under way, and still names the former owner. The record of the first zone (by
   name) is changed first. This record counts the moves: a move with a lower number can change nothing any more.
2. Hold: writes of programs to the table wait in the owner's zone, if the server allows that.
3. Drain: wait until all zones have the owner's changes.
4. Freeze: each record says that no zone owns the range. Changes of the range are set aside, whichever zone makes them.
5. Decide: the record of the first zone says that the new zone owns the range. This step decides.
6. Spread: all other records also get the new owner.

At any time, all records that name an owner name the same zone: before step 5 the old owner, after step 5 the new one.
The state after a crash at each point:

    before step 1            nothing has happened
    in 1 to 4                the old owner owns the range in some zones, and no zone owns it in the others. The next run
                             takes over the move: it records the old owner in all zones again, and begins anew or ends
    in 5                     the step is one transaction, so the record of the first zone shows the owner
    in 6                     the new owner owns the range in some zones, and no zone owns it in the others. The next run
                             continues with step 6; the move cannot be undone any more
    an error in 1 to 4       the old owner owns the range again in all zones, the first zone last. The next run
                             writes the record to a zone that could not be reached
    two runs at once         the later run has the higher number in the first zone. The earlier run notices this,
                             at the latest in step 5, and changes nothing any more
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, replace
from time import sleep

from pidts.apply import Retry, TargetSession
from pidts.model import ConfigError, PrecheckFailed, RangeOwner, Transient, Where


@dataclass(frozen=True, slots=True)
class ZoneRecords:
    """The meta tables of one zone."""

    name: str
    connect: Callable[[], TargetSession]
    writers: tuple[tuple[str, str], ...]
    """The task and source of each task that writes to the zone."""


Hold = Callable[[str], AbstractContextManager[None]]
"""A function that returns a context. During its block, programs that write to the table in a zone have to wait."""
Drain = Callable[[str], None]
"""Waits until all zones have the changes that a zone has made before the call; raises if they do not get them."""


class OwnerMove:
    """One run of a move. `wanted`: the range, its owner in the task file, and the zone that shall own it."""

    def __init__(
        self,
        zones: Sequence[ZoneRecords],
        wanted: RangeOwner,
        hold: Hold,
        drain: Drain,
        say: Callable[[str], None] = lambda _: None,
        retry: Retry | None = None,
    ) -> None:
        self._zones = sorted(zones, key=lambda zone: zone.name)
        self._wanted, self._hold, self._drain, self._say = wanted, hold, drain, say
        self._retry = retry or Retry()

    def run(self) -> None:
        """Moves the range. If an earlier move to the same zone has passed step 5, this run only completes that move."""
        first, *others = self._zones
        there = self._last()
        if there is not None and there.settled and there.zone == self._wanted.to:
            self._spread(there, self._zones)
            self._say(f"zone {there.zone} owns {there}")
            return
        if there is None and self._wanted.zone == self._wanted.to:
            self._say(f"zone {self._wanted.zone} owns {self._wanted}")
            return
        mine = self._claim(there)
        try:
            self._spread(mine, others)
            with self._hold(mine.origin):
                self._drain(mine.origin)
                # Tasks into the owner's zone may wait for the locked table, and a change of the record waits for these
                # tasks. So the record of this zone is changed later, when the table is free again.
                for zone in self._zones:
                    if zone.name != mine.origin:
                        self._write(zone, replace(mine, zone=""))
            for zone in self._zones:
                if zone.name == mine.origin:
                    self._write(zone, replace(mine, zone=""))
        except BaseException:
            self._undo(mine)
            raise
        decided = replace(mine, zone=mine.to, settled=True)
        self._decide(first, decided)
        self._spread(decided, others)
        self._say(f"zone {decided.zone} owns {decided}")

    def undo(self) -> None:
        """Gives the range back to its owner, if a move has not passed step 5 yet."""
        there = self._last()
        if there is None or there.settled:
            owner = self._wanted.zone if there is None else there.zone
            if there is not None:
                self._spread(there, self._zones)
            self._say(f"no move of {self._wanted} is under way: zone {owner} owns it")
            return
        self._undo(self._claim(there))

    def _last(self) -> RangeOwner | None:
        """Returns the first zone's record, which decides. If that zone has none, returns the latest other record."""
        found = [self._read(zone) for zone in self._zones]
        return found[0] or max((one for one in found if one is not None), key=lambda one: one.number, default=None)

    def _claim(self, there: RangeOwner | None) -> RangeOwner:
        """Records in the first zone that a move is under way. Returns the record; `there` is the record so far."""
        owner = self._wanted.zone if there is None else (there.zone if there.settled else there.origin)
        number = 1 if there is None else there.number + 1
        mine = replace(self._wanted, zone=owner, origin=owner, settled=False, number=number)
        self._write(self._zones[0], mine, demand=lambda found: found in (None, there))
        return mine

    def _decide(self, first: ZoneRecords, decided: RangeOwner) -> None:
        try:
            self._write(first, decided)
        except Transient as error:
            # The answer to the COMMIT may be lost. The record shows whether it has succeeded.
            found = self._read(first)
            if found != decided:
                self._undo(replace(decided, zone=decided.origin, settled=False))
                raise error from None

    def _spread(self, record: RangeOwner, zones: Sequence[ZoneRecords]) -> None:
        for zone in zones:
            self._write(zone, record)

    def _undo(self, mine: RangeOwner) -> None:
        back = replace(mine, zone=mine.origin, to=mine.origin, settled=True)
        for zone in reversed(self._zones):
            self._write(zone, back)
        self._say(f"zone {mine.origin} owns {mine}, as before")

    def _read(self, zone: ZoneRecords) -> RangeOwner | None:
        with closing(zone.connect()) as session:
            session.meta.prepare()
            found = session.meta.range_owners.read()
        return next((one for one in found if one.id == self._wanted.id), None)

    def _write(
        self, zone: ZoneRecords, record: RangeOwner, demand: Callable[[RangeOwner | None], bool] | None = None
    ) -> None:
        """Waits for the end of all transactions that have read a zone's record, and overwrites the record.

        Raises if the zone has the record of a later move, or a record that `demand` does not accept.
        """

        def attempt() -> None:
            with closing(zone.connect()) as session:
                session.meta.prepare()
                session.begin()
                for task, source in zone.writers:
                    session.meta.checkpoints.lock_shared(task, source)
                found = session.meta.range_owners.lock(record.id)
                if found == record:
                    session.rollback()  # an earlier attempt has succeeded
                    return
                if (found is not None and found.number > record.number) or (demand is not None and not demand(found)):
                    session.rollback()
                    raise PrecheckFailed(
                        "zone-move-superseded",
                        f"another move of {record} has begun meanwhile",
                        where=Where(table=f"{record.schema}.{record.table}"),
                        todo="Wait until that move has ended, then see who owns the range (pidts zones owners FILE)",
                    )
                session.meta.range_owners.save(record)
                session.commit()

        self._retry.repeat(attempt, drop=lambda: None, sleep=sleep, given_up=lambda error, _: error)


def demand_zone(zones: Sequence[ZoneRecords], wanted: RangeOwner) -> None:
    """Raises if the zone cannot own the range."""
    if wanted.to not in {zone.name for zone in zones}:
        what = f"{wanted.to!r} is not a zone that may own rows"
        raise ConfigError("unknown-name", what, todo=f"Name one of {', '.join(sorted(zone.name for zone in zones))}")
