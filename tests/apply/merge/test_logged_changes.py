"""A target with change tables gets each change of merged shards once, from whichever worker writes its row."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest
from tests.apply.table_history import PLAIN, Change, batch_of, minimal, rows_of
from tests.target.conformance.samples import create
from tests.values_target import ValuesTarget

pytest.importorskip("pyiceberg")

from pidts.apply import ApplyRules, prepared
from pidts.model import Op, SourceTransaction, TableName
from pidts.reduce import Counts, NetChange, buckets, with_whole_keys
from pidts.target.hive.changes import change_rows

SHARDS = {TableName("shop", "cart_1"): 0, TableName("shop", "cart_2"): 1000}
"""The shards, each with its first key."""
WORKERS = 3
RULES = ApplyRules(
    source="s",
    merged=frozenset({PLAIN.name}),
    keeps_changes=True,
    find_transactions=lambda lsns: [SourceTransaction("0-1-7", 1_900_000_000)] * len(lsns),
)


def row(number: int, a: int = 0) -> dict[str, object]:
    return {"id": number, "a": a, "b": f"text {number}", "u": number}


def changes_after(first: int) -> list[Change]:
    """Returns changes of rows that the target has, and of new rows."""
    keys = range(first, first + 10)
    return [
        *((Op.UPDATE, row(key), row(key, 1)) for key in keys),
        *((Op.UPDATE, row(key, 1), row(key, 2)) for key in keys[:5]),
        *((Op.DELETE, row(key, 1), None) for key in keys[7:]),
        *((Op.INSERT, None, row(key + 100, 9)) for key in keys),
    ]


@pytest.mark.parametrize("is_partial", [False, True], ids=["full", "minimal"])
def test_each_change_of_the_shards_is_logged_once_with_all_values(*, is_partial: bool) -> None:
    """MINIMAL images have only keys and changed values. The other values are read from the target."""
    store = ValuesTarget(f"logged changes of shards, {is_partial}")
    expected, parts = [], []
    for number, (shard, first) in enumerate(SHARDS.items()):
        changes = changes_after(first)
        held = [minimal(PLAIN, change) for change in changes] if is_partial else ()
        batch = replace(batch_of(PLAIN, changes, start=100 * number, held=held), upstream=shard)
        parts.append(buckets(with_whole_keys(batch), WORKERS))
        for op, before, after in changes:
            names = ["update_from", "update_to"] if op is Op.UPDATE else [op.name.lower()]
            images = [image for image in (before, after) if image is not None]
            expected += [(str(shard), name, *image.values()) for name, image in zip(names, images, strict=True)]
    found = []
    with closing(store.connect()) as session:
        create(session, PLAIN)
        there = rows_of(PLAIN, [row(first + place) for first in SHARDS.values() for place in range(10)])
        session.begin()
        session.write(NetChange(PLAIN, there.select(["id"]).slice(0, 0), there, Counts()))
        for worker in range(WORKERS):
            mine = [of_shard[worker] for of_shard in parts]
            assert None not in mine, "each worker has changes of each shard"
            for change in prepared(session, mine, RULES):
                session.write(change)
                for logged in change.logged:
                    found += change_rows(logged).to_pylist()
        session.commit()
    store.forget()
    found.sort(key=lambda each: (each["pidts_lsn"], each["pidts_op"]))
    seen = [(each["pidts_table"], each["pidts_op"], *(each[name] for name in PLAIN.arrow.names)) for each in found]
    if is_partial:  # In the logged change, a value that is neither in the log nor needed for the target's row is NULL.
        kept = {"update_to", "insert"}
        assert [each for each in seen if each[1] in kept] == [each for each in expected if each[1] in kept]
        assert [each[:3] for each in seen] == [each[:3] for each in expected]
    else:
        assert seen == expected
