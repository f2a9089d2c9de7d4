"""MariaDB: many rows of a table without a key are changed as row events, with the same result as SQL."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pymysql
import pytest
from tests.target.conformance.locks.test_rows_that_differ import random_rows
from tests.target.conformance.samples import INT, checkpoint, create, every_type, lsn, rows, text
from tests.target.conformance.servers.test_mariadb_events import (
    _NOT_ENCODED,
    COUNT,
    as_on_mariadb,
    encodable,
    sent,
)
from tests.target.conformance.servers.test_mariadb_events import content as content_of
from tests.target.conformance.servers.test_mysql_keyless import keyless

from pidts.apply import Committer, Outcome, Retry
from pidts.model import Column, ColumnType, Key, Kind, PidtsError, Table, TableName
from pidts.reduce import Counts, NetChange
from pidts.target import MySqlTarget
from pidts.target.mysql.row_events import copies as events
from pidts.target.mysql.row_events.copies import CopiesLeft

pytestmark = pytest.mark.parametrize("kind", ["mariadb"])


@pytest.fixture
def structure(session: Any, name: TableName) -> Table:
    """Creates a table that has the row `(n, "x")` 1 + n % 3 times, for n from 0 to 599."""
    made = replace(keyless(name, {"a": INT, "b": text()}), keys=(Key("by_a", ("a",), unique=False),))
    create(session, made)
    there = [(number, "x") for number in range(COUNT) for _ in range(1 + number % 3)]
    assert write(session, copies(made, upserts=there)) > 1
    return made


def copies(
    structure: Table, deletes: Sequence[tuple[Sequence[Any], int]] = (), upserts: Sequence[Sequence[Any]] = ()
) -> NetChange:
    times = pa.array([number for _, number in deletes], pa.int64())
    return NetChange(
        structure, rows(structure, *(row for row, _ in deletes)), rows(structure, *upserts), Counts(), times
    )


def write(session: Any, one: NetChange) -> int:
    """Writes the change in a transaction, and returns the number of BINLOG statements in it."""
    before = sent(session)
    session.begin()
    session.write(one)
    session.commit()
    return sent(session) - before


def refuse(session: Any, reason: str, one: NetChange) -> None:
    """Demands that the target refuses a change for this reason."""
    with pytest.raises(PidtsError, match=reason):
        write(session, one)
    session.rollback()


def content(session: Any, structure: Table) -> Counter[tuple[Any, ...]]:
    return Counter(content_of(session, structure))


def expected(gone: Callable[[int], int], *new: tuple[Any, ...]) -> Counter[tuple[Any, ...]]:
    """Returns the rows of `structure` without some copies of each row, and with new rows."""
    left = {(number, "x"): count for number in range(COUNT) if (count := 1 + number % 3 - gone(number))}
    return Counter(left) + Counter(new)


NEW = [(number, "y") for number in range(300)]


def some_gone(structure: Table) -> NetChange:
    """Returns a change that removes one copy of each row, and a second copy of some, and adds 300 rows."""
    return copies(structure, [((number, "x"), gone(number)) for number in range(COUNT)], NEW)


def gone(number: int) -> int:
    return 2 if number % 9 == 2 else 1


def test_so_many_copies_of_each_row_are_removed(session: Any, structure: Table) -> None:
    assert write(session, some_gone(structure)) > 1
    assert not session._events._pauses, "the server has refused events"
    assert content(session, structure) == expected(gone, *NEW)


def updated(session: Any) -> int:
    """Returns how many rows the session has updated so far."""
    return int(session.rows("SHOW SESSION STATUS LIKE 'Handler_update'")[0][1])


def test_a_new_row_with_the_same_values_in_the_index_overwrites_a_removed_copy(session: Any, structure: Table) -> None:
    before = updated(session)
    write(session, some_gone(structure))
    assert updated(session) - before == len(NEW)
    write(
        session, copies(structure, [((number, "y"), 1) for number in range(300)], [(9000 + n, "y") for n in range(9)])
    )
    assert updated(session) - before == len(NEW), "no new row has a removed row's value in the index"
    assert content(session, structure) == expected(gone, *[(9000 + number, "y") for number in range(9)])


def test_several_copies_are_overwritten_by_several_new_rows(session: Any, structure: Table) -> None:
    before, twice = updated(session), [number for number in range(COUNT) if number % 3 == 2]
    new = [(number, f"{number} {place}") for number in twice for place in range(3)]
    write(session, copies(structure, [((number, "x"), 2) for number in twice], new))
    assert updated(session) - before == 2 * len(twice)
    assert content(session, structure) == expected(lambda number: 2 * (number % 3 == 2), *new)


def test_a_missing_copy_halts_although_others_are_overwritten(session: Any, structure: Table) -> None:
    gone_ = [((number, "x"), 1) for number in range(COUNT)]
    refuse(session, "row-missing", copies(structure, [*gone_[:-1], ((COUNT - 1, "z"), 1)], NEW))
    assert content(session, structure) == expected(lambda _: 0)


@pytest.mark.parametrize("seed", range(3))
def test_random_changes_leave_the_copies_that_they_should(session: Any, name: TableName, seed: int) -> None:
    chance = random.Random(seed)
    made = replace(keyless(name, {"a": INT, "b": text()}), keys=(Key("by_a", ("a",), unique=False),))
    create(session, made)
    there: Counter[tuple[Any, ...]] = Counter()
    for _ in range(6):
        rows_ = list(there.elements())
        removed = Counter(chance.sample(rows_, chance.randrange(len(rows_) + 1)))
        new = [(chance.choice([None, *range(150)]), f"text {chance.randrange(9)}") for _ in range(COUNT)]
        added = Counter(row for row in new if row not in removed)
        write(session, copies(made, list(removed.items()), list(added.elements())))
        there = there - removed + added
        assert content(session, made) == there
    assert updated(session)
    assert not session._events._pauses, "the server has refused events"


def test_new_rows_alone_are_events(session: Any, structure: Table) -> None:
    assert write(session, copies(structure, upserts=NEW)) > 0
    assert content(session, structure) == expected(lambda _: 0, *NEW)


def test_rows_of_every_type_are_found_whether_sql_or_events_have_written_them(session: Any, name: TableName) -> None:
    typed = every_type(name)
    columns = [column for column in typed.columns if column.name not in _NOT_ENCODED]
    columns = [*map(as_on_mariadb, [*columns, Column("c_json", ColumnType(Kind.JSON))])]
    made = replace(
        typed, columns=tuple(replace(column, nullable=True) for column in columns), keys=(Key("by_id", ("id",)),)
    )
    create(session, made)
    chance = random.Random(11)
    for by_events in (True, False):
        there = encodable(random_rows(made, chance, 0, COUNT), made)
        one_by_one = [there] if by_events else [there.slice(first, 100) for first in range(0, COUNT, 100)]
        none = copies(made)
        assert all((write(session, replace(none, upserts=part)) > 0) == by_events for part in one_by_one)
        once = pa.array([1] * COUNT, pa.int64())
        other = encodable(random_rows(made, chance, 0, COUNT), made)
        before = updated(session)
        assert write(session, replace(none, deletes=there, times=once, upserts=other)) > 1
        assert updated(session) - before == COUNT
        assert write(session, replace(none, deletes=other, times=once)) > 1
        assert not session._events._pauses, "the server has refused events"
        assert session.count(name) == 0


def test_fewer_copies_than_recorded_halt_and_nothing_is_written(session: Any, structure: Table) -> None:
    change_ = some_gone(structure)
    one_too_many = replace(change_, times=pa.array([2 if n == 300 else gone(n) for n in range(COUNT)], pa.int64()))
    refuse(session, "row-missing.* 1 of 2 copies", one_too_many)
    assert content(session, structure) == expected(lambda _: 0)


def test_a_row_that_only_sql_finds_is_removed(session: Any, name: TableName) -> None:
    """To the server, -0.0 equals 0.0; their bytes differ."""
    made = replace(keyless(name, {"a": INT, "d": ColumnType(Kind.DOUBLE)}), keys=(Key("by_a", ("a",)),))
    create(session, made)
    assert write(session, copies(made, upserts=[(number, 0.0) for number in range(COUNT)])) > 1
    assert write(session, copies(made, [((number, -0.0), 1) for number in range(COUNT)])) > 0
    assert session.count(name) == 0


def test_sql_removes_the_rest_if_the_server_reads_many_rows_to_find_one(session: Any, structure: Table) -> None:
    session.execute(f"ALTER TABLE {structure.name} DROP KEY by_a")
    assert write(session, some_gone(structure)) > 1
    assert session._events._slow
    assert content(session, structure) == expected(gone, *NEW)
    assert write(session, copies(structure, upserts=NEW)) == 1, "new rows need no search"
    before = write(session, copies(structure, [((number, "y"), 2) for number in range(300)], NEW))
    assert before == 1
    assert content(session, structure) == expected(gone, *NEW)


def slow_at(session: Any, number: int) -> None:
    """Lets this BINLOG statement of the session take long."""
    execute, seen = session.pipeline.now, list[bytes]()

    def slow(sql: bytes, *args: Any) -> Any:
        seen.append(sql)
        if sql.startswith(b"BINLOG") and len([each for each in seen if each.startswith(b"BINLOG")]) == number:
            time.sleep(0.6)
        return execute(sql, *args)

    session.pipeline.now = slow


def test_sql_removes_the_rest_if_an_event_takes_long(session: Any, structure: Table) -> None:
    """The server does not count the rows that the transaction has removed, although it reads them again and again."""
    slow_at(session, 3)
    assert write(session, copies(structure, [((number, "x"), gone(number)) for number in range(COUNT)])) == 3
    assert content(session, structure) == expected(gone)
    assert write(session, copies(structure, [((number, "x"), 1) for number in range(COUNT) if number % 3])) == 0


@pytest.mark.parametrize("times", [[3000] + [1] * 299, [50] * 300], ids=["one row", "each row"])
def test_an_event_removes_few_copies(session: Any, name: TableName, times: list[int]) -> None:
    """The server looks for each copy from the first one on, so an event of many copies would take very long."""
    made = keyless(name, {"a": INT, "b": text()})
    create(session, made)
    write(
        session, copies(made, upserts=[(number, "x") for number, count in enumerate(times) for _ in range(count + 1)])
    )
    execute, sizes = session.pipeline.now, list[int]()

    def measured(sql: bytes, *args: Any) -> Any:
        sizes.extend([len(sql)] if sql.startswith(b"BINLOG") else [])
        return execute(sql, *args)

    session.pipeline.now = measured
    assert write(session, copies(made, [((number, "x"), count) for number, count in enumerate(times)])) > 0
    assert max(sizes) < 16 << 10, "the size of 1,000 rows of this table is 11 KiB"
    assert content(session, made) == Counter((number, "x") for number in range(len(times)))


def test_new_rows_that_no_update_has_written_are_inserted_if_an_event_takes_long(
    session: Any, structure: Table
) -> None:
    before = updated(session)
    slow_at(session, 2)
    write(session, some_gone(structure))
    assert updated(session) - before == 9, "two events, with one row and with eight rows"
    assert session._events._slow
    assert content(session, structure) == expected(gone, *NEW)


def test_an_index_that_finds_few_rows_is_used_to_the_end(session: Any, structure: Table) -> None:
    assert write(session, some_gone(structure)) > 1
    assert not session._events._slow


def test_a_table_without_an_index_loses_the_same_rows(session: Any, name: TableName) -> None:
    made = keyless(name, {"a": INT, "b": text()})
    create(session, made)
    there = [(number % 40 or None, f"text {number % 7}") for number in range(COUNT)]
    write(session, copies(made, upserts=there))
    gone = [(row, count) for row, count in Counter(there).items() if row[0] is None or row[0] % 2]
    write(session, copies(made, gone))
    assert content(session, made) == Counter(row for row in there if row[0] is not None and row[0] % 2 == 0)


def test_a_unique_key_of_the_target_finds_no_other_row(session: Any, structure: Table, rival: Any) -> None:
    rival(f"DELETE FROM {structure.name}")
    rival(f"ALTER TABLE {structure.name} ADD PRIMARY KEY (a)")
    with_key = [(number, "x") for number in range(COUNT)]
    assert write(session, copies(structure, upserts=with_key)) <= 1
    other = [((number, "other" if number == 5 else "x"), 1) for number in range(COUNT)]
    refuse(session, "row-missing", copies(structure, other))
    assert content(session, structure) == Counter(with_key)


@pytest.mark.parametrize("lacking", ["INSERT", "DELETE"])
def test_an_account_that_may_not_write_a_table_is_refused(
    target: MySqlTarget, session: Any, structure: Table, rival: Any, lacking: str
) -> None:
    user = f"plain_{random.randrange(10**9)}"
    granted = ", ".join({"SELECT", "INSERT", "UPDATE", "DELETE", "TRIGGER"} - {lacking})
    rival(f"CREATE USER {user}@localhost IDENTIFIED BY ''")
    rival(f"GRANT {granted} ON {structure.name.schema}.* TO {user}@localhost")
    rival(f"GRANT BINLOG REPLAY ON *.* TO {user}@localhost")
    with closing(replace(target, user=user, password="").connect()) as own:
        refuse(own, f"{lacking}.* command denied", some_gone(structure))
    assert content(session, structure) == expected(lambda _: 0)


def test_no_account_needs_the_privilege_update(target: MySqlTarget, session: Any, structure: Table, rival: Any) -> None:
    user = f"plain_{random.randrange(10**9)}"
    rival(f"CREATE USER {user}@localhost IDENTIFIED BY ''")
    rival(f"GRANT SELECT, INSERT, DELETE, TRIGGER ON {structure.name.schema}.* TO {user}@localhost")
    rival(f"GRANT BINLOG REPLAY ON *.* TO {user}@localhost")
    with closing(replace(target, user=user, password="").connect()) as own:
        assert write(own, some_gone(structure)) > 1
        assert updated(own) == 0
    assert content(session, structure) == expected(gone, *NEW)


def test_the_table_keeps_its_definition_until_the_commit(session: Any, structure: Table, rival: Any) -> None:
    session.begin()
    session.write(some_gone(structure))
    rival("SET SESSION lock_wait_timeout = 1")
    with pytest.raises(pymysql.err.OperationalError, match="Lock wait timeout"):
        rival(f"ALTER TABLE {structure.name} MODIFY b varchar(40) FIRST")
    session.commit()
    assert content(session, structure) == expected(gone, *NEW)


@pytest.mark.parametrize("at", [1, 3, 5, "sql", "before COMMIT"])
def test_a_connection_that_is_killed_leaves_nothing_and_the_batch_is_written_once(
    target: MySqlTarget,
    session: Any,
    task: str,
    structure: Table,
    rival: Any,
    monkeypatch: pytest.MonkeyPatch,
    at: int | str,
) -> None:
    """The connection is killed before one of the events, before SQL removes the rest, or before COMMIT."""
    attempts = sends = 0
    execute = events.CopyEvents.remove

    def kill(own: Any) -> None:
        rival(f"KILL {own.now(b'SELECT CONNECTION_ID()').rows[0][0]}")

    def removing(self: Any, *args: Any) -> CopiesLeft:
        nonlocal sends
        now = self._pipeline.now

        def sending(sql: bytes, table: str = "") -> Any:
            nonlocal sends
            sends += sql.startswith(b"BINLOG")
            if attempts == 1 and sql.startswith(b"BINLOG") and sends == at:
                kill(self._pipeline)
            return now(sql, table)

        monkeypatch.setattr(self._pipeline, "now", sending)
        if at == "sql":
            monkeypatch.setattr(events, "_READS", 0)
            monkeypatch.setattr(events, "_FIRST_READS", -1)
        left = execute(self, *args)
        if attempts == 1 and at == "sql":
            assert 0 < left.upserts.num_rows < len(NEW), "an event has updated some rows"
            assert left.deletes.num_rows
            kill(self._pipeline)
        return left

    monkeypatch.setattr(events.CopyEvents, "remove", removing)

    def changes(own: Any) -> Iterator[NetChange]:
        nonlocal attempts, sends
        attempts, sends = attempts + 1, 0
        yield some_gone(structure)
        own.pipeline.flush()
        if attempts == 1 and at == "before COMMIT":
            kill(own.pipeline)
        yield copies(structure, upserts=[(2000, str(attempts))])

    epoch = session.meta.checkpoints.claim(task, "s", 1, checkpoint(100))[0].epoch
    with Committer(target, task, "s", epoch, retry=Retry(attempts=3), sleep=lambda _: None) as committer:
        assert committer.commit(0, lsn(100), checkpoint(200), changes) is Outcome.APPLIED
        assert committer.commit(0, lsn(100), checkpoint(200), changes) is Outcome.ALREADY
    assert attempts == 2
    assert content(session, structure) == expected(gone, *NEW, (2000, "2"))
