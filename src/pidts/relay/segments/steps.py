"""Finds, for many steps of XA transactions at once, the event groups that the COMMITs among them commit.

`PreparedEventGroups.settle` is the specification, which handles one step at a time. Here, compiled code finds the
previous step of each step's transaction. Python handles two kinds of steps one by one: the first steps of transactions
that were undecided before, and the PREPAREs of transactions that stay undecided.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pidts.binlog.blocks import ordinary as o
from pidts.binlog.blocks.scan import OrdinaryEvents
from pidts.binlog.jit import address, inline, jit, load32, load64, store32
from pidts.binlog.xa import PreparedEventGroups, PreparedXa
from pidts.model import Extent, LogEntry, Lsn, PreparedExtent, XaStep
from pidts.relay.segments.index import encode_entry

NO_GROUP = -1
"""The entry in `SettledGroups.matches` for a step that commits no group."""
ALONE = -2
"""The entry in `SettledGroups.matches` for a step whose record is the first one in `SettledGroups.payloads`. `ALONE` -
1 means the second record, `ALONE` - 2 the third.
"""

_PREPARE, _COMMIT = int(XaStep.PREPARE), int(XaStep.COMMIT)


@dataclass(frozen=True, slots=True)
class SettledGroups:
    """The groups that the COMMITs among some transactions commit."""

    matches: Any
    """For each transaction, the index of the transaction that prepared its rows; `NO_GROUP` if it commits no group. A
    lower number means that the transaction's record is one of `payloads` (see `ALONE`).
    """
    payloads: bytes
    ends: Any
    """The place in `payloads` before the first record, and the place after each record."""
    decided: tuple[str, ...]
    undecided: tuple[PreparedXa[PreparedExtent], ...]


def settled_steps(
    run: OrdinaryEvents, begin: int, base: int, segment: int, undecided: PreparedEventGroups[PreparedExtent]
) -> SettledGroups:
    """Reads the steps of XA transactions in `run`, and updates `undecided`. Parameters: see `EntryEncoder.encode`."""
    lines, count = run.lines, len(run.lines)
    steps, before, is_last = lines[:, o.L_STEP], np.empty(count, np.int64), np.empty(count, np.uint8)
    slots = np.zeros(1 << (2 * count).bit_length(), np.uint32)
    _find((address(lines), count), run.texts.ctypes.data, (slots.ctypes.data, len(slots) - 1), before, is_last)
    commits = np.flatnonzero((steps == _COMMIT) & (before >= 0))
    commits = commits[steps[before[commits]] == _PREPARE]
    matches = np.full(count, NO_GROUP, np.int64)
    matches[commits] = before[commits]
    decided, made, payloads = list[str](), list[PreparedXa[PreparedExtent]](), list[bytes]()
    first_steps = np.flatnonzero((steps != o.XA_NONE) & (before < 0)).tolist() if len(undecided) else ()
    for place in first_steps:
        if (xid := run.xid(place)) not in undecided:
            continue
        decided.append(xid)
        if steps[place] != _COMMIT:
            undecided.drop(xid)
            continue
        entry = _entry(run, place, begin, base, segment)
        matches[place] = ALONE - len(payloads)
        transaction, prepared = undecided.settle(entry.transaction, _place_of(entry))
        payloads.append(encode_entry(LogEntry(transaction, entry.extent, prepared)))
    for place in np.flatnonzero((steps == _PREPARE) & (is_last != 0)).tolist():
        entry = _entry(run, place, begin, base, segment)
        if entry.transaction.xa is not None:
            made.append(PreparedXa(entry.transaction.xa, _place_of(entry)))
            undecided.add(made[-1])
    ends = np.cumsum([0, *map(len, payloads)], dtype=np.int64)
    return SettledGroups(matches, b"".join(payloads), ends, tuple(decided), tuple(made))


def _entry(run: OrdinaryEvents, place: int, begin: int, base: int, segment: int) -> LogEntry:
    """Returns the entry of one step, without the place of its group."""
    first, previous = begin, run.previous
    if place:
        line = run.lines[place - 1]
        first, previous = base + int(line[o.L_BLOCK_END]), Lsn(run.change_no, run.log_index, int(line[o.L_END]))
    end = base + int(run.lines[place, o.L_BLOCK_END])
    return LogEntry(run.step(place, previous), Extent(segment, first, end - first))


def _place_of(entry: LogEntry) -> PreparedExtent:
    extent = entry.extent
    return PreparedExtent(extent.segment, extent.offset, extent.size, entry.transaction.begin)


@inline
def _name_at(line: int, texts: int) -> Any:
    return texts + load64(line + 8 * o.L_GTID) + load64(line + 8 * o.L_GTID_SIZE)


@jit
def _find(lines: Any, texts: int, slots: Any, before: Any, is_last: Any) -> None:
    """Finds each step's previous step of the same name (-1: there is none), and whether no later step has this name."""
    line, count = lines
    table, mask = slots
    first = line
    for place in range(count):
        before[place], is_last[place] = -1, 0
        if load64(line + 8 * o.L_STEP):
            is_last[place] = 1
            name, size = _name_at(line, texts), load64(line + 8 * o.L_XID_SIZE)
            slot = o.hash_of(name, size) & mask
            while True:
                other = load32(table + 4 * slot) - 1
                if other < 0:
                    break
                known = first + other * (8 * o.LINE)
                if load64(known + 8 * o.L_XID_SIZE) == size and o.same(_name_at(known, texts), name, size):
                    before[place], is_last[other] = other, 0
                    break
                slot = (slot + 1) & mask
            store32(table + 4 * slot, place + 1)
        line += 8 * o.LINE
