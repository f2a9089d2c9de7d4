"""Finds GTID and time of changes by their Lsns, for an operator who looks at held changes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from pidts.model import Lsn, PidtsError, SourceTransaction
from pidts.relay import RelayReader


@dataclass(frozen=True, slots=True)
class RelayTransactions:
    """Finds the transactions (GTID and time) of changes in the index of a relay."""

    relay: Path
    source_id: str

    def __call__(self, lsns: Sequence[Lsn]) -> list[SourceTransaction]:
        """Returns the transaction of each change; it is empty if the relay does not have the change."""
        if not lsns:
            return []
        order = sorted(range(len(lsns)), key=lsns.__getitem__)
        found, at = [SourceTransaction()] * len(lsns), 0
        try:
            with closing(RelayReader(self.relay, self.source_id)) as relay:
                for entry in relay.entries(lsns[order[0]]):
                    made = entry.transaction
                    while at < len(order) and lsns[order[at]] < made.lsn:
                        found[order[at]] = SourceTransaction(made.gtid, made.timestamp)
                        at += 1
                    if at == len(order):
                        break
        except PidtsError:
            return found  # changes are held even if their GTIDs and times cannot be found
        return found
