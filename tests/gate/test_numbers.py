"""The numbers of records depend only on the log, and not on how it is cut."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pidts.gate.committer import in_pieces
from pidts.gate.records import Numbering, transaction_ends
from pidts.model import Extent, LogEntry, Lsn, Transaction
from pidts.target.mysql.datacenter import Numbers

Log = list[list[Lsn]]
logs = st.lists(st.integers(1, 4), min_size=1, max_size=6).map(
    lambda sizes: [
        [Lsn(0, 1 + place // 3, 1000 * (place + 1) + 256 * row, row * 7) for row in range(size)]
        for place, size in enumerate(sizes)
    ]
)
"""Transactions with the Lsns of their rows; some Lsns end with zero bytes."""


def _end(rows: list[Lsn]) -> Lsn:
    return Lsn(0, rows[-1].log_index, rows[-1].offset + 100)


def _entries(log: Log) -> Iterator[LogEntry]:
    """Returns index entries. If a log file has several transactions, they are joined in one entry."""
    for _, group in groupby(log, key=lambda rows: rows[0].log_index):
        lsns = [_end(rows) for rows in group]
        ends = np.array([lsn.offset for lsn in lsns], np.int64).tobytes() if len(lsns) > 1 else b""
        yield LogEntry(
            Transaction(lsn=lsns[-1], prev_lsn=lsns[-1], begin=lsns[-1]), Extent(0, 0, 0), count=len(lsns), ends=ends
        )


def _records(rows: list[Lsn]) -> pa.Table:
    count = len(rows)
    texts = {name: ["x"] * count for name in ("dbname", "tablename", "optype", "data")}
    return pa.table(
        {"lsn": pa.array([lsn.to_bytes() for lsn in rows], pa.binary()), "create_time": [0] * count, **texts}
    )


def _numbered(log: Log, cuts: set[int], last: Numbers) -> tuple[list[tuple[int, int]], Numbers]:
    """Returns the numbers of the records of a log that is cut at `cuts`, and the last numbers."""
    ends, numbering = transaction_ends(list(_entries(log))), Numbering(last)
    rows = [lsn for transaction in log for lsn in transaction]
    found: list[tuple[int, int]] = []
    places = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    for first, behind in pairwise(places):
        table, numbering = numbering.of(_records(rows[first:behind]), ends, lambda _: "h:1")
        pieces = list(in_pieces(table, numbering.last))
        assert pieces[-1][1] == numbering.last
        found += zip(table["id"].to_pylist(), table["tid"].to_pylist(), strict=True)
    return found, numbering.last


@given(logs, st.sets(st.integers(1, 20)), st.integers(0, 5))
def test_any_cut_gives_the_same_numbers(log: Log, cuts: set[int], commits: int) -> None:
    base = Numbers(1000, 50)
    expected = [(place, number) for number, transaction in enumerate(log, 51) for place, _ in enumerate(transaction)]
    expected = [(1001 + place, number) for place, (_, number) in enumerate(expected)]
    assert _numbered(log, set(), base)[0] == expected
    assert _numbered(log, cuts, base)[0] == expected
    first, last = _numbered(log[: commits % len(log)], cuts, base) if commits % len(log) else ([], base)
    assert first + _numbered(log[commits % len(log) :], cuts, last)[0] == expected
