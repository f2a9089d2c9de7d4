"""The changes that block tables of a task, over all of its sources, and the ddl commands for these changes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial

from pidts.apply import TargetSession
from pidts.apply.due_copies import put_due, recorded_due
from pidts.model import (
    CommandKind,
    ConfigError,
    DdlCommand,
    DdlJournal,
    DdlState,
    Halt,
    LogEntry,
    Lsn,
    PidtsError,
    Position,
    SourceTablesKey,
    TableName,
    Where,
)
from pidts.model.advice import LIST, SKIP, with_place
from pidts.relay import RelayReader
from pidts.task.config.task_file import TaskConfig
from pidts.task.operate.backlog import (
    Backlog,
    CountingTime,
    HeldTablesOfSource,
    NextSchemaChange,
    backlogs,
    load_held_tables,
    next_schema_changes,
)
from pidts.task.operate.command_parser import words

_TRANSACTION = frozenset(
    {"BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT", "SAVEPOINT", "RELEASE", "PREPARE", "XA"}
)
_THEN_COPIES = re.compile(r"\b(?:Then|then|and) copy the table\b again:")
"""A part of the advice of halts at statements after which rows of the target have other values than on the source."""
_ALONE = frozenset({CommandKind.SKIP, CommandKind.REVERT})
"""The ddl commands that concern one shard only."""

_OTHER_VALUES = frozenset({CommandKind.SKIP, CommandKind.REPLACE})
"""The ddl commands after which rows may lack the values that the source's statement has given them."""

AS_BEFORE = " (recorded before this start; the task has not reached this place again)"

_AFTER_ANOTHER = "ddl-awaits-tables"
"""The code of a halt at a statement that names tables which are still blocked on an earlier statement."""


@dataclass(frozen=True, slots=True)
class BlockedChange:
    """A change of rows or of the schema that blocks tables, or a schema change with a ddl command."""

    lsn: Lsn
    statement: str
    halt: Halt | None
    """The reason why tables are blocked; None if the target records no halt."""
    command: DdlCommand | None = None
    journal: DdlJournal | None = None
    source: str = ""
    backlog: Backlog | None = None
    """The log of the blocked tables after the change; None if it was not counted."""
    next_change: NextSchemaChange | None = None
    """The schema change that waits behind refused rows; None if there is none, or if it was not looked for."""

    @property
    def is_done(self) -> bool:
        """Whether the target has this schema change."""
        return self.journal is not None and self.journal.state is DdlState.DONE

    @property
    def done_at(self) -> float:
        """When the target got the change, in seconds since 1970; 0 if it is not known."""
        return self.journal.saved_at if self.journal is not None and self.is_done else 0.0

    @property
    def is_blocked(self) -> bool:
        """Whether tables are blocked on this change."""
        return self.halt is not None and not self.is_done

    @property
    def is_decided(self) -> bool:
        """Whether an operator has given a ddl command for the change, and no run has tried to carry it out yet."""
        return self.command is not None and self.is_blocked and self.halt is not None and self.halt.is_decided

    @property
    def waits_for_shards(self) -> bool:
        """Whether the schema change waits for other shards."""
        return self.is_blocked and self.halt is not None and is_waiting_for_shards(self.halt)

    @property
    def place(self) -> tuple[str, Lsn, tuple[TableName, ...]]:
        """The source, the Lsn and the tables, which together identify the change."""
        return self.source, self.lsn, self.tables

    @property
    def tables(self) -> tuple[TableName, ...]:
        """The blocked tables, with their names on the source; empty if all tables of the source are blocked."""
        return self.halt.tables if self.halt is not None else ()


@dataclass(frozen=True, slots=True)
class DueCopy:
    """A table that has to be copied again."""

    table: TableName
    lsn: Lsn
    """The place of the schema change at which an operator's ddl command was carried out; for a shard, perhaps in the
    log of another shard's source.
    """
    into_zone: str | None = None
    """The zone of the target, whose tables cannot be copied again; None: the target is not a zone."""

    def to_json(self) -> dict[str, str]:
        """Returns plain values for JSON."""
        return {"table": str(self.table), "lsn": str(self.lsn)}


def leaves_old_values(halt: Halt, kind: CommandKind, statements: Sequence[str]) -> bool:
    """Whether the advice of a halt is to give this ddl command, and then to copy the tables again.

    Other statements than the printed ones may give the rows the source's values.
    """
    is_advised = kind is CommandKind.SKIP or (kind is CommandKind.REPLACE and tuple(statements) == halt.instead)
    return is_advised and _THEN_COPIES.search(halt.todo) is not None


