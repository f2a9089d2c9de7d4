"""Schema changes of merged tables that wait for those of other shards, as the record on the target tells it.

Each table that waits has a halt of its own there. Those that land in one table of the target are one *lock*: whoever
came first holds it, and it opens when the others have come or an operator says so. This needs no running task.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pidts.model import ConfigError, Lsn, TableName
from pidts.task.orders import OrderDesk, Standing, is_of_rows

_SHOWN = 120
_LOCK_ID = re.compile(r"(?:.*-)?`(?P<schema>[^`]+)`\.`(?P<table>[^`]+)`")
"""As dmctl writes it: the task, and the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLock:
    """One table of the target whose shards wait for each other."""

    target: TableName
    arrived: tuple[Standing, ...]
    """All that wait, who came first before the others."""
    awaited: tuple[str, ...]
    """`source: schema.table` of those that have not come."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Of these, those that cannot come, since rows of theirs are refused, and the code that says why."""

    @property
    def owner(self) -> Standing:
        """Who came first."""
        return self.arrived[0]

    @property
    def since(self) -> float:
        """Seconds since 1970."""
        return self.owner.halt.since if self.owner.halt is not None else 0.0

    @property
    def awaited_since(self) -> dict[str, float]:
        """Since when each of them is; 0 where nobody can tell."""
        since = awaited_since(self.arrived)
        return {name: since.get(name, 0.0) for name in self.awaited}

    @property
    def disagrees(self) -> bool:
        """Whether what they wait for does not lead to one structure."""
        return any(one.halt is not None and one.halt.code == "shards-disagree" for one in self.arrived)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "target": str(self.target),
            "statement": self.owner.statement,
            "owner": self.owner.source,
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


def open_locks(desk: OrderDesk, standing: Iterable[Standing]) -> list[OpenLock]:
    """All of them, by the target's names."""
    waiting: dict[TableName, list[Standing]] = {}
    standing = list(standing)
    rows = [(one.source, one.halt) for one in standing if one.halt is not None and is_of_rows(one.halt)]
    refused = {f"{source}: {name}": halt.code for source, halt in rows for name in halt.tables}
    for one in standing:
        if one.is_shard:
            for target in desk.landed(one):
                waiting.setdefault(target, []).append(one)
    return [_lock(target, arrived, refused) for target, arrived in sorted(waiting.items())]


def awaited_since(standing: Iterable[Standing]) -> dict[str, float]:
    """Who is awaited, as `source: schema.table`, and since when: since the first came who waits for it.

    Nobody is who has come. The time is 0 where none of those who wait knows it.
    """
    waiting = [one for one in standing if one.is_shard]
    come = {f"{one.source}: {name}" for one in waiting for name in one.tables}
    halts = [one.halt for one in waiting if one.halt is not None]
    found: dict[str, float] = {}
    for halt in halts:
        for name in halt.awaits:
            found[name] = min(filter(None, (found.get(name), halt.since)), default=0.0)
    return {name: since for name, since in sorted(found.items()) if name not in come}


def named_locks(locks: Sequence[OpenLock], name: str) -> list[OpenLock]:
    """By a table's name on the target or a source, or by dmctl's name of the lock; without, all."""
    spelled = _LOCK_ID.fullmatch(name)
    wanted = f"{spelled['schema']}.{spelled['table']}" if spelled else name
    return [lock for lock in locks if not name or wanted in {str(lock.target), *_members(lock)}]


def find_lock(locks: Sequence[OpenLock], name: str, place: str = "", source: str = "") -> OpenLock:
    """The one that is called so, and has somebody there; without either, the only one."""
    found = named_locks(locks, name)
    if len(found) > 1:
        found = [lock for lock in found if _meant(lock, place, source)] or found
    if len(found) == 1:
        return found[0]
    of = f" of {name}" if name else ""
    if not found:
        raise ConfigError("no-such-lock", f"no schema change{of} waits for other shards", todo="See: pidts ddl list")
    names = " or ".join(f"--table {lock.target}" for lock in found)
    raise ConfigError("no-such-lock", f"{len(found)} tables wait for shards", todo=f"Say which one is meant: {names}")


def whose(lock: OpenLock, place: str, source: str) -> Standing:
    """Whose schema change the target gets, where a lock is opened."""
    meant = _meant(lock, place, source)
    alike = {one.statement for one in meant}
    if meant and (len(alike) == 1 or not lock.disagrees):
        return meant[0]
    if not meant:
        raise ConfigError("no-such-lock", f"no shard of {lock.target} waits there", todo="See: pidts ddl list")
    by_statement: dict[str, Standing] = {}
    for one in lock.arrived:
        by_statement.setdefault(one.statement, one)
    places = "; ".join(f"--source {one.source} --at {one.lsn} ({text[:_SHOWN]})" for text, one in by_statement.items())
    raise ConfigError(
        "no-such-lock", f"the shards of {lock.target} want different things", todo=f"Say whose is run: {places}"
    )


def _meant(lock: OpenLock, place: str, source: str) -> list[Standing]:
    return [one for one in lock.arrived if place in {"", str(one.lsn), _position(one)} and source in {"", one.source}]


def _lock(target: TableName, waiting: list[Standing], refused: Mapping[str, str]) -> OpenLock:
    arrived = sorted(waiting, key=_order)
    awaited = tuple(awaited_since(arrived))
    cannot = {name: refused[name] for name in awaited if name in refused}
    return OpenLock(target=target, arrived=tuple(arrived), awaited=awaited, refused=cannot)


def _order(one: Standing) -> tuple[bool, float, str, Lsn]:
    """A table that comes and has no place yet is nobody for whom something is run."""
    halt = one.halt
    return halt is None or halt.code == "shard-structure", halt.since if halt else 0.0, one.source, one.lsn


def _members(lock: OpenLock) -> set[str]:
    return {str(name) for one in lock.arrived for name in one.tables}


def _position(one: Standing) -> str:
    return one.halt.position if one.halt is not None and one.halt.position else str(one.lsn)
