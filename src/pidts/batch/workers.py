"""The positions of a task's workers, from one batch to the next.

A batch moves all workers from one state to the next, each in a transaction of its own. So after a crash some workers
are at the state before a batch, and some at the state after it. If the next run cuts its batches differently, and
crashes, too, some workers may be even further ahead. The checkpoint row of every worker has the worker's whole state:
the main Lsn, the places of held tables, the progress of the copy. Then:

- a run begins at the state that all workers have reached, table by table (`slowest`);
- a worker skips a batch's changes of a table up to its own place for this table, and its checkpoint never goes back
  (`furthest`);
- a chunk of a copy counts as written when all workers have it.

The keys in two checkpoint rows do not show which worker has copied further: only the source knows the keys' order. So a
checkpoint row says in which run it was stored. In the first batch of a run, which writes no chunk, every worker stores
a row. Therefore, of the latest run's rows, the row with the lowest batch number has the progress that all workers have.
An example: one of three workers has committed a chunk, and the run crashes. The next run reads the chunk again. The
other two workers record it, and the run crashes before the first worker does. With batch numbers alone, the first
worker would seem to be the slowest.

A batch may end before the place of a worker that is ahead. The worker's checkpoint row then keeps the worker's place,
but gets the copy progress as of the end of the batch. After the end of the batch, and before the worker's place, the
log may rename or drop a table. The stored progress does not show this yet. So the row says at which place the batch
ended (`copied_at`), and a run that uses this row's progress begins there. An example:

1. The checkpoints of two of three workers are after a RENAME in the log, and the run crashes.
2. The next run begins before the RENAME. The first batch of this run ends before the RENAME, too, so all workers store
   progress with the old name.
3. The batch with the RENAME follows, and the run crashes when only the third worker has committed it. Now the places of
   all three are after the RENAME, but the progress in two of their rows still has the old name.

The row's GTID set and position are as of the end of that batch, too. If no table is being copied, a run begins at the
earliest of these places, whose GTID set is known.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, Self, TypeVar

from pidts.model import Checkpoint, Halted, LogPlace, Lsn, Position, TableName, Where
from pidts.plan import (
    CopyState,
    Places,
    PlanState,
    copied_at,
    copies_of,
    dealing_of,
    furthest,
    run_of,
    slowest,
)

_UNKNOWN = LogPlace()
_Text = TypeVar("_Text")
_Parsed = TypeVar("_Parsed")


class _Known(ABC, Generic[_Text, _Parsed]):
    """The parsed texts of checkpoints. Each text is parsed at most once.

    A text may name thousands of tables, and several steps of a batch need it. Most workers have equal texts. If this
    process has made a text itself, the text is not parsed at all.
    """

    def __init__(self, made: Mapping[_Text, _Parsed] | None = None) -> None:
        self._found = dict(made or {})

    def of(self, checkpoint: Checkpoint) -> _Parsed:
        """Returns what a checkpoint's text says."""
        text = self._text(checkpoint)
        found = self._found.get(text)
        if found is None:
            found = self._found[text] = self._parsed(text)
        return found

    def and_those_of(self, other: Self) -> Self:
        """Returns an object with the parsed texts of both objects."""
        return type(self)({**self._found, **other._found})

    @staticmethod
    @abstractmethod
    def _text(checkpoint: Checkpoint) -> _Text: ...

    @staticmethod
    @abstractmethod
    def _parsed(text: _Text) -> _Parsed: ...


class KnownPlaces(_Known[tuple[Lsn, str], Places]):
    """The places in the texts of checkpoints."""

    @staticmethod
    def _text(checkpoint: Checkpoint) -> tuple[Lsn, str]:
        return checkpoint.lsn, checkpoint.copy

    @staticmethod
    def _parsed(text: tuple[Lsn, str]) -> Places:
        return Places.of_text(*text)


class KnownCopies(_Known[str, Mapping[TableName, CopyState]]):
    """The copy progress in the texts of checkpoints."""

    def __reduce__(self) -> tuple[Callable[[], KnownCopies], tuple[()]]:
        """Sends nothing to another process, which parses the texts itself when it needs them."""
        return KnownCopies, ()

    @staticmethod
    def _text(checkpoint: Checkpoint) -> str:
        return checkpoint.copy

    @staticmethod
    def _parsed(text: str) -> Mapping[TableName, CopyState]:
        return copies_of(text)


@dataclass(frozen=True, slots=True)
class Commit:
    """The checkpoints of all workers before and after one batch. Each worker writes its new one with its rows."""

    before: tuple[Checkpoint, ...]
    after: tuple[Checkpoint, ...]
    origin: str = ""
    """The other zone from which the rows came; empty: the source's own zone."""
    _places: KnownPlaces = field(default_factory=KnownPlaces, compare=False, repr=False)
    _copies: KnownCopies = field(default_factory=KnownCopies, compare=False, repr=False)

    @classmethod
    def of(cls, before: Workers, after: Workers, origin: str = "") -> Commit:
        """Returns the commit that moves workers from one batch's end to the next."""
        places, copies = before.places.and_those_of(after.places), before.copies.and_those_of(after.copies)
        return cls(before.checkpoints, after.checkpoints, origin, places, copies)

    def places(self, checkpoint: Checkpoint) -> Places:
        """Returns the places that one of these checkpoints describes."""
        return self._places.of(checkpoint)

    def copies(self, checkpoint: Checkpoint) -> Mapping[TableName, CopyState]:
        """Returns the progress of copies in one of these checkpoints."""
        return self._copies.of(checkpoint)


