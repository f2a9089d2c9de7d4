"""Finds the log file of a server in which a range begins, from the first events of a few files.

Each file's first event contains the time at which the file was created. The next event contains the GTIDs of the
transactions in all earlier files. PiDTS does not give the server the GTID of the start, since the server would then
send only the wanted transactions. PiDTS also needs the transaction before the first wanted transaction, and the XA
transactions that were prepared earlier.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime

from pidts.binlog.events import EventType
from pidts.binlog.gtid_events import gtid_list, previous_gtids
from pidts.binlog.walk import LogWalker
from pidts.excerpt.files import FIRST_EVENT
from pidts.excerpt.range import Point
from pidts.model import ConfigError, GtidSet, Halted, Lsn, MariaDbGtidSet, MySqlGtid, MySqlGtidSet, Position
from pidts.source.connection import SourceConfig, connect, server_info
from pidts.source.dump import BinlogStream
from pidts.source.position import binary_logs
from pidts.source.replica import reader_name


@dataclass(frozen=True, slots=True)
class _LogHead:
    created: int
    before: GtidSet
    """The transactions in all files before this file, existing or purged."""


def begin_of(server: SourceConfig, start: Point | None, *, complete: bool = False) -> Position:
    """Returns the place at which reading has to begin for a range after `start`.

    The place is the beginning of a file, or `start` itself if `start` is a position. With `complete`, raises if the
    server has purged log after a time `start`.
    """
    if isinstance(start, Position):
        return start
    with closing(connect(server)) as session:
        files = [name for name, _ in binary_logs(session)]
        info = server_info(session)
    if isinstance(start, MariaDbGtidSet | MySqlGtidSet | MySqlGtid):
        if info.is_mariadb != isinstance(start, MariaDbGtidSet):
            raise ConfigError(
                "bad-value",
                f"{start} is no GTID of a {info.product} server",
                todo=f"Give a GTID as a {info.product} server writes it, or a position: FILE:BYTE",
            )
        if not info.gtid_mode:
            raise ConfigError(
                "bad-value",
                "this server gives its transactions no GTIDs (gtid_mode)",
                todo="Give a position: FILE:BYTE",
            )
    if isinstance(start, Lsn):
        # `start` may be the Lsn of a row, and a row cannot be read without the events before it.
        return Position.of(files[-1].rpartition(".")[0], start.log_index, FIRST_EVENT)
    if start is None:
        return Position(files[0], FIRST_EVENT)
    return Position(
        _last(files, lambda file: _is_before(_head(server, file), start), start, server, complete=complete), FIRST_EVENT
    )


def _last(
    files: list[str], is_before: Callable[[str], bool], start: Point, server: SourceConfig, *, complete: bool
) -> str:
    """Returns the last file that begins at or before the start.

    If the start is a time before all files, returns the first file; with `complete`, raises if earlier files were
    purged. `is_before` says whether a file begins at or before the start. If a file does, all earlier files do, too.
    """
    low, high = 0, len(files)
    while low < high:
        middle = (low + high) // 2
        if is_before(files[middle]):
            low = middle + 1
        else:
            high = middle
    was_purged = int(files[0].rpartition(".")[2]) > 1
    if low == 0 and (not isinstance(start, datetime) or (complete and was_purged)):
        what = f"the source no longer has all log after {start}: {files[0]} is its oldest log file"
        todo = "Read the older files, if they are kept somewhere, or begin at a later place"
        raise Halted("position-lost", what, where=server.where, todo=todo)
    return files[max(low - 1, 0)]


def _is_before(head: _LogHead, start: Point) -> bool:
    if isinstance(start, datetime):
        # The previous file may also have transactions of the second in which this file was created.
        return head.created < start.timestamp()
    if isinstance(start, MySqlGtid):
        return not head.before.contains(start)
    if isinstance(start, MariaDbGtidSet):
        return isinstance(head.before, MariaDbGtidSet) and head.before.issubset(start)
    return isinstance(start, MySqlGtidSet) and isinstance(head.before, MySqlGtidSet) and head.before.issubset(start)


def _head(server: SourceConfig, file: str) -> _LogHead:
    walker, created = LogWalker(file, FIRST_EVENT), 0
    replica = reader_name(server.source_id)
    with BinlogStream(server, Position(file, FIRST_EVENT), non_blocking=True, replica=replica) as stream:
        while not stream.ended:
            for raw in stream.read_burst():
                event = walker.feed(raw)
                if event.type == EventType.FORMAT_DESCRIPTION:
                    created = event.timestamp
                elif event.type == EventType.PREVIOUS_GTIDS:
                    return _LogHead(created, previous_gtids(event))
                elif event.type == EventType.GTID_LIST:
                    return _LogHead(created, gtid_list(event))
                elif not event.may_be_ignored:
                    return _LogHead(created, MySqlGtidSet())
    return _LogHead(created, MySqlGtidSet())
