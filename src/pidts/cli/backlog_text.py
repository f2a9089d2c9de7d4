"""Texts about waiting tables: their names, the place and the time at which they began to wait, and their backlog."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from pidts.cli.relay.view import in_units
from pidts.model.errors import plural, utc_time

if TYPE_CHECKING:
    from pidts.task.operate.backlog import Backlog, HeldTablesOfSource
    from pidts.task.operate.ddl_commands import BlockedChange

SHOWN = 5
"""A text names at most this many tables, shards or other items of one list."""

_LABEL = 13
"""The width of the labels before the texts of this module."""

T = TypeVar("T")


def first_of(things: Sequence[T], *, whole: bool = False) -> tuple[Sequence[T], int]:
    """Returns the first items of a list, and how many items are left out. With `whole`, returns all items."""
    shown = things if whole else things[:SHOWN]
    return shown, len(things) - len(shown)


def indented(text: str) -> str:
    """Returns a text that follows a label, with the second and later lines indented as far as the first line."""
    return text.replace("\n", f"\n{' ' * _LABEL}")


def backlog_size(backlog: Backlog) -> str:
    """Returns a text that says how much log waits until a halted or waiting table can continue."""
    count = plural("transaction", backlog.transactions)
    least = "" if backlog.is_whole else "at least "
    if not backlog.transactions:
        searched = "" if backlog.is_whole else " in the part of the log that was searched"
        return f"no later transaction waits for it{searched}"
    verb = "waits" if backlog.transactions == 1 else "wait"
    return f"{least}{count} ({in_units(backlog.own_bytes)}) {verb} for it, the first from {time_text(backlog.since)}"


def shard_name(one: BlockedChange) -> str:
    """Returns the name of a waiting shard: its source and tables."""
    return f"{one.source}: {', '.join(map(str, one.tables))}"


def position_of(one: BlockedChange) -> str:
    """Returns the position in the log at which a table waits, such as bin.000001:1234; a dash if it is not known."""
    return (one.halt.position if one.halt is not None else "") or "-"


def retained_log(held: HeldTablesOfSource) -> str:
    """Returns a text that says how much log the relay keeps only for these waiting tables.

    The size may be less than the size of the waiting log, since other tables may also need a part of that log.
    """
    if not held.is_known:
        return "the relay is on another machine, so the size of the log kept for waiting tables is not known"
    return f"the relay keeps {in_units(held.log_bytes)} of log that only waiting tables need"


def since(seconds: float) -> str:
    """Returns `, since TIME`, or an empty text if the time is not known."""
    return f", since {moment(seconds)}" if seconds else ""


def moment(seconds: float) -> str:
    """Returns a text with a time and how long ago it was."""
    return f"{time_text(seconds)} ({_age(time.time() - seconds)} ago)"


def _age(seconds: float) -> str:
    minutes = int(seconds) // 60
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min" if minutes else f"{max(0.0, seconds):.0f} s"


def waiting_lag(tables: int, seconds: float) -> str:
    """Returns a text that says how many tables wait, and how old the oldest of their changes is."""
    return f"{plural('table', tables, 'waits', 'wait')}, the oldest change for {_age(seconds)}"


def time_text(seconds: float) -> str:
    """Returns the time in UTC, or a dash if it is not known."""
    return utc_time(seconds) if seconds else "-"
