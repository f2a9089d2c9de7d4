"""What an operator sees of a task's halted tables, and orders about its schema changes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from pidts.apply import TargetSession
from pidts.model import (
    ConfigError,
    DdlJournal,
    DdlOrder,
    DdlState,
    Halt,
    LogEntry,
    Lsn,
    OrderKind,
    PidtsError,
    Position,
    Where,
)
from pidts.relay import RelayReader
from pidts.task.compose import target_of
from pidts.task.config import TaskConfig

_TRANSACTION = re.compile(r"\W*(BEGIN|START|COMMIT|END|ROLLBACK|ABORT|SAVEPOINT|RELEASE|PREPARE|XA)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Standing:
    """One schema change that an operator has to do with."""

    lsn: Lsn
    statement: str
    halt: Halt | None = None
    """Why it waits; None where nobody has said that it does."""
    order: DdlOrder | None = None
    journal: DdlJournal | None = None

    @property
    def is_done(self) -> bool:
        """Whether the target has it."""
        return self.journal is not None and self.journal.state is DdlState.DONE


class OrderDesk:
    """For one task; the record on its target is all that it shares with a run."""

    def __init__(self, config: TaskConfig, target: TargetSession) -> None:
        self._config, self._target = config, target
        self._names = config.name, config.source.source_id
        target.prepare_meta()

    def halts(self) -> list[Halt]:
        """All, those of rows too."""
        return self._target.halts.halts(*self._names)

    def standing(self) -> list[Standing]:
        """Schema changes that wait, and those about which something was ordered."""
        halts = {halt.lsn: halt for halt in self.halts() if halt.statement}
        orders = {order.lsn: order for order in self._target.halts.orders(*self._names)}
        return [self._looked_at(lsn, halts.get(lsn), orders.get(lsn)) for lsn in sorted({*halts, *orders})]

    def find(self, place: str) -> Standing:
        """The one that is meant: by its Lsn, by `file:position` before or behind it, or the only one that waits."""
        waiting = [one for one in self.standing() if one.halt is not None and not one.is_done]
        if place:
            lsn = self._lsn(place)
            found = next((one for one in waiting if one.lsn == lsn), None) or self._in_relay(lsn, place)
        elif len(waiting) == 1:
            found = waiting[0]
        else:
            what = "no schema change waits" if not waiting else f"{len(waiting)} schema changes wait"
            places = ", ".join(str(one.lsn) for one in waiting)
            todo = f"Say which one is meant: --at {places}" if waiting else "See: pidts ddl list"
            raise ConfigError("no-such-ddl", f"{what} for an operator", todo=todo)
        if found.is_done:
            raise ConfigError("ddl-is-done", f"the target has the schema change at {found.lsn} already")
        return found

    def give(self, at: Standing, kind: OrderKind, statements: tuple[str, ...]) -> None:
        """Put it on record, where a run finds it."""
        for sql in statements:
            if _TRANSACTION.match(sql):
                raise ConfigError(
                    "bad-order",
                    f"what is ordered is part of a transaction that is not its own, so it can hold no {sql.split()[0]}",
                    todo="Leave it out: on PostgreSQL all of an order is one transaction, elsewhere each statement is",
                )
        self._target.begin()
        try:
            self._target.halts.give(*self._names, DdlOrder(lsn=at.lsn, kind=kind, statements=statements))
            self._target.commit()
        except BaseException:
            self._target.rollback()
            raise

    def _looked_at(self, lsn: Lsn, halt: Halt | None, order: DdlOrder | None) -> Standing:
        journal = self._target.read_journal(*self._names, lsn)
        statement = halt.statement if halt else journal.statement if journal else ""
        if not statement:
            entry = self._entry(lsn)
            statement = entry.transaction.ddl or "" if entry is not None else ""
        return Standing(lsn, statement, halt, order, journal)

    def _lsn(self, place: str) -> Lsn:
        try:
            return Lsn.parse(place)
        except ValueError:
            pass
        rows = self._target.checkpoints(*self._names)
        try:
            return Lsn.at(Position.parse(place), rows[0].lsn.change_no if rows else 0)
        except ValueError:
            what = f"{place!r} is no place in the log"
            raise ConfigError("bad-value", what, todo="An Lsn as `pidts ddl list` shows it, or file:position") from None

    def _in_relay(self, lsn: Lsn, place: str) -> Standing:
        entry = self._entry(lsn)
        if entry is None:
            raise ConfigError(
                "no-such-ddl",
                f"the relay has no schema change at {place}",
                where=Where(source=self._config.source.source_id, file=str(self._config.relay)),
                todo="See: pidts ddl list, pidts events",
            )
        return self._looked_at(entry.transaction.lsn, None, self._target.halts.order(*self._names, lsn))

    def _entry(self, lsn: Lsn) -> LogEntry | None:
        """That ends there, or begins there."""
        try:
            with closing(RelayReader(self._config.relay, self._config.source.source_id)) as relay:
                entry = relay.find(lsn)
                if entry is not None and entry.transaction.ddl and entry.transaction.lsn == lsn:
                    return entry
                following = next(iter(relay.entries(lsn)), None)
        except PidtsError:
            return None  # there is no relay here, or none that reaches there
        return following if following is not None and following.transaction.ddl else None


@contextmanager
def order_desk(config: TaskConfig) -> Iterator[OrderDesk]:
    """Over a session of its own."""
    with closing(target_of(config).connect()) as target:
        if not target.checkpoints(config.name, config.source.source_id):
            raise ConfigError(
                "task-not-begun", f"task {config.name} has not begun on this target", todo=f"pidts run {config.path}"
            )
        yield OrderDesk(config, target)
