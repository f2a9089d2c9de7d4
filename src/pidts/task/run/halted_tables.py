"""The tables that halt while the rest of their task continues, over the attempts of one run.

If the target refuses rows of one table, the attempt ends, and the worker that wrote these rows has committed nothing of
the batch. (A faster worker may have committed its rows; its checkpoint records this.) The next attempt begins as usual,
but keeps that table at its Lsn, so the batch is planned again without the table. In a merged table, one shard has sent
the row. If the error names this shard (`pidts.apply.refused_row`), only the shard stays at its Lsn; otherwise all
shards of the target table do. Each attempt finds at most one table that halts. Crash points:

1. A crash before the next attempt has committed anything: the checkpoint does not say that the table halts. The next
   run tries the same rows. If the target refuses these rows, the table halts again.
2. A crash after this commit: the checkpoint contains the table's own Lsn. The next run lets the table continue from
   there. If the target refuses its rows, the table halts again.

The table is tried again in three cases:

- An operator has removed the cause, and removes the halt from the record (`pidts ddl retry`).
- A new run begins.
- The target's table did not fit the table's rows, and was then changed for other shards. For example, a shard whose
  change was skipped continues when the other shards' change has run.

Schema changes halt in separate threads, see `pidts.ddl.ddl_threads`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace

import structlog

from pidts.apply import Target, TargetSession
from pidts.apply.checkpoint import fenced
from pidts.ddl.shards.coordinator import ShardGroups
from pidts.gate.stream import ChannelStream
from pidts.model import DdlState, DecodeError, Halt, Halted, Lsn, Table, TableName, Transient, Where
from pidts.model.advice import with_place, with_tables
from pidts.plan import PlanState
from pidts.plan.continuity import Discontinuity
from pidts.relay import RelayReader
from pidts.rules import Rules
from pidts.shards.structures import same_version
from pidts.spark.stream import TaskStream
from pidts.task.operate.ddl_commands import as_before

_log = structlog.get_logger(__name__)

_LOOK_SECONDS = 0.5
_WHOLE_TASK = frozenset({"structure-unknown", "ddl-does-not-fit", "unique-keys-changed", "checkpoint-mismatch"})
"""Codes of errors that name one table, but may also concern other tables."""


_BESIDE_OTHERS = (
    "Other shards have rows in this table, so keep it. You may have skipped a schema change of this shard or of its "
    "source (`pidts ddl skip`): then the shard continues by itself when the target gets the other shards' change. "
    "After `pidts ddl unlock` the shard continues at once. If a change of the other shards was run without this shard "
    "(unlock), also make the change on this shard. Then stop the task, and read the shard's rows again: pidts run TASK "
    "--resync TABLE. Or correct the target's table by hand (ALTER TABLE ... ADD or MODIFY COLUMN), "
    "then run: pidts ddl retry TASK --source SOURCE --table TABLE --yes. If the target has lost the whole table, stop "
    "the task and run it with --resync of all shards that have rows there. The task creates the table again and "
    "copies their rows"
)


class HaltedTables:
    """The tables of one source that halt, over the attempts of one run."""

    def __init__(
        self,
        task: str,
        source: str,
        *,
        into_zone: str | None = None,
        record_seconds: float = 1.0,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`record_seconds` is the interval at which the record is read, since an operator may have removed a halt.

        `into_zone` is the zone of the target, as in `Halt`. `now` returns the seconds since 1970.
        """
        self._task, self._source, self._into_zone = task, source, into_zone
        self._record_seconds, self._now = record_seconds, now
        self._halted: dict[TableName, Halt] = {}
        self._rules = Rules()
        self._stream: TaskStream | ChannelStream | None = None
        self._shards: ShardGroups | None = None
        self._relay: RelayReader | None = None
        self._looked, self._asked, self._only_halts_left = 0.0, 0.0, False
        self._epoch = 0
        self._previous = PreviousHalts(task, source)
        self._recorded: set[str] = set()
        """The places of this run's halts that are recorded on the target. If a place is missing there, an operator has
        removed the halt.
        """
        self._agreed: dict[TableName, Table | None] = {}
        """The structure of each shard's merged table when the attempt began."""
        self._unfit: dict[TableName, Table | None] = {}
        """For each shard whose rows did not fit: the structure of its merged table at that time."""

    @property
    def rows(self) -> tuple[Halt, ...]:
        """The halts of tables whose rows the target has refused."""
        return tuple(dict.fromkeys(self._halted.values()))

    @property
    def recorded(self) -> Sequence[Halt]:
        """The recorded halts when the attempt began."""
        return self._previous.recorded

    def begin_attempt(
        self, target: TargetSession, rules: Rules, state: PlanState, tables: Collection[TableName], epoch: int = 0
    ) -> None:
        """Begins another attempt. Halted tables stay halted, unless an operator has removed the halt."""
        self._stream, self._epoch = None, epoch
        self._rules = rules
        self._unfit = {name: before for name, before in self._unfit.items() if name in self._halted}
        recorded = {halt.place for halt in target.meta.halts.read(self._task, self._source)}
        for name in self._lifted(recorded):
            _log.info("an operator wants the table to be tried again", table=str(name))
            del self._halted[name]
        self._previous.begin_attempt(target, state.at, tables, self.rows)
        self._recorded = {halt.place for halt in self.rows}

    def watch_stream(self, stream: TaskStream | ChannelStream, relay: RelayReader, shards: ShardGroups) -> None:
        """Watches the stream of the attempt. From now on, an error may mean that the target has refused rows."""
        self._stream, self._relay, self._looked, self._shards = stream, relay, 0.0, shards
        merged = filter(self._rules.routes.may_merge, stream.tables)
        self._agreed = {name: shards.agreed(self._rules.target_name(name)) for name in merged}

    @property
    def at_present(self) -> frozenset[TableName]:
        """The tables that are halted in the current attempt."""
        return self._stream.halted_tables if self._stream is not None else frozenset()

    def forget(self) -> None:
        """Forgets the halts, so that all refused rows are tried again. Call it when the task's rules have changed."""
        self._halted.clear()

    def halt_table_of(self, error: Halted) -> bool:
        """Halts the table that an error names, if the task can continue without it; returns whether it is halted."""
        stream = self._stream
        if stream is None or not stream.rows_failed:
            return False
        meant = self._meant(error.where, stream.tables)
        names = tuple(sorted(meant - self._halted.keys()))
        if not names:
            return False
        if isinstance(error, DecodeError | Discontinuity) or error.code in _WHOLE_TASK:
            return False
        at = min(map(stream.state.at, names))
        position = self._position(error.where.position, at)
        since = self._previous.since(names[0], at) or self._now()
        halt = Halt.of(error, names, at, source=self._source, position=position, since=since, into_zone=self._into_zone)
        if error.code == "target-shape" and any(map(self._rules.routes.may_merge, names)):
            todo = with_place(_BESIDE_OTHERS, self._source, "")
            halt = replace(halt, todo=with_tables(todo, self._source, names))
            self._unfit |= {name: self._agreed.get(name) for name in names}
        self._halted |= dict.fromkeys(names, halt)
        event = "the target refuses rows of a table, and the table is halted"
        _log.error(event, source=self._source, halt=str(halt), todo=halt.todo)
        return True

    def _position(self, place: str, at: Lsn) -> str:
        """Returns the log file and byte that an error names; if the error names no place, those of the Lsn `at`."""
        lsn = at
        if place:
            try:
                lsn = Lsn.parse(place)
            except ValueError:
                return place
        found = self._relay.position(lsn) if self._relay is not None else None
        return str(found or place)

    def drop_past_records(self, target: Target, retried: Collection[TableName] | None = None) -> None:
        """Removes the records of tables that were halted when the attempt began and have continued since.

        `retried` are the tables that are tried again and have not caught up; None if they are not known.
        """
        if self._stream is not None:
            tables = self._stream.tables
            self._previous.drop_past_records(target, self._stream.state.at, tables, retried)

    def _meant(self, where: Where, tables: Collection[TableName]) -> set[TableName]:
        """Returns the tables that an error concerns: a table of the source, or all shards of a target table.

        A shard may have the same name as its target table. If the error also names the source, it concerns only that
        shard.
        """
        own = {name for name in tables if where.table == str(name)}
        if own and where.source == self._source:
            return own
        return own | {name for name in tables if where.table == str(self._rules.target_name(name))}

    def has_retry(self, target: Target) -> bool:
        """Whether the next attempt has to try refused rows again.

        Rows are tried again if an operator has removed the halt, or if they did not fit and the target's table was
        changed since. If another run has taken over the task, and so has removed halts, this method raises.
        """
        if not self._halted or time.monotonic() < self._asked + self._record_seconds:
            return False
        changed = {name for name, before in self._unfit.items() if name in self._halted and self._differs(name, before)}
        for name in changed:
            _log.info("the target's table was changed for other shards, rows are tried again", table=str(name))
            del self._halted[name], self._unfit[name]
        if changed:
            return True
        with suppress(Transient), closing(target.connect()) as session:
            recorded = {halt.place for halt in session.meta.halts.read(self._task, self._source)}
            lifted = self._lifted(recorded)
            for stored in session.meta.checkpoints.read(self._task, self._source) if lifted else ():
                if stored.epoch > self._epoch:
                    raise fenced(stored, self._epoch)
            for name in lifted:
                _log.info("an operator wants the table to be tried again", table=str(name))
                del self._halted[name]
            self._asked = time.monotonic()
            return bool(lifted)
        self._asked = time.monotonic()
        return False

    def _lifted(self, recorded: Collection[str]) -> list[TableName]:
        """Returns the tables whose halts an operator has removed. `recorded` are the places that are still recorded."""
        lifted = self._recorded.difference(recorded)
        return [name for name, halt in self._halted.items() if halt.place in lifted]

    def _differs(self, name: TableName, before: Table | None) -> bool:
        now = self._shards.agreed(self._rules.target_name(name)) if self._shards is not None else None
        return now is not None and (before is None or not same_version(before, now))

    def only_halts_left(self, stream: TaskStream | ChannelStream, relay: RelayReader) -> bool:
        """Whether all remaining work needs an operator."""
        if not stream.halts:
            return False
        if time.monotonic() >= self._looked + _LOOK_SECONDS:
            self._only_halts_left, self._looked = stream.only_halts_left(relay), time.monotonic()
        return self._only_halts_left