def is_refused_rows(halt: Halt) -> bool:
    """Whether the target refused rows. Such a halt has no statement, so no ddl command can be given for it."""
    return bool(halt.tables) and not halt.statement


def is_waiting_for_shards(halt: Halt) -> bool:
    """Whether the change has not failed, but waits for other shards or for a ddl command."""
    return halt.code in {"shard-awaits", "shards-disagree", "shard-structure", "shard-no-place"}


def is_joining(halt: Halt) -> bool:
    """Whether a table joins a merged table that lacks some of the joining table's columns."""
    return halt.code in {"shard-structure", "shard-no-place"}


def needs_operator(halt: Halt) -> bool:
    """Whether only an operator can resolve the halt: no event on the sources can."""
    return has_failed(halt) or halt.code in {"shards-disagree", "shard-no-place"}


def has_failed(halt: Halt) -> bool:
    """Whether the change was tried and refused. The next attempt to make the change may succeed."""
    return not is_waiting_for_shards(halt) and halt.code != _AFTER_ANOTHER


def as_before(halt: Halt) -> Halt:
    """Returns a recorded halt with the remark that an earlier run has recorded it."""
    return replace(halt, what=f"{halt.what.removesuffix(AS_BEFORE)}{AS_BEFORE}", is_earlier=True)


def is_tried_again(halt: Halt) -> bool:
    """Whether a run tries the failed change again, and does not know the result yet."""
    return has_failed(halt) and halt.is_earlier


