"""The tables that are tried again after a halt, until they have caught up or are halted again.

The lag does not count the changes of waiting tables. A table that was halted for hours has changes that are hours old.
At each start, and after `pidts ddl retry`, the table is tried again. Without `RetriedTables`, its old changes would
count at once:

    09:00  table t is halted, the lag of all other tables is 0
    12:00  the run is restarted, and t is tried again: the lag is three hours, and an alert about the lag is sent
    12:00  t is halted again; the alert about the halt waits for the next document

So a table that is tried again still counts as a waiting table at first. It counts like other tables when it has applied
all log that the relay had at the beginning of the retry. `RetriedTables` outlives attempts: an attempt may end before
the table has caught up, for example because another table was halted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from pidts.model import Halt, Lsn, TableName
from pidts.plan import PlanState


class RetriedTables:
    """The tables of one source that are tried again, over the attempts of one run."""

    def __init__(self) -> None:
        self._halted: frozenset[TableName] = frozenset()
        """The tables that were halted at the last call of `look`."""
        self._goals: dict[TableName, Lsn] = {}
        """For each table that is tried again: the end of the relay at the time of the retry."""
        self._begins = self._is_level = False

    @property
    def is_any(self) -> bool:
        """Whether some table is tried again."""
        return bool(self._goals)

    @property
    def tables(self) -> Collection[TableName]:
        """The tables that are tried again, as the last call of `look` has found them."""
        return self._goals.keys()

    def may_delay_others(self, halted: Collection[TableName]) -> bool:
        """Whether a batch may have old changes of a retried table together with new changes of other tables.

        `halted` are the tables that are halted at the end of the batch. There are three such cases:

        - A retried table is no longer at an earlier place than the other tables, so they share slices of the batch.
        - An attempt has begun, and tries again the tables that were halted before it. Their Lsns are not known yet.
        - Since the last call of `look`, a ddl command has let a table continue that was halted then.
        """
        return self._is_level or (self._begins and bool(self._halted)) or not self._halted.issubset(halted)

    def begin_attempt(self, recorded: Iterable[Halt]) -> None:
        """Begins another attempt; `recorded` are the halts that the target had recorded before it."""
        self._halted |= {name for halt in recorded for name in halt.tables}
        self._begins = True

    def look(
        self, state: PlanState, halted: Collection[TableName], received: Lsn, *, is_level: bool
    ) -> dict[TableName, Lsn]:
        """Returns the tables that are tried again and have not caught up, each with its Lsn.

        `halted` are the tables that are halted now. `is_level`: the target has all changes, except changes of tables
        that wait at an earlier place.
        """
        for name in self._halted - frozenset(halted):
            self._goals.setdefault(name, received)
        self._halted, self._begins = frozenset(halted), False
        exceptions = state.exceptions
        self._goals = {
            name: goal
            for name, goal in self._goals.items()
            if name not in self._halted and state.at(name) < goal and (name in exceptions or not is_level)
        }
        self._is_level = not self._goals.keys() <= exceptions.keys()
        return {name: state.at(name) for name in self._goals}
