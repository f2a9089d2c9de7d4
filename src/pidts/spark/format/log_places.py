"""Finds the Lsns between which a query reads, in a relay or on a server, for the points that the user names."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing

from pidts.excerpt.blocks import server_blocks
from pidts.excerpt.cut import pieces
from pidts.excerpt.files import FIRST_EVENT
from pidts.excerpt.range import LogRange, Point, RangeFilter
from pidts.excerpt.start_file import begin_of
from pidts.model import ConfigError, GtidSet, Lsn, Position, Transaction
from pidts.relay import RelayReader
from pidts.source import SourceConfig, binary_logs, connect, position
from pidts.spark.format.options import EARLIEST, LATEST


def first_in_relay(reader: RelayReader, point: Point | str, *, change_no: int) -> Lsn:
    """Returns the Lsn after which a query begins to read if the user names `point` as its beginning."""
    first, received = _ends(reader)
    if point in {EARLIEST, LATEST}:
        return first if point == EARLIEST else received
    if isinstance(point, Lsn | Position):
        return point if isinstance(point, Lsn) else Lsn.at(point, change_no)
    return _before(_entries(reader, first), _contiguous(point), first)


def last_in_relay(reader: RelayReader, point: Point | str, *, change_no: int) -> Lsn:
    """Returns the Lsn up to which a query reads if the user names `point` as its end. It may be the Lsn of a row."""
    first, received = _ends(reader)
    if point in {EARLIEST, LATEST}:
        return first if point == EARLIEST else received
    if isinstance(point, Position):
        return Lsn.at(point, change_no)
    if isinstance(point, Lsn):
        found = reader.find(point)
        return found.transaction.lsn if found else point
    cut, last = RangeFilter(LogRange(end=_contiguous(point))), first
    for transaction in _entries(reader, first):
        if cut.takes(transaction):
            last = transaction.lsn
        if cut.ended:
            break
    return last


def first_on_server(server: SourceConfig, point: Point | str) -> Lsn:
    """Returns the Lsn after which a stream begins to read if the user names `point` as its beginning.

    This function is for a stream with a temporary relay, in whose Lsns the number of failovers is always 0.
    """
    if isinstance(point, Lsn | Position):
        return point if isinstance(point, Lsn) else Lsn.at(point)
    if isinstance(point, str):
        with closing(connect(server)) as session:
            place = position(session)[0] if point == LATEST else Position(binary_logs(session)[0][0], FIRST_EVENT)
        return Lsn.at(place)
    begin = begin_of(server, point)
    found = pieces(server_blocks(server, begin))
    return _before((piece.transaction for piece, _ in found), _contiguous(point), Lsn.at(begin))


def _before(transactions: Iterable[Transaction], start: Point, last: Lsn) -> Lsn:
    """Returns the end of the last transaction before the range that begins at `start`; `last` if there is none."""
    cut = RangeFilter(LogRange(start))
    for transaction in transactions:
        if cut.takes(transaction):
            break
        last = transaction.lsn
    return last


def _entries(reader: RelayReader, first: Lsn) -> Iterable[Transaction]:
    return (entry.transaction for entry in reader.entries(first) if not entry.transaction.is_empty)


def _ends(reader: RelayReader) -> tuple[Lsn, Lsn]:
    first, received = reader.first, reader.received
    if first is None or received is None:
        raise ConfigError("bad-option", "the relay is empty", todo="Start the replicator of this relay")
    return first, received


def _contiguous(point: Point | str) -> Point:
    """Returns the point. Refuses a GTID set: other transactions may lie between its transactions."""
    if isinstance(point, GtidSet | str):
        what = f"a relay cannot be read from or to the GTID set {point}"
        raise ConfigError("bad-option", what, todo="Name an Lsn, a position, one GTID or a time")
    return point