class TaskCommands:
    """Reads the changes that block the tables of one task, and records ddl commands about them.

    The object needs no running task: a run and an operator share only the records on the target.
    """

    def __init__(self, parts: Sequence[TaskConfig], target: TargetSession) -> None:
        self._parts = {part.source.source_id: part for part in parts}
        self._name, self._target = parts[0].name, target

    def part(self, source: str) -> TaskConfig:
        """Returns the task's configuration for one of its sources."""
        if source not in self._parts:
            todo = f"Name one of {', '.join(self._parts)}"
            raise ConfigError("unknown-name", f"the task has no source {source!r}", todo=todo)
        return self._parts[source]

    def blocked_changes(self) -> list[BlockedChange]:
        """Returns all changes that block tables, and all schema changes with a ddl command."""
        return [one for source in self._parts for one in self._blocked_changes_of(source)]

    def find(self, place: str = "", source: str = "", table: str = "") -> BlockedChange:
        """Returns the schema change at `place`; without a place, the only schema change that blocks tables.

        The place is an Lsn, or the `file:position` at which the schema change begins or ends.
        """
        found = self.matching(source, table)
        waiting = [one for one in found if one.halt is not None and not is_refused_rows(one.halt)]
        if place:
            return _require_open(self._at(place, source, waiting))
        # A change that only waits for an earlier change needs no decision.
        meant = [one for one in waiting if one.halt is not None and one.halt.code != _AFTER_ANOTHER] or waiting
        if not meant:
            raise _none_waits(self._with_next_changes(found), source, table)
        if len(meant) > 1:
            raise _ambiguous(meant)
        return meant[0]

    def matching(self, source: str = "", table: str = "") -> list[BlockedChange]:
        """Returns the changes of this source that block a table with this name, on the source or on the target.

        An empty text stands for every source, or for every table. For a name without a schema, see `whole_name`.
        """
        if source:
            self.part(source)
        found = [one for one in self.blocked_changes() if one.is_blocked and source in {"", one.source}]
        if table:
            name = self.whole_name(table, found)
            found = [one for one in found if self.concerns(one, name)]
        return found

    def whole_name(self, table: str, blocked: Iterable[BlockedChange]) -> str:
        """Returns the whole name of the blocked table that is meant by a name without a schema.

        Tables with the same target table count as one table, and the result is the target's name. Raises if several
        blocked tables have the name. Any other text is returned unchanged.
        """
        blocked = list(blocked)
        if any(self.concerns(one, table) for one in blocked):
            return table
        found: dict[TableName, TableName] = {}
        for one in blocked:
            for name in one.tables:
                target = self._parts[one.source].rules.target_name(name)
                if table in {name.name, target.name}:
                    found.setdefault(target, name)
        if len(found) > 1:
            names = " or ".join(f"--table {shlex.quote(str(name))}" for name in found.values())
            raise ConfigError(
                "unknown-name", f"{len(found)} blocked tables are called {table}", todo=f"Name one of them: {names}"
            )
        return str(next(iter(found), table))

    def concerns(self, one: BlockedChange, table: str) -> bool:
        """Whether the change blocks a table of this name, on its source or on the target."""
        return table in {str(name) for name in (*one.tables, *self.target_tables(one))}

    def target_tables(self, one: BlockedChange) -> tuple[TableName, ...]:
        """Returns the names of the change's tables on the target."""
        rules = self._parts[one.source].rules
        return tuple(dict.fromkeys(map(rules.target_name, one.tables)))

    def give(self, at: BlockedChange, kind: CommandKind, statements: tuple[str, ...] = ()) -> None:
        """Records a ddl command on the target, where a run finds it."""
        postgres = self.part(at.source).target.type == "postgresql"
        for sql in statements:
            _require_allowed(sql, words(sql, postgres=postgres))
        self.require_effect(at, kind)
        if kind not in _ALONE and at.waits_for_shards:
            self._require_no_other_command(at)
        with self._transaction():
            self._target.meta.ddl_commands.give(
                self._name, at.source, DdlCommand(lsn=at.lsn, kind=kind, statements=statements)
            )
            self._mark_decided(at, kind)
            due = self._due_after(at, kind, statements)
            for source in self._parts:
                put_due(self._target, self._name, source, due.get(source, ()), (at.source, at.lsn))

    def _mark_decided(self, at: BlockedChange, kind: CommandKind) -> None:
        """Records whether the change's halt has a ddl command. A run may have replaced the halt since it was read."""
        for halt in self._target.meta.halts.read(self._name, at.source):
            if at.halt is not None and halt.place == at.halt.place:
                # After its command is withdrawn, a shard waits as before.
                is_decided = not (kind is CommandKind.REVERT and at.waits_for_shards)
                self._target.meta.halts.overwrite(self._name, at.source, replace(halt, is_decided=is_decided))

    def _due_after(
        self, at: BlockedChange, kind: CommandKind, statements: Sequence[str]
    ) -> Mapping[str, Collection[TableName]]:
        """Returns, for each source, the tables that have to be copied again after this command."""
        if at.halt is None or not leaves_old_values(at.halt, kind, statements):
            return {}
        return self.changed_tables(at, kind)

    def changed_tables(self, at: BlockedChange, kind: CommandKind) -> dict[str, set[TableName]]:
        """Returns, for each source, the tables whose rows on the target a ddl command of this kind may leave wrong.

        The statements of `replace` change the rows of all shards of a target table.
        """
        found = {at.source: {*at.tables}}
        if kind is CommandKind.REPLACE:
            targets = {*self.target_tables(at)}
            for _, key, name in self._target.meta.structures.tables(self._name):
                part = self._parts.get(key.source) if isinstance(key, SourceTablesKey) else None
                if part is not None and part.rules.target_name(name) in targets:
                    found.setdefault(part.source.source_id, set()).add(name)
        return found

    def due_copies(self, source: str) -> list[DueCopy]:
        """Returns the tables that have to be copied again, since a ddl command of a halt's advice is carried out."""
        found, zone = dict[TableName, DueCopy](), self.part(source).into_zone
        for table, of, lsn in sorted(recorded_due(self._target, self._name, source)):
            command = self._target.meta.ddl_commands.find(self._name, of, lsn)
            if command is not None and command.kind in _OTHER_VALUES and self._is_done(of, lsn):
                found.setdefault(table, DueCopy(table, lsn, zone))
        return list(found.values())

    def require_effect(self, at: BlockedChange, kind: CommandKind) -> None:
        """Raises if no run would carry out the ddl command for this schema change.

        Such a command would stay recorded, and a later run would use it for a change of the other shards.
        """
        if kind not in _ALONE and at.halt is not None and is_joining(at.halt):
            raise ConfigError(
                "shard-comes",
                f"{', '.join(map(str, at.tables))} joins the task with the statement at {at.lsn}. Rows of this table "
                "have columns that the target table still lacks. The target runs nothing for this statement, so a ddl "
                "command for it would have no effect",
                where=Where(source=at.source),
                todo="Add the missing columns on the other shards. If a schema change of those shards that adds the "
                "columns waits, give the ddl command for that change. If the rows of the new table fit without these "
                "columns, skip the statement itself: "
                f"{with_place(SKIP, at.source, str(at.lsn))}",
            )

    def _require_no_other_command(self, at: BlockedChange) -> None:
        """Raises if another shard of the target table has a ddl command: that command applies to all shards."""
        for other in self.blocked_changes():
            command = other.command
            is_open = command is not None and not command.taken and command.kind not in _ALONE
            if (
                is_open
                and other.waits_for_shards
                and other.place != at.place
                and {*self.target_tables(other)} & {*self.target_tables(at)}
            ):
                place = f"--source {shlex.quote(other.source)} --at {other.lsn}"
                raise ConfigError(
                    "order-stands",
                    "another shard of the target table already has a ddl command, which was not carried out yet: it is "
                    f"for the change at {other.lsn} of source {other.source}",
                    where=Where(source=other.source),
                    todo=f"Keep that command, or withdraw it first: pidts ddl revert TASK {place}",
                )

    def retry_rows(self, rows: Iterable[BlockedChange]) -> None:
        """Removes the halts of refused rows from the target's records, so that a run tries these rows again."""
        with self._transaction():
            for one in rows:
                if one.halt is not None:
                    self._target.meta.halts.resolve(self._name, one.source, [one.halt.place])

    def held_tables(self) -> list[HeldTablesOfSource]:
        """Returns the waiting tables of each source."""
        time = CountingTime(len(self._parts))
        return [load_held_tables(self._target, part, seconds=time.next()) for part in self._parts.values()]

    def with_backlogs(self, standing: Sequence[BlockedChange]) -> list[BlockedChange]:
        """Returns the changes with their backlogs; a backlog is None if its relay is not on this machine."""
        found = dict(enumerate(standing))
        mine_of: dict[str, list[int]] = {}
        for number, one in found.items():
            if one.is_blocked and one.tables:
                mine_of.setdefault(one.source, []).append(number)
        time = CountingTime(len(mine_of))
        for source, mine in mine_of.items():
            places = [(found[number].tables, found[number].lsn) for number in mine]
            counted = backlogs(self._parts[source], places, seconds=time.next())
            found |= {number: replace(found[number], backlog=one) for number, one in zip(mine, counted, strict=True)}
        return self._with_next_changes(found.values())

    def _with_next_changes(self, blocked: Iterable[BlockedChange]) -> list[BlockedChange]:
        found = list(blocked)
        mine_of: dict[str, list[int]] = {}
        for number, one in enumerate(found):
            if one.halt is not None and is_refused_rows(one.halt):
                mine_of.setdefault(one.source, []).append(number)
        time = CountingTime(len(mine_of))
        for source, mine in mine_of.items():
            places = [(found[number].tables, found[number].lsn) for number in mine]
            is_done = partial(self._is_done, source)
            changes = next_schema_changes(self._parts[source], places, is_done, seconds=time.next())
            for number, change in zip(mine, changes, strict=True):
                found[number] = replace(found[number], next_change=change)
        return found

    def _is_done(self, source: str, lsn: Lsn) -> bool:
        journal = self._target.meta.journal.read(self._name, source, lsn)
        return journal is not None and journal.state is DdlState.DONE

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._target.begin()
        try:
            yield
            self._target.commit()
        except BaseException:
            self._target.rollback()
            raise

    def _blocked_changes_of(self, source: str) -> Iterator[BlockedChange]:
        halts = [self._with_position(halt, source) for halt in self._target.meta.halts.read(self._name, source)]
        yield from (BlockedChange(halt.lsn, "", halt, source=source) for halt in halts if is_refused_rows(halt))
        changes = {halt.lsn: halt for halt in halts if not is_refused_rows(halt)}
        commands = {command.lsn: command for command in self._target.meta.ddl_commands.read(self._name, source)}
        for lsn in sorted({*changes, *commands}):
            yield self._change_at(source, lsn, changes.get(lsn), commands.get(lsn))

    def _with_position(self, halt: Halt, source: str) -> Halt:
        """Returns the halt with its binlog position; unchanged if this machine's relay does not know the position."""
        if halt.position:
            return halt
        config = self.part(source)
        try:
            with closing(RelayReader(config.relay, source)) as relay:
                return replace(halt, position=str(relay.position(halt.lsn) or ""))
        except PidtsError:
            return halt

    def _change_at(self, source: str, lsn: Lsn, halt: Halt | None, command: DdlCommand | None) -> BlockedChange:
        journal = self._target.meta.journal.read(self._name, source, lsn)
        statement = halt.statement if halt else journal.statement if journal else ""
        if not statement:
            entry = self._log_entry(source, lsn)
            statement = entry.transaction.ddl or "" if entry is not None else ""
        return BlockedChange(lsn, statement, halt, command, journal, source)

    def _at(self, place: str, source: str, waiting: Sequence[BlockedChange]) -> BlockedChange:
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
                todo="To see the schema changes that wait: pidts ddl list TASK. To see the whole log: pidts events "
                "SOURCE",
            )
        # Several sources may have the same place. A blocked change at this place is preferred.
        meant = [one for one in found if one in waiting] or found
        if len(meant) > 1:
            raise _ambiguous(meant)
        return meant[0]

    def _lsn(self, place: str, source: str) -> Lsn:
        try:
            return Lsn.parse(place)
        except ValueError:
            pass
        rows = self._target.meta.checkpoints.read(self._name, source)
        try:
            return Lsn.at(Position.parse(place), rows[0].lsn.change_no if rows else 0)
        except ValueError:
            what = f"{place!r} is not a position in the log"
            todo = "Give file:position, or an Lsn as this command shows it: pidts ddl list TASK"
            raise ConfigError("bad-value", what, todo=todo) from None

    def _in_relay(self, source: str, lsn: Lsn) -> list[BlockedChange]:
        entry = self._log_entry(source, lsn)
        if entry is None:
            return []
        at = entry.transaction.lsn
        return [self._change_at(source, at, None, self._target.meta.ddl_commands.find(self._name, source, at))]

    def _log_entry(self, source: str, lsn: Lsn) -> LogEntry | None:
        """Returns the relay's entry of the schema change that ends or begins at this Lsn; None if there is none."""
        try:
            with closing(RelayReader(self.part(source).relay, source)) as relay:
                entry = relay.find(lsn)
                if entry is not None and entry.transaction.ddl and entry.transaction.lsn == lsn:
                    return entry
                following = next(iter(relay.entries(lsn)), None)
        except PidtsError:
            return None  # this machine has no relay, or its relay does not have this Lsn
        return following if following is not None and following.transaction.ddl else None


