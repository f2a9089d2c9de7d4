"""Decides which transactions belong to the part of a log between two points that a user names.

A point is an Lsn, a position, a GTID, a GTID set or a time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pidts.model import (
    Gtid,
    GtidSet,
    Lsn,
    MariaDbGtid,
    MariaDbGtidSet,
    MySqlGtid,
    MySqlGtidSet,
    Position,
    Transaction,
    parse_gtid,
    parse_gtid_set,
)

Point = Lsn | Position | GtidSet | MySqlGtid | datetime

POINT_FORMS = (
    "an Lsn, a position such as bin.000042:1337, a GTID or a GTID set, a time such as 2024-05-01T08:00:00Z, "
    "or how long ago: -1h30m"
)
_LSN = re.compile(r"\d{4}\.\d+\.\d+\.\d+", re.ASCII)
_POSITION = re.compile(r"[^,]+\.\d+:\d+", re.ASCII)
_TIME = re.compile(r"\d{4}-\d\d-\d\d(?:[T ].*)?", re.ASCII)
_AGO = re.compile(r"-(?=.)(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", re.ASCII)
_ONE_GTID = re.compile(r"\s*[0-9a-fA-F-]{36}:(?:\w+:)?\d+\s*", re.ASCII)


def parse_point(text: str) -> Point:
    """Parses a point in any of its forms; raises ValueError otherwise.

    A time without a time zone is UTC, and a date without a time means the first second of the day.
    """
    if _LSN.fullmatch(text):
        return Lsn.parse(text)
    if _TIME.fullmatch(text):
        time = datetime.fromisoformat(text)
        return time if time.tzinfo else time.replace(tzinfo=UTC)
    if _POSITION.fullmatch(text):
        return Position.parse(text)
    if ago := _AGO.fullmatch(text):
        names = ("weeks", "days", "hours", "minutes", "seconds")
        past = {name: int(number or 0) for name, number in zip(names, ago.groups(), strict=True)}
        try:
            return datetime.now(UTC) - timedelta(**past)
        except OverflowError as error:
            raise ValueError(str(error)) from None
    if _ONE_GTID.fullmatch(text):
        return MySqlGtid.parse(text)
    return parse_gtid_set(text)


@dataclass(frozen=True, slots=True)
class LogRange:
    """The part of a log after `start`, up to and including `end`.

    If the start is a time, the range begins with the first transaction in that second or later. If the end is a time,
    the range ends with the last transaction in that second or earlier. If the start is a GTID set, the user already has
    the transactions in this set. If the end is a GTID set, the user wants the transactions in this set.
    """

    start: Point | None = None
    end: Point | None = None

    def holds(self, lsn: Lsn) -> bool:
        """Whether a change of a transaction in the range is itself in the range.

        The range may start or end at the Lsn of one row. Then other rows of the same transaction are outside.
        """
        if isinstance(self.start, Lsn) and lsn <= self.start:
            return False
        return not (isinstance(self.end, Lsn) and lsn > self.end)


class RangeFilter:
    """Reads a log, transaction by transaction, and decides which transactions are in the range."""

    def __init__(self, wanted: LogRange) -> None:
        self._start, self._end = wanted.start, wanted.end
        self._begun = False
        self._goals = _goals(wanted.end)
        self.ended = False
        """Whether no later transaction can be in the range."""

    def takes(self, transaction: Transaction) -> bool:
        """Whether the next transaction is in the range."""
        if self.ended or self._is_after_end(transaction):
            self.ended = True
            return False
        taken = self._is_begun(transaction) and not self._is_not_wanted(transaction)
        if self._goals and transaction.gtid:
            self._goals = missed(self._goals, transaction.gtid)
            self.ended = not self._goals
        elif isinstance(self._end, Lsn | Position):
            self.ended = transaction.lsn >= _lsn(self._end, transaction)
        return taken

    def _is_begun(self, transaction: Transaction) -> bool:
        start = self._start
        if isinstance(start, MariaDbGtidSet | MySqlGtidSet):
            return not (transaction.gtid and start.contains(parse_gtid(transaction.gtid)))
        if isinstance(start, MySqlGtid):
            begun, self._begun = self._begun, self._begun or transaction.gtid == str(start)
            return begun
        if not self._begun:
            if isinstance(start, datetime):
                self._begun = transaction.timestamp >= start.timestamp()
            else:
                self._begun = start is None or transaction.lsn > _lsn(start, transaction)
        return self._begun

    def _is_after_end(self, transaction: Transaction) -> bool:
        end = self._end
        if isinstance(end, datetime):
            return transaction.timestamp > end.timestamp()
        if isinstance(end, Position):
            return transaction.lsn > _lsn(end, transaction)
        return isinstance(end, Lsn) and transaction.begin > end

    def _is_not_wanted(self, transaction: Transaction) -> bool:
        if not isinstance(self._end, MariaDbGtidSet | MySqlGtidSet) or not transaction.gtid:
            return False
        return not self._end.contains(parse_gtid(transaction.gtid))


def missed(goals: frozenset[Gtid], gtid: str) -> frozenset[Gtid]:
    """Returns the GTIDs of `goals` that a reader has not reached after it has read this transaction."""
    if not goals or not gtid:
        return goals
    came = parse_gtid(gtid)
    if isinstance(came, MySqlGtid):
        return goals - {came}
    return frozenset(
        goal
        for goal in goals
        if not (isinstance(goal, MariaDbGtid) and goal.domain == came.domain and goal.sequence <= came.sequence)
    )


def _goals(end: Point | None) -> frozenset[Gtid]:
    """Returns the last transaction of each server UUID or domain of the range's end, if that is a GTID set."""
    if isinstance(end, MySqlGtid):
        return frozenset({end})
    if isinstance(end, MariaDbGtidSet):
        return frozenset(end.positions)
    if isinstance(end, MySqlGtidSet):
        return frozenset(MySqlGtid(uuid, tag, pieces[-1][1]) for (uuid, tag), pieces in end.members)
    return frozenset()


def _lsn(point: Lsn | Position, transaction: Transaction) -> Lsn:
    return point if isinstance(point, Lsn) else Lsn.at(point, transaction.lsn.change_no)
