"""The locks of merged tables: schema changes of shards that wait for the other shards of their target table.

The target records a halt for each shard that waits. All halts of one target table are one *lock*. The lock opens when
the other shards arrive, or when an operator opens it. Reading the locks needs no running task.

Shards of a lock are grouped in two different ways:

- To show statements, by the statement's text. Statements that differ only in the name of the shard's own table are
  shown as one.
- To find the shards that continue together, by structure. Each halt names the shards with another structure.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pidts.model import ConfigError, Lsn, TableName
from pidts.model.advice import LIST
from pidts.task.operate.ddl_commands import BlockedChange, TaskCommands, is_joining, is_refused_rows

_SHOWN = 120
_LOCK_ID = re.compile(r"(?:.*-)?`(?P<schema>[^`]+)`\.`(?P<table>[^`]+)`")
"""The form of a lock's name in dmctl: the task and the table."""
_BEFORE, _AFTER = r"(?<![\w`$.])", r"(?![\w`$])"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLock:
    """A target table whose shards wait for each other."""

    target: TableName
    arrived: tuple[BlockedChange, ...]
    """The shards that wait, in the order of their arrival."""
    awaited: tuple[str, ...]
    """The shards that have not arrived, each as `source: schema.table`."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """The awaited shards that cannot arrive because the target refuses their rows, each with the error code."""

    @property
    def first(self) -> BlockedChange:
        """The shard that reached the schema change first."""
        return self.arrived[0]

    @property
    def since(self) -> float:
        """The time at which the first shard arrived, in seconds since 1970."""
        return self.first.halt.since if self.first.halt is not None else 0.0

    @property
    def awaited_since(self) -> dict[str, float]:
        """The time at which the wait for each awaited shard began; 0 if it is not known."""
        since = awaited_since(self.arrived)
        return {name: since.get(name, 0.0) for name in self.awaited}

    @property
    def disagrees(self) -> bool:
        """Whether the schema changes of the shards lead to different structures."""
        return any(one.halt is not None and one.halt.code == "shards-disagree" for one in self.arrived)

    def to_json(self) -> dict[str, Any]:
        """Returns plain values for JSON."""
        return {
            "target": str(self.target),
            "statement": self.first.statement,
            "owner": self.first.source,
            "since": self.since or None,
            "disagrees": self.disagrees,
            "arrived": [
                {
                    "source": one.source,
                    "tables": list(map(str, one.tables)),
                    "lsn": str(one.lsn),
                    "statement": one.statement,
                    "since": (one.halt.since if one.halt is not None else 0) or None,
                    "backlog": one.backlog.to_json() if one.backlog is not None else None,
                }
                for one in self.arrived
            ],
            "awaited": list(self.awaited),
            "awaited_since": {name: since or None for name, since in self.awaited_since.items()},
            "refused": dict(self.refused),
        }


def open_locks(commands: TaskCommands, blocked: Iterable[BlockedChange]) -> list[OpenLock]:
    """Returns the locks among these changes, sorted by target table."""
    waiting: dict[TableName, list[BlockedChange]] = {}
    blocked = list(blocked)
    rows = [(one.source, one.halt) for one in blocked if one.halt is not None and is_refused_rows(one.halt)]
    refused = {f"{source}: {name}": halt.code for source, halt in rows for name in halt.tables}
    for one in blocked:
        if one.waits_for_shards:
            for target in commands.target_tables(one):
                waiting.setdefault(target, []).append(one)
    return [_lock(target, arrived, refused) for target, arrived in sorted(waiting.items())]


def awaited_since(blocked: Iterable[BlockedChange]) -> dict[str, float]:
    """Returns the awaited shards, as `source: schema.table`, each with the time at which a shard first waited for it.

    A shard that has arrived is not awaited. The time is 0 if no waiting shard has recorded it.
    """
    waiting = [one for one in blocked if one.waits_for_shards]
    arrived = {f"{one.source}: {name}" for one in waiting for name in one.tables}
    halts = [one.halt for one in waiting if one.halt is not None]
    found: dict[str, float] = {}
    for halt in halts:
        for name in halt.awaits:
            found[name] = min(filter(None, (found.get(name), halt.since)), default=0.0)
    return {name: since for name, since in sorted(found.items()) if name not in arrived}


def named_locks(locks: Sequence[OpenLock], name: str) -> list[OpenLock]:
    """Returns the locks of a table, or all locks if `name` is empty.

    `name` is the table's name on the target or on a source, or dmctl's lock id.
    """
    spelled = _LOCK_ID.fullmatch(name)
    wanted = f"{spelled['schema']}.{spelled['table']}" if spelled else name
    return [lock for lock in locks if not name or wanted in {str(lock.target), *_source_tables(lock)}]


def find_lock(locks: Sequence[OpenLock], name: str, place: str = "", source: str = "") -> OpenLock:
    """Returns the lock of the table `name` with a shard that waits at `place`; without both, the only lock."""
    found = named_locks(locks, name)
    if len(found) > 1:
        found = [lock for lock in found if _matching(lock, place, source)] or found
    if len(found) == 1:
        return found[0]
    of = f" of {name}" if name else ""
    if not found:
        raise ConfigError("no-such-lock", f"no schema change{of} waits for other shards", todo=f"See: {LIST}")
    names = " or ".join(f"--table {shlex.quote(str(lock.target))}" for lock in found)
    raise ConfigError("no-such-lock", f"{len(found)} tables wait for shards", todo=f"Name one of them: {names}")


def chosen_change(lock: OpenLock, place: str, source: str) -> BlockedChange:
    """Returns the shard whose schema change the target runs when an operator opens the lock."""
    matching = _matching(lock, place, source)
    statements = {one.statement for one in matching}
    if matching and (len(statements) == 1 or not lock.disagrees):
        return matching[0]
    if not matching:
        raise ConfigError(
            "no-such-lock", f"no shard of {lock.target} waits at that source and position", todo=f"See: {LIST}"
        )
    by_statement: dict[str, BlockedChange] = {}
    for one in lock.arrived:
        by_statement.setdefault(one.statement, one)
    places = "; ".join(
        f"--source {shlex.quote(one.source)} --at {one.lsn} ({text[:_SHOWN]})" for text, one in by_statement.items()
    )
    raise ConfigError(
        "no-such-lock",
        f"the shards of {lock.target} wait at different schema changes",
        todo=f"Name the one to run: {places}",
    )


def by_statement(blocked: Iterable[BlockedChange]) -> list[tuple[BlockedChange, ...]]:
    """Groups shards whose statements differ only in the name of the shard's own table."""
    groups: dict[str, list[BlockedChange]] = {}
    for one in blocked:
        groups.setdefault(_without_own_names(one), []).append(one)
    return [tuple(group) for group in groups.values()]


