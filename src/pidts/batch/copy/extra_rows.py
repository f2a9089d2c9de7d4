"""Finds rows that only the target has, by reading the target's keys in the target's order.

The target is read first. No batch is under way, so the target's rows are as of the task's checkpoint. The source is
asked afterwards, at the checkpoint's position or later. So if the source lacks a row, either the row never belonged on
the target, or it was deleted before the source answered. In the second case, the log up to the position of the answer
has the DELETE. If the row is inserted again later, the log has that INSERT, too. The batch that settles the request has
all of that log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pidts.apply import TargetSession
from pidts.apply.rows.target_rows import narrowed
from pidts.apply.uncopied_keys import packed, unpacked
from pidts.copy import read_keys
from pidts.model import Position, Table
from pidts.model.types import LABELED
from pidts.plan.copy.state import KeyValues
from pidts.reduce.key_numbers import Mask, chunkless, key_numbers, merged
from pidts.source import SourceConfig


@dataclass(frozen=True, slots=True)
class ExtraKeys:
    """The result of searching the source for the target's next keys."""

    server: str
    low: Position
    high: Position
    rows: int
    """How many keys were checked."""
    absent: pa.Table
    """The keys that the source does not have."""
    last_key: str
    """The last checked key; empty if there are no more keys."""
    altered: bool


def read_extra_rows(
    config: SourceConfig,
    target: TargetSession,
    table: Table,
    after: KeyValues | None,
    limit: int,
    *,
    target_table: Table,
    own: Mapping[str, str] = MappingProxyType({}),
) -> ExtraKeys:
    """Reads up to `limit` keys of `target_table` after `after` (None: from the first), and asks the source for them.

    `own`: only rows with these column values are read.
    """
    narrow, there = narrowed(table, ()), narrowed(target_table, ())
    place = None if after is None else list(unpacked(str(after[0])).to_pylist()[0].values())
    # The server sorts ENUM and SET by number but compares them as text, so such keys are read all at once.
    at_once = any(table.column(name).type.kind in LABELED for name in table.identity)
    keys = target.read_rows(there, after=place, limit=None if at_once else limit, only=own).select(list(there.identity))
    last = packed(keys.slice(keys.num_rows - 1)) if keys.num_rows == limit and not at_once else ""
    for name, value in own.items():  # the collation may ignore case: then the query also returns rows of other tables
        keys = keys.filter(pc.equal(keys.column(name), value))
    chunk = read_keys(config, narrow, keys.select(list(narrow.identity)))
    found = chunk.rows.select(list(narrow.identity))
    for name, value in own.items():
        found = found.append_column(name, pa.repeat(pa.scalar(value, there.column(name).type.arrow), len(found)))
    absent = keys.slice(0, 0) if chunk.altered else absent_keys(target, there, keys, found.select(keys.column_names))
    return ExtraKeys(chunk.server, chunk.low, chunk.high, keys.num_rows, absent, last, chunk.altered)


def absent_keys(target: TargetSession, table: Table, keys: pa.Table, found: pa.Table) -> pa.Table:
    """Returns the keys for which the source has no row.

    A source whose collation ignores case or accents may return the row 'a' for the key 'A'. The target is then asked
    for 'a'. If it returns its row 'A', both collations treat the keys as equal: 'A' is the source's row, and stays.
    Otherwise the target has a separate row 'a', and 'A' is an extra row.
    """
    missing = keys.filter(pa.array(~_among(table, keys, found)))
    others = found.filter(pa.array(~_among(table, found, keys)))
    if not missing.num_rows or not others.num_rows:
        return missing
    meant = target.read_rows(table, keys=others).select(keys.column_names)
    return missing.filter(pa.array(~_among(table, missing, meant)))


def _among(table: Table, keys: pa.Table, others: pa.Table) -> Mask:
    """Returns which of `keys` are also in `others`, compared byte by byte."""
    if not keys.num_rows or not others.num_rows:
        return np.zeros(keys.num_rows, np.bool_)
    names = table.identity
    numbers = key_numbers(merged([chunkless(keys, names), chunkless(others, names)]))
    return np.isin(numbers[: keys.num_rows], numbers[keys.num_rows :])