@contextmanager
def task_commands(parts: Sequence[TaskConfig]) -> Iterator[TaskCommands]:
    """Opens a session on the target and yields the task's commands."""
    config = parts[0]
    with closing(config.target.server.connect()) as target:
        if not any(target.meta.checkpoints.read(part.name, part.source.source_id) for part in parts):
            raise ConfigError(
                "task-not-begun", f"task {config.name} has not begun on this target", todo=config.run_command()
            )
        target.meta.prepare()  # the meta schema of an earlier version may lack the tables for ddl commands
        yield TaskCommands(parts, target)


def _require_open(one: BlockedChange) -> BlockedChange:
    if one.is_done:
        raise ConfigError(
            "ddl-is-done",
            f"the target already has the schema change at {one.lsn}",
            todo="Nothing has to be done. To see what still waits: pidts ddl list TASK",
        )
    return one


def _none_waits(refused: Sequence[BlockedChange], source: str, table: str) -> ConfigError:
    """Returns the error for a ddl command without a place, if no schema change waits or all wait behind refused rows.

    `source` and `table` are the names in the command; empty if it has none.
    """
    behind = [
        f"{one.next_change.statement} (--source {shlex.quote(one.source)} --at {one.next_change.lsn})"
        for one in refused
        if one.next_change is not None
    ]
    todo = f"See: {LIST}"
    if behind:
        todo = (
            "These schema changes wait behind refused rows: correct the rows first. To decide about one of them now, "
            f"name its place: {'; '.join(behind)}. {todo}"
        )
    of = f"of table {table}" if table else "of this task"
    what = f"no schema change {of} is waiting{f' on source {source}' if source else ''}"
    if table and "." not in table:
        todo = f"{todo}. --table takes the schema and the name of a table: --table SCHEMA.{table}"
    return ConfigError("no-such-ddl", what, todo=todo)


def _ambiguous(found: Sequence[BlockedChange]) -> ConfigError:
    places = "; ".join(f"--source {shlex.quote(one.source)} --at {one.lsn}" for one in found)
    return ConfigError("no-such-ddl", f"{len(found)} schema changes are waiting", todo=f"Name one of them: {places}")


def _require_allowed(sql: str, said: Sequence[str]) -> None:
    if not _TRANSACTION.isdisjoint(said[:1]):
        raise ConfigError(
            "bad-order",
            f"a ddl command cannot contain {said[0]}: its SQL runs inside a transaction that the task begins and ends",
            todo=f"Leave {said[0]} out: on PostgreSQL all SQL of a ddl command is one transaction, elsewhere each "
            "statement is one",
        )
    if said[:1] == ("LOAD",) and "LOCAL" in said:
        raise ConfigError(
            "bad-order",
            f"LOAD DATA LOCAL would read a file of this machine, which a ddl command may not do: {sql}",
            todo="Leave out LOAD DATA LOCAL",
        )
