"""What an operator sees of a task's halted tables, and orders about its schema changes, over all of its sources."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace

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
    TableName,
    Where,
)
from pidts.relay import RelayReader
from pidts.task.compose import target_of
from pidts.task.config import TaskConfig
from pidts.task.order_text import words
from pidts.task.waiting import Backlog, Held, backlogs, held_on

_TRANSACTION = frozenset(
    {"BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT", "SAVEPOINT", "RELEASE", "PREPARE", "XA"}
)
_ALONE = frozenset({OrderKind.SKIP, OrderKind.REVERT})
"""Orders that concern one shard, whatever the others wait for."""


_BEHIND_ANOTHER = "ddl-awaits-tables"
"""Of a halt: some tables of a statement stand before an earlier one."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A halt, or a schema change that an operator has ordered something about."""

    lsn: Lsn
    statement: str
    halt: Halt | None = None
    """Why it waits; None where nobody has said that it does."""
    order: DdlOrder | None = None
    journal: DdlJournal | None = None
    source: str = ""
    backlog: Backlog | None = None
    """What waits behind it, where that was counted."""

    @property
    def is_done(self) -> bool:
        """Whether the target has it."""
        return self.journal is not None and self.journal.state is DdlState.DONE

    @property
    def done_at(self) -> float:
        """When the target has got it, in seconds since 1970; 0 where it has not, or where nobody knows."""
        return self.journal.saved_at if self.journal is not None and self.is_done else 0.0

    @property
    def waits(self) -> bool:
        """Whether something stands still for it."""
        return self.halt is not None and not self.is_done

    @property
    def is_shard(self) -> bool:
        """Whether it waits for other shards."""
        return self.waits and self.halt is not None and is_of_shards(self.halt)

    @property
    def place(self) -> tuple[str, Lsn, tuple[TableName, ...]]:
        """Tells it apart from all others."""
        return self.source, self.lsn, self.tables

    @property
    def tables(self) -> tuple[TableName, ...]:
        """Those that stand still, by the source's names; none: all of the source's."""
        return self.halt.tables if self.halt is not None else ()


def is_of_rows(halt: Halt) -> bool:
    """Whether it is rows that were refused; then there is no statement to order anything about."""
    return bool(halt.tables) and not halt.statement


def is_of_shards(halt: Halt) -> bool:
    """Whether nothing has failed, and the change waits for those of other shards."""
    return halt.code in {"shard-awaits", "shards-disagree", "shard-structure"}


def has_failed(halt: Halt) -> bool:
    """Whether something was refused, and may be taken when it is tried again."""
    return not is_of_shards(halt) and halt.code != _BEHIND_ANOTHER


