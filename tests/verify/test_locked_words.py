"""A comparison finds a locked row even if its key and the lock's key differ, and are equal for the target."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from pidts.apply.locks.held_changes import lock_ids
from pidts.apply.locks.known_locks import form_start, key_forms
from pidts.apply.uncopied_keys import packed
from pidts.model import Lsn, RowLock
from pidts.sandbox import Server
from pidts.task.compare.target import target_rows
from pidts.task.compare.wiring import opened_comparison

from .conftest import Pair

MakePair = Callable[[Server, Server], Pair]


@pytest.mark.parametrize("has_form", [True, False])
def test_a_locked_row_whose_key_has_other_words_is_locked(
    pair_of: MakePair, mysql97: Server, mariadb: Server, *, has_form: bool
) -> None:
    """Without `has_form`, the lock is of an earlier version, which stored no form of the key."""
    pair = pair_of(mysql97, mariadb)
    pair.on_source(
        "CREATE TABLE t (k VARCHAR(10) COLLATE utf8mb4_general_ci PRIMARY KEY, v INT)",
        "INSERT INTO t VALUES ('Ada', 1), ('b', 1)",
    )
    pair.copy()
    pair.on_target(f"UPDATE {pair.config.name}.t SET k = 'ADA', v = 9 WHERE k = 'Ada'")
    with opened_comparison([pair.config], lambda _: True) as comparison:
        merged_tables, session = comparison.merged_tables(), comparison.target
        ((name, merged),) = merged_tables.items()
        table = merged.table
        keys = pa.table({"k": ["b", "ADA", "c"]}, schema=pa.schema([table.arrow.field("k")]))
        there = target_rows(session, lambda: merged_tables)
        assert there.locked(table, keys) == set()
        session.meta.prepare()
        locked = pa.table({"k": ["Ada"]}, schema=keys.schema)
        (form,) = key_forms(session, table, locked, form_start(session, table))
        lock = RowLock(
            table=table,
            id=lock_ids(locked)[0],
            key=packed(locked),
            shown="k='Ada'",
            origin=name,
            lsn=Lsn(0, 1, 4),
            why="it differs",
            since=1.0,
            form=form if has_form else "",
        )
        session.begin()
        session.meta.row_locks.add(pair.config.name, pair.config.source.source_id, [lock])
        session.commit()
        assert there.locked(table, keys) == {1}
