"""The part of a log that `pidts events` shows: from where, to where, which tables."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from pidts.model import (
    ConfigError,
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
from pidts.rules import AllowList

Point = Lsn | Position | GtidSet
"""A place in the log as a user names it."""

_LSN = re.compile(r"\d{4}\.\d+\.\d+\.\d+", re.ASCII)
_FORMS = "Write an Lsn, a position such as bin.000042:1337, or a GTID set"


def parse_point(text: str, option: str) -> Point:
    """An Lsn, `file:offset`, or a set of GTIDs."""
    try:
        if _LSN.fullmatch(text):
            return Lsn.parse(text)
        if re.fullmatch(r"[^,]+\.\d+:\d+", text, re.ASCII):
            return Position.parse(text)
        return parse_gtid_set(text)
    except ValueError as error:
        raise ConfigError("bad-value", f"{option}: {error}", todo=_FORMS) from None


def parse_tables(text: str) -> AllowList:
    """`shop.orders,crm.*`: names as in a block-allow-list; a schema alone is all of its tables."""
    pairs = []
    for part in filter(None, (name.strip() for name in text.split(","))):
        schema, _, name = part.partition(".")
        pairs.append((schema, name or "*"))
    return AllowList(do_tables=tuple(pairs))


@dataclass(frozen=True, slots=True)
class EventRange:
    """What is shown of the log: everything behind `start` up to and with `end`, of the tables that `tables` takes."""

    start: Point | None = None
    end: Point | None = None
    tables: AllowList = field(default_factory=AllowList)

    def begins_before(self, transaction: Transaction) -> bool:
        """Whether it is still before the range. A GTID set holds what somebody has already."""
        if isinstance(self.start, Lsn | Position):
            return transaction.lsn <= _lsn(self.start, transaction)
        if self.start is None or not transaction.gtid:
            return False
        return self.start.contains(parse_gtid(transaction.gtid))

    def shows(self, lsn: Lsn) -> bool:
        """Whether a change inside a transaction of the range is in it, too: an Lsn may name a row."""
        if isinstance(self.start, Lsn) and lsn <= self.start:
            return False
        return not (isinstance(self.end, Lsn) and lsn > self.end)

    def ends_before(self, transaction: Transaction) -> bool:
        """Whether it is behind the range, and with it everything that follows."""
        if isinstance(self.end, Position):
            return transaction.lsn > _lsn(self.end, transaction)
        return isinstance(self.end, Lsn) and transaction.begin > self.end

    def lacks(self, transaction: Transaction) -> bool:
        """Whether the end is a set of GTIDs that this one is not in."""
        if self.end is None or isinstance(self.end, Lsn | Position) or not transaction.gtid:
            return False
        return not self.end.contains(parse_gtid(transaction.gtid))

    def goals(self) -> frozenset[Gtid]:
        """The last transactions of an end that is a set of GTIDs: behind all of them nothing of the range can come."""
        if isinstance(self.end, MariaDbGtidSet):
            return frozenset(self.end.positions)
        if isinstance(self.end, MySqlGtidSet):
            return frozenset(MySqlGtid(uuid, tag, pieces[-1][1]) for (uuid, tag), pieces in self.end.members)
        return frozenset()


def missed(goals: frozenset[Gtid], gtid: str) -> frozenset[Gtid]:
    """The goals that are still ahead once this transaction has come."""
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


def _lsn(point: Lsn | Position, transaction: Transaction) -> Lsn:
    return point if isinstance(point, Lsn) else Lsn.at(point, transaction.lsn.change_no)
