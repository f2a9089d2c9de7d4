"""MariaDB: many rows are written as row events, with the same result as SQL, and as SQL wherever events could differ."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pymysql
import pytest
from tests.target.conformance.locks.test_rows_that_differ import random_rows
from tests.target.conformance.samples import (
    EXTREMES,
    INT,
    change,
    checkpoint,
    create,
    every_type,
    lsn,
    rows,
    table,
    text,
)

from pidts.apply import Committer, Outcome, Retry
from pidts.login.privileges import account_name, grant_statements
from pidts.model import Column, ColumnType, Halted, Kind, PidtsError, Table, TableName
from pidts.reduce import Counts, NetChange
from pidts.target import MySqlTarget
from pidts.target.mysql.privileges import for_row_events
from pidts.target.mysql.row_events import writer

pytestmark = pytest.mark.parametrize("kind", ["mariadb"])
COUNT = 600
_NOT_ENCODED = ("c_geometry", "c_vector", "c_uuid", "c_inet4", "c_inet6", "c_decimal_wide")


def net(structure: Table, there: pa.Table, is_new: Sequence[bool], gone: Sequence[Sequence[Any]] = ()) -> NetChange:
    deletes = change(structure, deletes=gone).deletes
    return NetChange(structure, deletes, there, Counts(updated=len(is_new)), likely_new=pa.array(is_new, pa.bool_()))


def write(session: Any, *changes: NetChange) -> int:
    """Writes the changes in a transaction, and returns the number of BINLOG statements in it.

    The first BINLOG statement of a session has no rows, and is counted, too.
    """
    before = sent(session)
    session.begin()
    for one in changes:
        session.write(one)
    session.commit()
    return sent(session) - before


def refuse(session: Any, reason: str, change: NetChange) -> None:
    """Demands that the target refuses a change for this reason."""
    with pytest.raises(Halted, match=reason):
        write(session, change)
    session.rollback()


def sent(session: Any) -> int:
    return int(session.rows("SHOW SESSION STATUS LIKE 'Com_binlog'")[0][1])


def content(session: Any, structure: Table) -> list[tuple[Any, ...]]:
    found = session.read_rows(structure)
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


def pairs(*, first: int = 0, count: int = COUNT, value: int = 0) -> list[tuple[int, int]]:
    return [(number, value) for number in range(first, first + count)]


@pytest.fixture
def structure(session: Any, name: TableName) -> Table:
    """Creates a table whose rows 0 to 599 have the value 0."""
    made = table(name, {"id": INT, "v": INT})
    create(session, made)
    session.begin()
    session.write(change(made, upserts=pairs()))
    session.commit()
    return made


def updated_and_new(structure: Table, value: int) -> NetChange:
    """Returns a change that updates rows 100 to 599, inserts rows 600 to 899, and deletes rows 0 to 9."""
    there = rows(structure, *pairs(first=100, count=800, value=value))
    return net(structure, there, [number >= 600 for number in range(100, 900)], [(at,) for at in range(10)])


def after(value: int) -> list[tuple[int, int]]:
    return [*pairs(first=10, count=90), *pairs(first=100, count=800, value=value)]


def test_values_of_every_type_are_stored_as_by_sql(session: Any, name: TableName) -> None:
    made = every_type(name)
    columns = tuple(column for column in made.columns if column.name not in _NOT_ENCODED)
    by_events = replace(made, columns=(*columns, Column("c_json", ColumnType(Kind.JSON))))
    by_events = replace(by_events, columns=tuple(map(as_on_mariadb, by_events.columns)))
    by_sql = by_events.renamed(replace(name, name=f"{name.name[:50]}_s"))
    create(session, by_events)
    create(session, by_sql)
    chance = random.Random(7)
    for _ in range(3):
        there = encodable(random_rows(by_events, chance, 0, COUNT), by_events)
        write(session, change(by_sql, deletes=[(at,) for at in range(COUNT)]))
        write(session, change(by_events, deletes=[(at,) for at in range(COUNT)]))
        half = [number < COUNT // 2 for number in range(COUNT)]
        empty = rows(by_events, *[(number, *[None] * (len(by_events.columns) - 1)) for number in range(COUNT)])
        write(session, net(by_events, empty.slice(COUNT // 2), [True] * (COUNT // 2)))
        assert write(session, net(by_events, there, half)) > 0
        assert write(session, NetChange(by_sql, change(by_sql).deletes, there, Counts())) == 0
        plain = session.read_rows(by_sql)
        assert plain.num_rows == COUNT
        for column in plain.column_names:
            assert session.read_rows(by_events)[column].equals(plain[column]), column
        where = f"FROM {by_events.name} a JOIN {by_sql.name} b USING (id)"
        same = " AND ".join(f"a.`{c.name}` <=> b.`{c.name}`" for c in by_events.columns)
        assert session.rows(f"SELECT COUNT(*), SUM({same}) {where}") == [(COUNT, COUNT)]
        first, second = session.rows(f"CHECKSUM TABLE {by_events.name}, {by_sql.name}")
        assert first[1] == second[1]
        assert not session._events._pauses, "the server has refused events"


def as_on_mariadb(column: Column) -> Column:
    """Returns the column as MariaDB shows it: a JSON column is a LONGTEXT."""
    if column.type.kind is Kind.JSON:
        return replace(column, type=ColumnType(Kind.LONGTEXT, charset="utf8mb4", collation="utf8mb4_bin"))
    return column


def encodable(there: pa.Table, structure: Table) -> pa.Table:
    """Returns rows whose values events can have: no zero dates, no negative times, and only ASCII in latin1."""
    for place, column in enumerate(structure.columns):
        values = there.column(place)
        kind = column.type.kind
        if kind in (Kind.DATE, Kind.DATETIME, Kind.TIMESTAMP, Kind.TIME):
            numbers = values.cast(pa.int32() if kind is Kind.DATE else pa.int64())
            least = {Kind.TIME: 0, Kind.TIMESTAMP: 1_000_000}.get(kind)
            if least is None:
                least = pa.scalar(-719_162 if kind is Kind.DATE else -719_162 * 86_400_000_000)
            values = pc.if_else(pc.less(numbers, least), None, values)
        if column.name == "c_latin1":
            values = pc.if_else(pc.string_is_ascii(values), values, "plain")
        if column.name == "c_json" or kind is Kind.LONGTEXT:
            values = pa.chunked_array([pa.array(['{"n": 1, "s": "é"}'] * (len(values) - 1) + [None])])
        if kind is Kind.DOUBLE:  # SQL would write -0.0 as 0.0
            values = pc.add(values, 0.0)
        if kind is Kind.ENUM:
            values = pc.if_else(pc.equal(values, ""), None, values)
        there = there.set_column(place, column.name, values.cast(there.schema.field(place).type))
    return there


def test_extreme_values_are_stored_as_by_sql(session: Any, name: TableName) -> None:
    made = every_type(name)
    structure = replace(made, columns=tuple(c for c in made.columns if c.name not in _NOT_ENCODED))
    create(session, structure)
    names = [column.name for column in structure.columns[1:]]
    low, high = ([EXTREMES[column][side] for column in names] for side in (0, 1))
    odd = {"c_time": 0, "c_time6": 0, "c_datetime6": 0, "c_latin1": "a"}
    low, high = (
        [odd.get(n, v) if n in odd else v for n, v in zip(names, values, strict=True)] for values in (low, high)
    )
    null = [None] * len(names)
    values = [(number, *(low, high, null)[number % 3]) for number in range(COUNT)]
    assert write(session, net(structure, rows(structure, *values), [True] * COUNT)) > 1
    by_events = session.read_rows(structure)
    write(session, change(structure, deletes=[(number,) for number in range(COUNT)]))
    assert write(session, change(structure, upserts=values)) == 0
    for column in by_events.column_names:
        assert by_events[column].equals(session.read_rows(structure)[column]), column
    assert by_events.num_rows == COUNT


@pytest.mark.parametrize("column", ["c_time", "c_latin1", "c_datetime", "c_date"])
def test_a_value_that_events_cannot_have_is_written_as_sql(session: Any, name: TableName, column: str) -> None:
    made = every_type(name)
    structure = replace(made, columns=tuple(c for c in made.columns if c.name in ("id", column)))
    create(session, structure)
    odd = {"c_time": -1_000_000, "c_latin1": "Ä€ÿ"}.get(column, 0)
    if column in ("c_datetime", "c_date"):
        from pidts.model import calendar

        day = calendar.days(2024, 2, 31)
        odd = day if column == "c_date" else calendar.microseconds(day, 0)
    values = [(number, odd if number == 400 else None) for number in range(COUNT)]
    wanted = rows(structure, *values)
    write(session, net(structure, wanted, [True] * COUNT))
    assert session.read_rows(structure)[column].null_count == COUNT - 1
    assert session.read_rows(structure).equals(wanted)


def test_updates_inserts_and_deletes_are_one_transaction(session: Any, structure: Table, rival: Any) -> None:
    session.begin()
    session.write(updated_and_new(structure, 5))
    assert rival(f"SELECT COUNT(*), SUM(v) FROM {structure.name}") == ((COUNT, 0),)
    session.rollback()
    assert content(session, structure) == pairs()
    assert write(session, updated_and_new(structure, 5)) > 1
    assert content(session, structure) == after(5)


@pytest.mark.parametrize("drift", ["DELETE FROM {t} WHERE id = 500", "INSERT INTO {t} VALUES (700, 9)"])
def test_a_target_that_differs_gets_the_same_rows_as_by_sql(
    session: Any, structure: Table, rival: Any, drift: str
) -> None:
    rival(drift.format(t=structure.name))
    assert write(session, updated_and_new(structure, 5)) > 1
    assert content(session, structure) == after(5)
    back = net(structure, rows(structure, *pairs(first=100, count=800, value=6)), [False] * 800)
    assert write(session, back) == 0, "after a refusal, the next changes are written as SQL"
    assert content(session, structure) == after(6)


def test_a_trigger_of_the_target_is_executed(session: Any, structure: Table, rival: Any) -> None:
    assert write(session, updated_and_new(structure, 5)) > 1
    rival(
        f"CREATE TRIGGER {structure.name}_doubles BEFORE UPDATE ON {structure.name} FOR EACH ROW SET NEW.v = 2 * NEW.v"
    )
    there = rows(structure, *pairs(first=100, count=800, value=7))
    assert write(session, net(structure, there, [False] * 800)) == 0
    assert content(session, structure) == after(14)


def test_a_check_of_the_target_is_executed(session: Any, structure: Table, rival: Any) -> None:
    assert write(session, updated_and_new(structure, 5)) > 1
    rival(f"ALTER TABLE {structure.name} ADD CHECK (v < 6)")
    refuse(session, "CONSTRAINT", net(structure, rows(structure, *pairs(first=100, count=800, value=7)), [False] * 800))
    assert content(session, structure) == after(5)


def test_columns_that_change_their_places_keep_their_values(session: Any, name: TableName, rival: Any) -> None:
    structure = table(name, {"id": INT, "a": INT, "b": INT})
    create(session, structure)
    values = [(number, 1, 2) for number in range(COUNT)]
    assert write(session, net(structure, rows(structure, *values), [True] * COUNT)) > 1
    rival(f"ALTER TABLE {name} MODIFY b int AFTER id")
    values = [(number, 3, 4) for number in range(COUNT)]
    for _ in range(2):
        write(session, net(structure, rows(structure, *values), [False] * COUNT))
        assert rival(f"SELECT SUM(a), SUM(b) FROM {name}") == ((3 * COUNT, 4 * COUNT),)


def test_no_column_can_change_its_place_before_the_commit(
    target: MySqlTarget, session: Any, structure: Table, rival: Any
) -> None:
    session.begin()
    session.write(updated_and_new(structure, 5))
    rival("SET SESSION lock_wait_timeout = 1")
    with pytest.raises(pymysql.err.OperationalError, match="Lock wait timeout"):
        rival(f"ALTER TABLE {structure.name} MODIFY v int FIRST")
    session.commit()
    assert content(session, structure) == after(5)


def test_a_server_that_skips_missing_rows_gets_sql(session: Any, structure: Table, rival: Any) -> None:
    rival("SET GLOBAL slave_exec_mode = IDEMPOTENT")
    try:
        rival(f"DELETE FROM {structure.name} WHERE id = 500")
        assert write(session, updated_and_new(structure, 5)) <= 1
    finally:
        rival("SET GLOBAL slave_exec_mode = STRICT")
    assert content(session, structure) == after(5)


@pytest.mark.parametrize("lacking", ["BINLOG REPLAY", "TRIGGER"])
def test_an_account_without_a_privilege_writes_sql(
    target: MySqlTarget, structure: Table, rival: Any, lacking: str
) -> None:
    user = f"plain_{random.randrange(10**9)}"
    rival(f"CREATE USER {user}@localhost IDENTIFIED BY ''")
    schema = structure.name.schema
    rival(f"GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON *.* TO {user}@localhost")
    if lacking != "BINLOG REPLAY":
        rival(f"GRANT BINLOG REPLAY ON *.* TO {user}@localhost")
    if lacking != "TRIGGER":
        rival(f"GRANT TRIGGER ON {schema}.* TO {user}@localhost")
    with closing(replace(target, user=user, password="").connect()) as session:
        # The session sends at most one BINLOG statement. The server refuses it, so the session knows that the privilege
        # is missing.
        assert write(session, updated_and_new(structure, 5)) <= 1
        assert content(session, structure) == after(5)
        write(session, net(structure, rows(structure, *pairs(first=100, count=800, value=6)), [False] * 800))
        assert content(session, structure) == after(6)
        assert sent(session) <= 1


def test_an_account_with_the_optional_privileges_writes_events(
    target: MySqlTarget, session: Any, structure: Table, rival: Any
) -> None:
    user = f"plain_{random.randrange(10**9)}"
    schema = structure.name.schema
    optional = for_row_events(session.server, [schema])
    rival(f"CREATE USER {user}@localhost IDENTIFIED BY ''")
    rival(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}.* TO {user}@localhost")
    for sql in grant_statements(optional, account_name(user, "localhost")):
        rival(sql)
    with closing(replace(target, user=user, password="").connect()) as own:
        assert write(own, updated_and_new(structure, 5)) > 1
        assert content(own, structure) == after(5)


def test_a_privilege_that_is_given_or_taken_while_the_session_lasts_counts(
    target: MySqlTarget, structure: Table, rival: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_PRIVILEGES_SECONDS", 0.0)
    user = f"plain_{random.randrange(10**9)}"
    schema = structure.name.schema
    rival(f"CREATE USER {user}@localhost IDENTIFIED BY ''")
    rival(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}.* TO {user}@localhost")
    rival(f"GRANT BINLOG REPLAY ON *.* TO {user}@localhost")
    there = rows(structure, *pairs(first=100, count=800, value=7))
    with closing(replace(target, user=user, password="").connect()) as own:
        assert write(own, updated_and_new(structure, 5)) <= 1
        rival(f"GRANT TRIGGER ON {schema}.* TO {user}@localhost")
        assert write(own, net(structure, there, [False] * 800)) == 1
        assert content(own, structure) == after(7)
        rival(f"REVOKE TRIGGER ON {schema}.* FROM {user}@localhost")
        rival(
            f"CREATE TRIGGER {structure.name}_doubles BEFORE UPDATE ON {structure.name} FOR EACH ROW "
            "SET NEW.v = 2 * NEW.v"
        )
        assert write(own, net(structure, there, [False] * 800)) == 0
        assert content(own, structure) == after(14)


def test_servers_without_row_events_have_no_optional_privileges(session: Any) -> None:
    older = replace(session.server.dialect, version=(10, 4, 99))
    node = replace(session.server, is_cluster=True)
    for server in (replace(session.server, dialect=older), node):
        assert list(for_row_events(server, ["shop"])) == []


@pytest.mark.parametrize("lacking", ["INSERT", "UPDATE"])
def test_an_account_that_may_not_write_a_table_is_refused(
    target: MySqlTarget, structure: Table, rival: Any, lacking: str
) -> None:
    user = f"plain_{random.randrange(10**9)}"
    granted = ", ".join({"SELECT", "INSERT", "UPDATE", "DELETE", "TRIGGER"} - {lacking})
    rival(f"CREATE USER {user}@localhost IDENTIFIED BY ''")
    rival(f"GRANT {granted} ON {structure.name.schema}.* TO {user}@localhost")
    rival(f"GRANT BINLOG REPLAY ON *.* TO {user}@localhost")
    before = rival(f"SELECT * FROM {structure.name} ORDER BY id")
    with closing(replace(target, user=user, password="").connect()) as session:
        session.begin()
        with pytest.raises(PidtsError, match=f"{lacking}.* command denied"):
            session.write(updated_and_new(structure, 5))
    assert rival(f"SELECT * FROM {structure.name} ORDER BY id") == before


def test_null_in_a_column_that_cannot_be_null_is_refused(session: Any, name: TableName) -> None:
    structure = table(name, {"id": INT, "v": INT})
    create(session, structure)
    session.execute(f"ALTER TABLE {name} MODIFY v int NOT NULL")
    values = [(number, None if number == 5 else 1) for number in range(COUNT)]
    refuse(session, "cannot be null", net(structure, rows(structure, *values), [True] * COUNT))
    assert session.count(name) == 0


def test_a_wider_table_gets_sql(session: Any, name: TableName) -> None:
    structure = table(name, {"id": INT, "v": INT})
    create(session, structure)
    session.execute(f"ALTER TABLE {name} ADD w int DEFAULT 8 FIRST")
    assert write(session, net(structure, rows(structure, *pairs()), [True] * COUNT)) <= 1
    assert session.rows(f"SELECT SUM(w), COUNT(*) FROM {name}") == [(8 * COUNT, COUNT)]


def test_keys_that_the_target_treats_as_equal_are_no_update_of_another_row(session: Any, name: TableName) -> None:
    structure = table(name, {"id": text(), "v": INT})
    create(session, structure)
    session.execute(f"ALTER TABLE {name} MODIFY id varchar(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci")
    write(session, change(structure, upserts=[("A", 1)]))
    values = [("a", 2), *((f"row {number:04}", 3) for number in range(COUNT - 1))]
    refuse(session, "overwrite another", net(structure, rows(structure, *values), [True] * COUNT))


@pytest.mark.parametrize("form", ["ROW", "MIXED"])
def test_the_log_of_the_target_has_the_rows_in_the_transaction_of_the_checkpoint(
    session: Any, name: TableName, rival: Any, form: str
) -> None:
    structure = table(name, {"id": INT, "v": INT})
    create(session, structure)
    session.pipeline.now(f"SET SESSION binlog_format = {form}".encode())
    ((file, begin, *_),) = session.rows("SHOW MASTER STATUS")
    session.begin()
    session.write(net(structure, rows(structure, *pairs()), [True] * COUNT))
    session.rows(f"INSERT INTO {name} VALUES (5000, 1)")
    session.commit()
    events = session.rows(f"SHOW BINLOG EVENTS IN '{file}' FROM {begin}")
    ((own,),) = session.rows("SELECT @@server_id")
    assert {event[3] for event in events} == {own}
    kinds = [event[2] for event in events]
    assert kinds.count("Gtid") == kinds.count("Xid") == 1
    assert session.count(name) == COUNT + 1


def test_zero_is_kept_in_a_column_that_counts(session: Any, name: TableName) -> None:
    structure = table(name, {"id": INT, "v": INT})
    create(session, structure)
    session.execute(f"ALTER TABLE {name} MODIFY id int AUTO_INCREMENT")
    assert write(session, net(structure, rows(structure, *pairs()), [True] * COUNT)) > 1
    assert content(session, structure) == pairs()
    session.execute(f"INSERT INTO {name} (v) VALUES (1)")
    assert session.rows(f"SELECT MAX(id) FROM {name}") == [(COUNT,)]


class Attempts:
    """The attempts at a batch of many rows. In the first attempt, `between` is called after the row events and before
    COMMIT.
    """

    def __init__(self, structure: Table, between: Callable[[Any], None]) -> None:
        self._structure, self._between = structure, between
        self.count = 0

    def __call__(self, session: Any) -> Iterator[NetChange]:
        self.count += 1
        yield updated_and_new(self._structure, 5)
        assert sent(session) > 1
        if self.count == 1:
            self._between(session)
        yield change(self._structure, upserts=[(2000, self.count)])


def committed(
    target: MySqlTarget, task: str, attempts: Attempts, pause: Callable[[], Any]
) -> tuple[Outcome, list[Any]]:
    with closing(target.connect()) as session:
        epoch = session.meta.checkpoints.claim(task, "s", 1, checkpoint(100))[0].epoch
        with Committer(target, task, "s", epoch, retry=Retry(attempts=3), sleep=lambda _: pause()) as writer:
            outcome = writer.commit(0, lsn(100), checkpoint(200), attempts)
            assert writer.commit(0, lsn(100), checkpoint(200), attempts) is Outcome.ALREADY
        return outcome, [row.lsn for row in session.meta.checkpoints.read(task, "s")]


def test_a_connection_that_is_killed_after_the_events_leaves_nothing(
    target: MySqlTarget, session: Any, task: str, structure: Table, rival: Any
) -> None:
    def kill(other: Any) -> None:
        rival(f"KILL {other.pipeline.now(b'SELECT CONNECTION_ID()').rows[0][0]}")

    found: list[Any] = []
    attempts = Attempts(structure, kill)
    done = committed(target, task, attempts, lambda: found.append(wait_for(session, structure)))
    assert done == (Outcome.APPLIED, [lsn(200)])
    assert found == [pairs()]
    assert attempts.count == 2
    assert content(session, structure) == [*after(5), (2000, 2)]


def wait_for(session: Any, structure: Table) -> list[tuple[Any, ...]]:
    """Returns the rows once no other transaction locks one of them."""
    session.begin()
    session.rows(f"SELECT COUNT(*) FROM {structure.name} FOR UPDATE")
    found = content(session, structure)
    session.rollback()
    return found


def test_the_victim_of_a_deadlock_among_events_tries_again(
    target: MySqlTarget, session: Any, task: str, structure: Table, rival: Any
) -> None:
    rival("START TRANSACTION")
    rival(f"UPDATE {structure.name} SET v = -1 WHERE id BETWEEN 300 AND 599")
    rival(f"INSERT INTO {structure.name} SELECT seq, 1 FROM {structure.name.schema}.seq_5000_to_9000")
    threads: list[threading.Thread] = []

    class Crossing(Attempts):
        def __call__(self, session: Any) -> Iterator[NetChange]:
            self.count += 1
            if self.count == 1:
                yield change(structure, upserts=[(100, 1)])
                session.pipeline.flush()
                threads.append(
                    threading.Thread(target=rival, args=[f"UPDATE {structure.name} SET v = -1 WHERE id = 100"])
                )
                threads[0].start()
                time.sleep(0.3)
            yield updated_and_new(structure, 5)

    def end() -> None:
        threads[0].join()
        rival("ROLLBACK")

    attempts = Crossing(structure, lambda _: None)
    assert committed(target, task, attempts, end) == (Outcome.APPLIED, [lsn(200)])
    assert attempts.count == 2
    assert content(session, structure) == after(5)