At = Callable[[TableName], Lsn]
"""A function that returns the Lsn up to which the target has a table's changes."""


@dataclass(slots=True)
class PreviousHalts:
    """The halts of one source that were recorded when the attempt began, and that may no longer be true.

    An attempt tries failed changes again, and waiting shards arrive again. Without these records, the status would show
    no halt until the change has failed again or the shard has arrived again. And if yet another attempt began before
    that, the time since which the table is halted would be lost. So a record stays, marked as old, until one of these
    events:

    1. The change fails again, or the shard arrives again. The record is written anew, with the same place.
    2. The table has passed that place in any way, or is no longer part of the task. The record is removed. If a run
       ends before the removal, the next attempt removes the record before it reports anything.

    If a table is halted at the same place again, it has been halted since the recorded time.
    """

    task: str
    source: str
    recorded: Sequence[Halt] = ()
    """All recorded halts when the attempt began."""
    _kept: list[Halt] = field(default_factory=list)

    def begin_attempt(
        self, target: TargetSession, at: At, tables: Collection[TableName], present: Collection[Halt] = ()
    ) -> None:
        """Removes the recorded halts of tables that have passed the halt's place, and records the present halts."""
        self.recorded = target.meta.halts.read(self.task, self.source)
        halted = {name for halt in present for name in halt.tables}
        tried = frozenset(tables) - halted
        self._kept = [halt for halt in _not_passed(self.recorded, at, tried) if not self._is_done(target, halt)]
        stay = {halt.place: halt for halt in (*map(as_before, self._kept), *present)}
        known = {halt.place: halt for halt in self.recorded}
        for place, halt in stay.items():
            if halt != known.get(place):
                target.meta.halts.save(self.task, self.source, halt)
        over = [place for place in known if place not in stay]
        target.meta.halts.resolve(self.task, self.source, over)

    def drop_past_records(
        self, target: Target, at: At, tables: Collection[TableName], retried: Collection[TableName] | None = None
    ) -> None:
        """Removes the records of tables that have passed the place of their halt.

        `retried` are the tables that are tried again and have not caught up; None if they are not known. If the later
        log does not concern a table, its Lsn does not move, and only its absence from `retried` shows that the target
        has its rows.
        """
        if not self._kept:
            return
        left = [
            halt
            for halt in _not_passed(self._kept, at, tables)
            if halt.statement or retried is None or not frozenset(halt.tables).isdisjoint(retried)
        ]
        places = {halt.place for halt in left}
        over = [halt.place for halt in self._kept if halt.place not in places]
        if over:
            with suppress(Transient), closing(target.connect()) as session:
                session.meta.halts.resolve(self.task, self.source, over)
                self._kept = left

    def since(self, table: TableName, at: Lsn) -> float:
        """Returns when the target first refused rows of a table at this place, in seconds since 1970; 0 if unknown."""
        rows = (halt for halt in self.recorded if not halt.statement and table in halt.tables and halt.lsn >= at)
        return min((halt.since for halt in rows if halt.since), default=0.0)

    def _is_done(self, target: TargetSession, halt: Halt) -> bool:
        if not halt.statement:
            return False  # The target refuses rows, whether or not a schema change at the same place is done.
        journal = target.meta.journal.read(self.task, self.source, halt.lsn)
        return journal is not None and journal.state is DdlState.DONE


def _not_passed(halts: Iterable[Halt], at: At, tables: Collection[TableName]) -> list[Halt]:
    """Returns the halts whose tables have not passed the place of the halt. `tables` are those of the task."""

    def is_before(name: TableName, halt: Halt) -> bool:
        return at(name) < halt.lsn if halt.statement else at(name) <= halt.lsn

    return [
        halt
        for halt in halts
        if any(name in tables and is_before(name, halt) for name in halt.tables)
        or (not halt.tables and bool(tables) and all(is_before(name, halt) for name in tables))
    ]
