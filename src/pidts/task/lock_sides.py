"""Shards of one lock by what they want: whose statements read alike, and who goes on with whom.

Statements of shards differ in the table's own name at least, so hundreds of them are one to people. Who goes on
together is another question, which structures decide and not words: the halts name those that they do not agree with.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from pidts.task.locks import OpenLock
from pidts.task.orders import Standing

_BEFORE, _AFTER = r"(?<![\w`$.])", r"(?![\w`$])"


def by_statement(standing: Iterable[Standing]) -> list[tuple[Standing, ...]]:
    """Those whose statements differ in nothing but the name of the table that is their own."""
    groups: dict[str, list[Standing]] = {}
    for one in standing:
        groups.setdefault(_nameless(one), []).append(one)
    return [tuple(group) for group in groups.values()]


def sides(lock: OpenLock, at: Standing) -> tuple[list[Standing], list[Standing]]:
    """Who goes on where the target gets the change of this one, itself first; and who waits for something else."""
    others = [one for one in lock.arrived if one.place != at.place]
    alike = [one for one in others if _agree(lock, at, one)]
    return [at, *alike], [one for one in others if one not in alike]


def _agree(lock: OpenLock, one: Standing, other: Standing) -> bool:
    if not (_awaits(one, other) or _awaits(other, one)):
        return True
    # Where nobody disagrees, one that is awaited and has come is a change behind, or makes it for all.
    return not lock.disagrees and _nameless(one) == _nameless(other)


def _awaits(one: Standing, other: Standing) -> bool:
    named = one.halt.awaits if one.halt is not None else ()
    return any(f"{other.source}: {name}" in named for name in other.tables)


def _nameless(one: Standing) -> str:
    """The statement without the first mention of each table that is its own."""
    text = " ".join(one.statement.split())
    for name in one.tables:
        schema, table = (f"(?:`{re.escape(part)}`|{re.escape(part)})" for part in (name.schema, name.name))
        own = rf"{_BEFORE}(?:{schema}\s*\.\s*)?{table}{_AFTER}"
        text = re.sub(own, "?", text, count=1, flags=re.IGNORECASE)
    return text