@dataclass(frozen=True, slots=True)
class Workers:
    """The checkpoints of all workers. After a crash some may be ahead of others."""

    checkpoints: tuple[Checkpoint, ...]
    places: KnownPlaces = field(default_factory=KnownPlaces, compare=False, repr=False)
    copies: KnownCopies = field(default_factory=KnownCopies, compare=False, repr=False)

    @classmethod
    def claimed(
        cls, checkpoints: tuple[Checkpoint, ...], dealing: str | None = None
    ) -> tuple[Workers, PlanState, Checkpoint]:
        """Returns the workers of a new run, the state at which it begins, and the row with that state's GTID set.

        While workers are at different places, each row must go to the same worker as before. If the target has got a
        unique key meanwhile, all rows of a table that two workers shared may belong to one of them now. This worker
        would skip changes that the other worker has not committed yet, so the function raises an error. `dealing` is
        the current text of `JobContext.dealing`; None if the caller writes nothing.

        From now on, all workers have the highest of their batch numbers. The numbers differ after a batch in which one
        worker had nothing to store. If they stayed different, the worker with the higher number would skip a new
        batch's chunk: it would mistake the batch for one that it has already written.
        """
        states = [PlanState.from_checkpoint(one.lsn, one.copy) for one in checkpoints]
        order = [(-run_of(one.copy), one.batch) for one in checkpoints]
        chosen = order.index(min(order))
        latest = max(checkpoint.batch for checkpoint in checkpoints)
        workers = cls(tuple(replace(checkpoint, batch=latest) for checkpoint in checkpoints))
        stored, copy = [stored_with(one) for one in checkpoints], states[chosen].copy
        begin = slowest([*states, *([stored[chosen]] if copy else stored)], copy)
        latest_there = max((place.lsn, number) for number, place in enumerate(stored) if place.lsn <= begin.lsn)[1]
        for one, state in zip(checkpoints, states, strict=True):
            ahead = (state.lsn, state.exceptions) != (begin.lsn, begin.exceptions)
            if ahead and dealing is not None and dealing_of(one.copy) != dealing:
                raise Halted(
                    "unique-keys-changed",
                    "unique keys of the target's tables were changed by hand while one worker was ahead of another",
                    where=Where(source=one.source, position=one.position or str(one.lsn)),
                    todo="Undo the change of the keys, let the task catch up, stop it, then change the keys",
                )
        return workers, begin, checkpoints[latest_there]

    def moved(self, end: PlanState, gtid: str = "", place: LogPlace = _UNKNOWN, dealing: str = "") -> Workers:
        """Returns the workers after a batch; none goes back. If `place` has no log file, the workers keep theirs."""
        moved = list[Checkpoint]()
        is_plain = not (end.copy or end.held or dealing)
        places = end.places
        made: dict[tuple[Lsn, str, int], tuple[Lsn, str]] = {}
        known: dict[tuple[Lsn, str], Places] = {}
        copies = end.unread_copies
        for one in self.checkpoints:
            position, file = place.position, place.log_file or one.log_file
            if is_plain and not one.copy and one.lsn <= end.lsn:
                # The code below would return the same, but would take many times as long.
                batch = one.batch + 1
                moved.append(replace(one, batch=batch, lsn=end.lsn, gtid=gtid, position=position, log_file=file))
                continue
            before = one.lsn, one.copy, one.epoch
            if before not in made:  # most workers have equal states
                other = self.places.of(one)
                if places.has_all_of(other):
                    made[before] = found = end.lsn, end.copy_json(one.epoch, dealing)
                    known[found] = places
                else:
                    state = furthest(end, other)
                    made[before] = found = state.lsn, state.copy_json(one.epoch, dealing, end)
                    known[found] = state.places
            lsn, copy = made[before]
            batch = one.batch + 1
            moved.append(replace(one, batch=batch, lsn=lsn, gtid=gtid, position=position, copy=copy, log_file=file))
        return Workers(tuple(moved), KnownPlaces(known), KnownCopies({copy: copies for _, copy in known}))


def stored_with(checkpoint: Checkpoint) -> PlanState:
    """Returns the end of the batch that stored a checkpoint row. The row's own Lsn may be after that end."""
    return copied_at(checkpoint.copy) or PlanState.from_checkpoint(checkpoint.lsn, checkpoint.copy)


def resume_point(checkpoints: Iterable[Checkpoint]) -> Checkpoint:
    """Returns the place at which an empty relay has to begin: after all changes that all workers have.

    A worker may be further than its row's position: within a transaction that is committed in parts, or ahead of others
    since an earlier run. Then the source cannot send its log from the worker's Lsn, but it can send it from the
    position. If tables wait at an earlier place, the relay begins there. Only the Lsn of that place is known: the
    result has no GTID set, and has a position only if the place is in the log of the checkpoint's server.
    """
    slowest = min(checkpoints, key=lambda one: stored_with(one).needs)
    place = stored_with(slowest)
    needs = place.needs
    if needs == place.lsn:
        if not slowest.position:
            return replace(slowest, lsn=needs)
        return replace(slowest, lsn=min(needs, Lsn.at(Position.parse(slowest.position), needs.change_no)))
    position = ""
    if slowest.position and needs.change_no == slowest.lsn.change_no:
        position = str(needs.position(Position.parse(slowest.position).base))
    return replace(slowest, lsn=needs, gtid="", position=position)
