"""Maintains the set of executed GTIDs while the log is received.

Adding each transaction to an immutable set would double the time for a transaction. Nearly all transactions in a log
have consecutive numbers. So this module extends one interval for each server UUID, or remembers the last GTID of each
MariaDB domain. It builds the set only when a caller needs it.
"""

from __future__ import annotations

from pidts.model import MySqlGtidSet, parse_gtid, parse_gtid_set


class ExecutedGtids:
    """The GTIDs that the source has executed up to an entry; they may be unknown until `learn` is called."""

    def __init__(self, known: str | None) -> None:
        self._known = known
        self._open: dict[str, list[int]] = {}
        self._latest: dict[str, str] = {}

    def add(self, gtid: str) -> None:
        """Adds a transaction. An empty text is a transaction without a GTID."""
        if not gtid or self._known is None:
            return
        source, colon, number = gtid.rpartition(":")
        if colon:
            self._extend(source, int(number), int(number))
        else:
            self._latest[gtid.partition("-")[0]] = gtid

    def add_range(self, prefix: str, first: int, last: int) -> None:
        """Adds transactions with consecutive GTIDs; `prefix` is the text before their numbers."""
        if self._known is None:
            return
        if prefix.endswith(":"):
            self._extend(prefix[:-1], first, last)
        else:
            self._latest[prefix.partition("-")[0]] = f"{prefix}{last}"

    def _extend(self, source: str, first: int, last: int) -> None:
        interval = self._open.get(source)
        if interval is not None and first == interval[1] + 1:
            interval[1] = last
            return
        if interval is not None:
            self._fold()
        self._open[source] = [first, last]

    def learn(self, gtid_set: str) -> None:
        """Sets the GTIDs that the source has executed so far, as read from the log."""
        self._known = gtid_set
        self._open.clear()
        self._latest.clear()

    @property
    def known(self) -> bool:
        """Whether the executed GTIDs are known."""
        return self._known is not None

    @property
    def text(self) -> str | None:
        """Returns the set in the server's notation; None if it is not known."""
        self._fold()
        return self._known

    def _fold(self) -> None:
        if self._known is None:
            return
        if self._latest:
            positions = parse_gtid_set(self._known, mariadb=True)
            for gtid in self._latest.values():
                positions = positions.add(parse_gtid(gtid))
            self._known = str(positions)
        if self._open:
            intervals = ",".join(f"{source}:{first}-{last}" for source, (first, last) in self._open.items())
            self._known = str(MySqlGtidSet.parse(f"{self._known},{intervals}"))
        self._latest.clear()
        self._open.clear()
