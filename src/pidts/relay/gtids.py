"""The executed set, kept up to date at the pace of the log.

Adding one transaction to an immutable set costs as much as everything else that is done for a transaction. The log
numbers nearly all transactions one after another, so what is kept open here is one interval per source, and the set is
made when somebody asks.
"""

from __future__ import annotations

from pidts.model import MySqlGtidSet, parse_gtid, parse_gtid_set


class ExecutedGtids:
    """What was executed up to some entry; None until it is known."""

    def __init__(self, known: str | None) -> None:
        self._known = known
        self._open: dict[str, list[int]] = {}
        self._latest: dict[str, str] = {}

    def add(self, gtid: str) -> None:
        """One more transaction; an empty text is one without a GTID."""
        if not gtid or self._known is None:
            return
        source, colon, number = gtid.rpartition(":")
        if colon:
            self._extend(source, int(number), int(number))
        else:
            self._latest[gtid.partition("-")[0]] = gtid

    def add_stretch(self, prefix: str, first: int, last: int) -> None:
        """Transactions with consecutive GTIDs; `prefix` is what stands before their numbers."""
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
        """The log itself says what was executed before here."""
        self._known = gtid_set
        self._open.clear()
        self._latest.clear()

    @property
    def known(self) -> bool:
        """Whether `text` is a set."""
        return self._known is not None

    @property
    def text(self) -> str | None:
        """The set in its server's words."""
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