def split_by_agreement(lock: OpenLock, at: BlockedChange) -> tuple[list[BlockedChange], list[BlockedChange]]:
    """Splits a lock's shards: those that continue if the target runs the change of `at`, and those that still wait.

    `at` itself is the first of those that continue.
    """
    others = [one for one in lock.arrived if one.place != at.place]
    agreeing = [one for one in others if _agree(lock, at, one)]
    return [at, *agreeing], [one for one in others if one not in agreeing]


def _matching(lock: OpenLock, place: str, source: str) -> list[BlockedChange]:
    return [one for one in lock.arrived if place in {"", str(one.lsn), _position(one)} and source in {"", one.source}]


def _lock(target: TableName, waiting: list[BlockedChange], refused: Mapping[str, str]) -> OpenLock:
    arrived = sorted(waiting, key=_arrival_order)
    awaited = tuple(awaited_since(arrived))
    cannot = {name: refused[name] for name in awaited if name in refused}
    return OpenLock(target=target, arrived=tuple(arrived), awaited=awaited, refused=cannot)


def _arrival_order(one: BlockedChange) -> tuple[bool, float, str, Lsn]:
    """Returns the sort key of arrivals.

    A joining table sorts last if the target lacks columns for its rows. No statement is run for such a table, so it
    must not be the lock's first shard.
    """
    halt = one.halt
    return halt is None or is_joining(halt), halt.since if halt else 0.0, one.source, one.lsn


def _source_tables(lock: OpenLock) -> set[str]:
    return {str(name) for one in lock.arrived for name in one.tables}


def _position(one: BlockedChange) -> str:
    return one.halt.position if one.halt is not None and one.halt.position else str(one.lsn)


def _agree(lock: OpenLock, one: BlockedChange, other: BlockedChange) -> bool:
    if not (_awaits(one, other) or _awaits(other, one)):
        return True
    # One of the two shards awaits the other, although both have arrived. If no shard disagrees, either the awaited
    # shard still has one more change to make, or its change is being run for all shards.
    return not lock.disagrees and _without_own_names(one) == _without_own_names(other)


def _awaits(one: BlockedChange, other: BlockedChange) -> bool:
    named = one.halt.awaits if one.halt is not None else ()
    return any(f"{other.source}: {name}" in named for name in other.tables)


def _without_own_names(one: BlockedChange) -> str:
    """Returns the statement with `?` for the first occurrence of each name of the shard's own tables."""
    text = " ".join(one.statement.split())
    for name in one.tables:
        schema, table = (f"(?:`{re.escape(part)}`|{re.escape(part)})" for part in (name.schema, name.name))
        own = rf"{_BEFORE}(?:{schema}\s*\.\s*)?{table}{_AFTER}"
        text = re.sub(own, "?", text, count=1, flags=re.IGNORECASE)
    return text
