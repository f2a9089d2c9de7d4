"""The words for what waits: who, where, since when, how much log, and how many more than a screen holds."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from pidts.cli.relay_view import in_units

if TYPE_CHECKING:
    from pidts.task.orders import Standing
    from pidts.task.waiting import Backlog, Held

SHOWN = 5
"""So many of what is alike are named."""

T = TypeVar("T")


def first_of(things: Sequence[T], *, whole: bool = False) -> tuple[Sequence[T], int]:
    """Those that are shown, and how many more there are."""
    shown = things if whole else things[:SHOWN]
    return shown, len(things) - len(shown)


def named(names: Iterable[str], count: int = SHOWN) -> str:
    """The first of them, and how many more."""
    found = list(names)
    more = len(found) - count
    return ", ".join(found[:count]) + (f" and {more:,} more" if more > 0 else "")


def behind(backlog: Backlog) -> str:
    """How much waits behind a change, or behind the last row that was taken."""
    count = plural("transaction", backlog.transactions)
    least = "" if backlog.is_whole else "at least "
    if not backlog.transactions:
        return f"no transaction waits behind it{'' if backlog.is_whole else ' among those looked at'}"
    verb = "waits" if backlog.transactions == 1 else "wait"
    return f"{least}{count} ({in_units(backlog.own_bytes)}) {verb} behind it, from {time_text(backlog.since)} on"


def plural(noun: str, count: int) -> str:
    """1 row, 2 rows."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def shard_name(one: Standing) -> str:
    """Its tables, with their source."""
    return f"{one.source}: {', '.join(map(str, one.tables))}"


def position_of(one: Standing) -> str:
    """The source's own name of the place."""
    return (one.halt.position if one.halt is not None else "") or "-"


def kept_log(held: Held) -> str:
    """How much of it the relay has only for these tables."""
    if not held.is_known:
        return "how much log is kept for that is known where the relay is"
    return f"{in_units(held.log_bytes)} of log is kept in the relay for that"


def since(seconds: float) -> str:
    """Nothing where nobody knows."""
    return f", since {moment(seconds)}" if seconds else ""


def moment(seconds: float) -> str:
    """And how long ago it is."""
    minutes = max(0, int(time.time() - seconds)) // 60
    age = f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"
    return f"{time_text(seconds)} ({age})"


def time_text(seconds: float) -> str:
    """In UTC; a dash where nobody knows."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if seconds else "-"
