"""The keys of a past range do not fill the memory, however many tables have some of them."""

from __future__ import annotations

import pyarrow as pa

from pidts.model import TableName
from pidts.task.tables.pending_keys import PendingKeys


def keys(count: int) -> pa.Table:
    return pa.table({"id": range(count)})


def test_keys_become_records_if_one_table_or_all_tables_have_many() -> None:
    pending = PendingKeys(10, 25)
    names = [TableName("shop", f"t_{number}") for number in range(4)]
    assert pending.add(names[0], keys(9)) == []
    (one,) = pending.add(names[0], keys(1))
    assert (one[0], sum(map(len, one[1]))) == (names[0], 10)
    assert [pending.add(name, keys(9)) for name in names[:2]] == [[], []]
    assert {name: sum(map(len, some)) for name, some in pending.add(names[2], keys(9))} == dict.fromkeys(names[:3], 9)
    assert pending.rest() == []
    assert pending.add(names[3], keys(3)) == []
    assert [name for name, _ in pending.rest()] == [names[3]]