class OrderDesk:
    """For one task; the record on its target is all that it shares with a run."""

    def __init__(self, parts: Sequence[TaskConfig], target: TargetSession) -> None:
        self._parts = {part.source.source_id: part for part in parts}
        self._name, self._target = parts[0].name, target

    def part(self, source: str) -> TaskConfig:
        """The task's configuration for one of its sources."""
        if source not in self._parts:
            todo = f"One of {', '.join(self._parts)}"
            raise ConfigError("unknown-name", f"the task has no source {source!r}", todo=todo)
        return self._parts[source]

    def standing(self) -> list[Standing]:
        """Everything that waits, and all schema changes about which something was ordered."""
        return [one for source in self._parts for one in self._standing(source)]

    def find(self, place: str = "", source: str = "", table: str = "") -> Standing:
        """The one that is meant: by its Lsn, by `file:position` before or behind it, or the only one that waits."""
        waiting = [one for one in self.matching(source, table) if one.halt is not None and not is_of_rows(one.halt)]
        if place:
            return _demand_open(self._at(place, source, waiting))
        # Of one that only waits for another, nobody has to decide.
        meant = [one for one in waiting if one.halt is not None and one.halt.code != _BEHIND_ANOTHER] or waiting
        if len(meant) != 1:
            raise _which("schema change", meant)
        return meant[0]

    def matching(self, source: str = "", table: str = "") -> list[Standing]:
        """What waits, of a source and of a table that is called so there or on the target."""
        if source:
            self.part(source)
        found = [one for one in self.standing() if one.waits and source in {"", one.source}]
        if table:
            found = [one for one in found if self.is_called(one, table)]
        return found

    def is_called(self, one: Standing, table: str) -> bool:
        """Whether a table of it has this name, on its source or on the target."""
        return table in {str(name) for name in (*one.tables, *self.landed(one))}

    def landed(self, one: Standing) -> tuple[TableName, ...]:
        """The target's names of its tables."""
        rules = self._parts[one.source].rules
        return tuple(dict.fromkeys(map(rules.landed_name, one.tables)))

    def give(self, at: Standing, kind: OrderKind, statements: tuple[str, ...] = ()) -> None:
        """Put it on record, where a run finds it."""
        postgres = self.part(at.source).target.type == "postgresql"
        for sql in statements:
            _demand_orderable(sql, words(sql, postgres=postgres))
        self.demand_heard(at, kind)
        if kind not in _ALONE and at.is_shard:
            self._demand_only(at)
        with self._transaction():
            self._target.halts.give(self._name, at.source, DdlOrder(lsn=at.lsn, kind=kind, statements=statements))

    def demand_heard(self, at: Standing, kind: OrderKind) -> None:
        """An order that nobody would ever take would stand, and be taken for one about the others' change."""
        if kind not in _ALONE and at.halt is not None and at.halt.code == "shard-structure":
            raise ConfigError(
                "shard-comes",
                f"{', '.join(map(str, at.tables))} comes with the statement at {at.lsn}, and waits for a place for its "
                "rows; nothing is run for it, whatever is ordered",
                where=Where(source=at.source),
                todo="Make the change that gives them a place on the other shards, or order that about theirs; or say "
                "pidts ddl skip, where its rows fit all the same",
            )

    def _demand_only(self, at: Standing) -> None:
        """What is ordered about one shard's change is run for all that have come with it, and so for nobody else."""
        for other in self.standing():
            order = other.order
            stands = order is not None and not order.taken and order.kind not in _ALONE
            if stands and other.is_shard and other.place != at.place and {*self.landed(other)} & {*self.landed(at)}:
                place = f"--source {other.source} --at {other.lsn}"
                raise ConfigError(
                    "order-stands",
                    f"something is ordered already about a change of the same table, at {other.source}: {other.lsn}",
                    where=Where(source=other.source),
                    todo=f"Give one order about them; take that one back with: pidts ddl revert TASK {place}",
                )

    def lift(self, rows: Iterable[Standing]) -> None:
        """Have rows that were refused tried again: a run that finds their halts gone from the record does so."""
        with self._transaction():
            for one in rows:
                if one.halt is not None:
                    self._target.halts.resolve(self._name, one.source, [one.halt.place])

    def held(self) -> list[Held]:
        """What stands behind, source by source."""
        return [held_on(self._target, part) for part in self._parts.values()]

    def counted(self, standing: Sequence[Standing]) -> list[Standing]:
        """With what waits behind each, where the relay is on this machine."""
        found = dict(enumerate(standing))
        for source, part in self._parts.items():
            mine = [number for number, one in found.items() if one.source == source and one.waits and one.tables]
            counted = backlogs(part, [(found[number].tables, found[number].lsn) for number in mine])
            found |= {number: replace(found[number], backlog=one) for number, one in zip(mine, counted, strict=True)}
        return list(found.values())

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._target.begin()
        try:
            yield
            self._target.commit()
        except BaseException:
            self._target.rollback()
            raise

    def _standing(self, source: str) -> Iterator[Standing]:
        halts = [self._placed(halt, source) for halt in self._target.halts.halts(self._name, source)]
        yield from (Standing(halt.lsn, "", halt, source=source) for halt in halts if is_of_rows(halt))
        changes = {halt.lsn: halt for halt in halts if not is_of_rows(halt)}
        orders = {order.lsn: order for order in self._target.halts.orders(self._name, source)}
        for lsn in sorted({*changes, *orders}):
            yield self._looked_at(source, lsn, changes.get(lsn), orders.get(lsn))

    def _placed(self, halt: Halt, source: str) -> Halt:
        """With the source's own name of the place, where that was not told and the relay is here."""
        if halt.position:
            return halt
        config = self.part(source)
        try:
            with closing(RelayReader(config.relay, source)) as relay:
                return replace(halt, position=str(relay.position(halt.lsn) or ""))
        except PidtsError:
            return halt

    def _looked_at(self, source: str, lsn: Lsn, halt: Halt | None, order: DdlOrder | None) -> Standing:
        journal = self._target.read_journal(self._name, source, lsn)
        statement = halt.statement if halt else journal.statement if journal else ""
        if not statement:
            entry = self._entry(source, lsn)
            statement = entry.transaction.ddl or "" if entry is not None else ""
        return Standing(lsn, statement, halt, order, journal, source)

    def _at(self, place: str, source: str, waiting: Sequence[Standing]) -> Standing:
        found = []
        for name in [source] if source else self._parts:
            lsn = self._lsn(place, name)
            mine = [one for one in waiting if (one.source, one.lsn) == (name, lsn)]
            found += mine or self._in_relay(name, lsn)
        if not found:
            raise ConfigError(
                "no-such-ddl",
                f"the relay has no schema change at {place}",
                where=Where(source=source or ", ".join(self._parts)),
                todo="See: pidts ddl list, pidts events",
            )
        # The same place may be one of several sources; the one at which something waits is meant.
        meant = [one for one in found if one in waiting] or found
        if len(meant) > 1:
            raise _which("schema change", meant)
        return meant[0]

    def _lsn(self, place: str, source: str) -> Lsn:
        try:
            return Lsn.parse(place)
        except ValueError:
            pass
        rows = self._target.checkpoints(self._name, source)
        try:
            return Lsn.at(Position.parse(place), rows[0].lsn.change_no if rows else 0)
        except ValueError:
            what = f"{place!r} is no place in the log"
            raise ConfigError("bad-value", what, todo="An Lsn as `pidts ddl list` shows it, or file:position") from None

    def _in_relay(self, source: str, lsn: Lsn) -> list[Standing]:
        entry = self._entry(source, lsn)
        if entry is None:
            return []
        at = entry.transaction.lsn
        return [self._looked_at(source, at, None, self._target.halts.order(self._name, source, at))]

    def _entry(self, source: str, lsn: Lsn) -> LogEntry | None:
        """That ends there, or begins there."""
        try:
            with closing(RelayReader(self.part(source).relay, source)) as relay:
                entry = relay.find(lsn)
                if entry is not None and entry.transaction.ddl and entry.transaction.lsn == lsn:
                    return entry
                following = next(iter(relay.entries(lsn)), None)
        except PidtsError:
            return None  # there is no relay here, or none that reaches there
        return following if following is not None and following.transaction.ddl else None


