"""Decides whether an entry of the relay follows the last applied entry, repeats an earlier entry, or shows a break.

Every entry names the previous entry (`prev_lsn`), and the relay keeps entries as the source wrote them. So each entry
has to be compared only with the last entry. There are three kinds of breaks, which are handled differently:

- a *repeat*: everything up to the entry's end is already applied. The entry would change nothing, so it is skipped;
- *loss*: the entry begins after a missing part of the log. The log after the missing part must not be applied;
- *disorder*: the missing part follows later, or the entry begins before the place that was reached and ends after it.
  If the entry were applied, the later of two changes of one row could be applied first.

Two things look like breaks and are not:

- Reading begins within an entry: at the Lsn of a row, or at the end of an entry that is now part of a longer one.
- There are no bytes between the last place and the entry's first event. Then the entry follows, whatever predecessor it
  names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from itertools import islice

from pidts.model import Halted, LogEntry, Lsn, Transaction, Where

_LOOK_AHEAD = 100_000
"""The most entries that are searched for the missing part, to find the kind of a break."""
_ADVICE = (
    "This part of the log is received again from the source once. If the error comes back: check the disk "
    "and the memory, then empty this folder and start again from the target's checkpoint"
)


class Verdict(Enum):
    """The relation of an entry to a place up to which all changes are applied."""

    NEXT = "next"
    REPEAT = "repeat"
    GAP = "gap"
    DISORDER = "disorder"


class Discontinuity(Halted):
    """The error for a break in the relay. If the place is known, all entries up to this place are intact."""

    @property
    def after(self) -> Lsn | None:
        """Returns the end of the last intact entry; None if it is not known yet."""
        return Lsn.parse(self.where.position) if self.where.position else None

    def at(self, after: Lsn) -> Discontinuity:
        """Returns the same error with `after` as the end of the last intact entry."""
        where = Where(source=self.where.source, position=str(after), file=self.where.file)
        return Discontinuity(self.code, self.what, where=where, todo=self.todo)


def judge(last: Lsn, entry: Transaction, *, inside: bool = False) -> Verdict:
    """Returns the relation of an entry to `last`; `inside`: `last` may be any place, not only an entry's end."""
    if entry.prev_lsn == last:
        return Verdict.NEXT if entry.lsn > last else Verdict.DISORDER
    if entry.lsn <= last:
        return Verdict.REPEAT
    if entry.prev_lsn > last:
        return Verdict.GAP
    return Verdict.NEXT if inside or last <= entry.begin else Verdict.DISORDER


def followed(
    entries: Iterable[LogEntry],
    after: Lsn,
    where: Callable[[LogEntry], Where],
    on_repeat: Callable[[LogEntry], None] = lambda _: None,
) -> Iterator[LogEntry]:
    """Yields the entries after `after`, as long as each follows the previous one; raises at the first break.

    `where` returns the place of an entry for the error; `on_repeat` gets each skipped entry.
    """
    last, inside = after, True
    found = iter(entries)
    for entry in found:
        transaction = entry.transaction
        # `prev_lsn` and `last` are nearly always one object, which two neighbouring entries share.
        if transaction.prev_lsn is not last:
            verdict = judge(last, transaction, inside=inside)
            if verdict is Verdict.REPEAT:
                on_repeat(entry)
                continue
            if verdict is not Verdict.NEXT:
                raise _break(last, entry, verdict, found, where(entry))
        last, inside = transaction.lsn, False
        yield entry


class UpToBreak:
    """Yields entries up to a break. Stores the break instead of raising it, so that these entries can be applied."""

    def __init__(self, entries: Iterable[LogEntry]) -> None:
        self._entries = entries
        self.broken: Discontinuity | None = None

    def __iter__(self) -> Iterator[LogEntry]:
        """Iterates over the entries once."""
        try:
            yield from self._entries
        except Discontinuity as error:
            self.broken = error


def _break(last: Lsn, entry: LogEntry, verdict: Verdict, rest: Iterator[LogEntry], where: Where) -> Discontinuity:
    prev = entry.transaction.prev_lsn
    if verdict is Verdict.GAP and _comes_later(last, prev, rest):
        verdict = Verdict.DISORDER
    is_lost = verdict is Verdict.GAP
    why = "events between the two entries are missing" if is_lost else "entries are not in the log's order"
    what = f"the entry after {last} names {prev} as its predecessor and ends at {entry.transaction.lsn}: {why}"
    place = Where(source=where.source, position=str(last), file=where.file)
    return Discontinuity("relay-gap" if is_lost else "relay-disorder", what, where=place, todo=_ADVICE)


def _comes_later(last: Lsn, prev: Lsn, rest: Iterator[LogEntry]) -> bool:
    try:
        return any(last < entry.transaction.lsn <= prev for entry in islice(rest, _LOOK_AHEAD))
    except Halted:  # the log after the break is damaged, too
        return False