@contextmanager
def order_desk(parts: Sequence[TaskConfig]) -> Iterator[OrderDesk]:
    """Over a session of its own."""
    config = parts[0]
    with closing(target_of(config).connect()) as target:
        if not any(target.checkpoints(part.name, part.source.source_id) for part in parts):
            raise ConfigError(
                "task-not-begun", f"task {config.name} has not begun on this target", todo=f"pidts run {config.path}"
            )
        target.prepare_meta()  # one of an earlier version may lack what orders are put on record in
        yield OrderDesk(parts, target)


def _demand_open(one: Standing) -> Standing:
    if one.is_done:
        raise ConfigError("ddl-is-done", f"the target has the schema change at {one.lsn} already")
    return one


def _which(what: str, found: Sequence[Standing]) -> ConfigError:
    if not found:
        return ConfigError("no-such-ddl", f"no {what} waits for an operator", todo="See: pidts ddl list")
    places = "; ".join(f"--source {one.source} --at {one.lsn}" for one in found)
    return ConfigError("no-such-ddl", f"{len(found)} {what}s wait", todo=f"Say which one is meant: {places}")


def _demand_orderable(sql: str, said: Sequence[str]) -> None:
    if not _TRANSACTION.isdisjoint(said[:1]):
        raise ConfigError(
            "bad-order",
            f"what is ordered is part of a transaction that is not its own, so it can hold no {said[0]}",
            todo="Leave it out: on PostgreSQL all of an order is one transaction, elsewhere each statement is",
        )
    if said[:1] == ("LOAD",) and "LOCAL" in said:
        raise ConfigError(
            "bad-order", f"the target would ask for a file of this machine, and gets none: {sql}", todo="Leave it out"
        )
