"""At whatever point a commit is interrupted, each record exists once, with the right number."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from tests.conftest import RunSql
from tests.crashes import ProcessDied

from pidts.apply import Outcome, Retry
from pidts.gate import committer as committing
from pidts.gate.committer import Channel, ChannelCommitter
from pidts.model import Checkpoint, Fenced, Halted, Lsn, Transient
from pidts.sandbox import Server
from pidts.target.mysql import MySqlSession, MySqlTarget
from pidts.target.mysql.datacenter import Datacenter, Numbers

PIECES, ROWS = 5, 7
BEGIN, END = Lsn(0, 1, 100), Lsn(0, 1, 200)
pytestmark = pytest.mark.repeats("mysql56")
POINTS = ["before a piece", "behind a piece", "before the checkpoint", "before the commit", "behind the commit"]


def _made(last: Numbers) -> Iterator[tuple[pa.Table, Numbers]]:
    """Returns five pieces of one transaction each."""
    for piece in range(PIECES):
        ids = range(last.id + 1 + piece * ROWS, last.id + 1 + (piece + 1) * ROWS)
        rows = pa.table(
            {
                "id": pa.array(ids, pa.uint64()),
                "tid": pa.array([last.tid + piece + 1] * ROWS, pa.uint64()),
                "dbname": ["d"] * ROWS,
                "tablename": ["t"] * ROWS,
                "create_time": pa.array([10**15] * ROWS, pa.timestamp("us", "UTC")),
                "instance_name": ["127.0.0.1:1"] * ROWS,
                "optype": ["INSERT"] * ROWS,
                "data": pa.array([f'{{"NEW":[{{"id":"{number}"}}]}}' for number in ids], pa.large_string()),
            }
        )
        yield rows, Numbers(ids[-1], last.tid + piece + 1)


@pytest.fixture
def mysql_like(request: pytest.FixtureRequest) -> Server:
    """Returns MySQL 9.7, unless a test names other servers: the committer takes the same steps on all of them."""
    return request.getfixturevalue(getattr(request, "param", "mysql97"))  # type: ignore[no-any-return]


@pytest.fixture
def target(mysql_like: Server, database: str) -> MySqlTarget:
    target = MySqlTarget(mysql_like.host, mysql_like.port, mysql_like.user, mysql_like.password, meta_schema=database)
    with closing(target.connect()) as session:
        datacenter = Datacenter(session, database)
        datacenter.prepare()
        session.meta.prepare()
        session.begin()
        datacenter.begin()
        session.commit()
    return target


@pytest.fixture
def opened(target: MySqlTarget, database: str) -> Callable[[int], ChannelCommitter]:
    """Begins a new run, which claims the channel with this number of connections."""

    def run(connections: int) -> ChannelCommitter:
        with closing(target.connect()) as session:
            start = Checkpoint(task="c", source="s", worker=0, lsn=BEGIN)
            (claimed,) = session.meta.checkpoints.claim("c", "s", 1, start)
        channel = Channel(target, database, "c", "s", claimed.epoch, connections)
        return ChannelCommitter(channel, retry=Retry(attempts=3, first=0.01))

    return run


def _commit(committer: ChannelCommitter, begin: Lsn = BEGIN, end: Lsn = END) -> Outcome:
    return committer.commit(begin, Checkpoint(task="c", source="s", worker=0, lsn=end), _made, has_records=True)


def _demand_once(run_sql: RunSql, server: Server, database: str, times: int = 1) -> None:
    rows = run_sql(server, "SELECT id, tid FROM transfer_data ORDER BY id", database=database)
    assert rows == [(number + 1, number // ROWS + 1) for number in range(times * PIECES * ROWS)]
    done = run_sql(server, "SELECT id, tid FROM transfer_checkpoint", database=database)
    assert done == [(times * PIECES * ROWS, times * PIECES)]


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("connections", [1, 3])
@pytest.mark.parametrize(
    "error", [Transient("target-lost", "the connection is lost"), ProcessDied()], ids=["lost", "killed"]
)
def test_each_record_is_there_once(
    mysql_like: Server,
    database: str,
    opened: Callable[[int], ChannelCommitter],
    run_sql: RunSql,
    monkeypatch: pytest.MonkeyPatch,
    point: str,
    connections: int,
    error: BaseException,
) -> None:
    calls = _breaking(monkeypatch, point, error)
    with opened(connections) as committer:
        if isinstance(error, ProcessDied):
            with pytest.raises(ProcessDied):
                _commit(committer)
        else:
            assert _commit(committer) is Outcome.APPLIED
    assert calls.broken
    with opened(connections) as successor:
        expected = (
            Outcome.APPLIED if isinstance(error, ProcessDied) and point != "behind the commit" else Outcome.ALREADY
        )
        assert _commit(successor) is expected
        _demand_once(run_sql, mysql_like, database)
        assert _commit(successor, END, Lsn(0, 1, 300)) is Outcome.APPLIED
    _demand_once(run_sql, mysql_like, database, times=2)


def test_connections_share_the_rows_of_a_piece(
    mysql_like: Server,
    database: str,
    opened: Callable[[int], ChannelCommitter],
    run_sql: RunSql,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: list[int] = []
    add = Datacenter.add

    def adding(self: Datacenter, records: pa.Table) -> None:
        written.append(len(records))
        add(self, records)

    monkeypatch.setattr(committing, "_SHARED_ROWS", 3)
    _breaking(monkeypatch, "behind a piece", ProcessDied())
    with opened(4) as committer, pytest.raises(ProcessDied):
        _commit(committer)
    monkeypatch.setattr(Datacenter, "add", adding)
    with opened(4) as successor:
        assert _commit(successor) is Outcome.APPLIED
    assert sorted(written) == [3] * PIECES + [4] * PIECES  # Seven rows are two pieces of at least three rows.
    _demand_once(run_sql, mysql_like, database)


class _Break:
    """Raises an error once, at one point of the commit."""

    def __init__(self, error: BaseException) -> None:
        self._error, self.broken = error, False

    def __call__(self) -> None:
        if not self.broken:
            self.broken = True
            raise self._error


def _breaking(monkeypatch: pytest.MonkeyPatch, point: str, error: BaseException) -> _Break:
    """Interrupts the commit at the third piece, or at the last transaction."""
    fails, added, moved = _Break(error), count(1), [False]
    add, move, commit = Datacenter.add, Datacenter.move, MySqlSession.commit

    def adding(self: Datacenter, records: pa.Table) -> None:
        number = next(added)
        if point == "before a piece" and number == 3:
            fails()
        add(self, records)
        if point == "behind a piece" and number == 3:
            fails()

    def moving(self: Datacenter, before: Numbers, after: Numbers) -> None:
        if point == "before the checkpoint":
            fails()
        move(self, before, after)
        moved[0] = True

    def committing(self: MySqlSession) -> None:
        if point == "before the commit" and moved[0]:
            fails()
        commit(self)
        if point == "behind the commit" and moved[0]:
            fails()

    monkeypatch.setattr(Datacenter, "add", adding)
    monkeypatch.setattr(Datacenter, "move", moving)
    monkeypatch.setattr(MySqlSession, "commit", committing)
    return fails


@pytest.mark.parametrize("mysql_like", ["mariadb", "mysql97", "mysql56"], indirect=True)
@pytest.mark.parametrize("connections", [1, 3])
def test_a_run_that_was_taken_over_writes_nothing(
    mysql_like: Server,
    database: str,
    opened: Callable[[int], ChannelCommitter],
    run_sql: RunSql,
    connections: int,
) -> None:
    old = opened(connections)
    _commit(old)  # Now `old` has no record of leftover rows, and looks for none.
    with opened(connections) as new:
        with pytest.raises(Fenced):
            _commit(old, END, Lsn(0, 1, 300))
        _demand_once(run_sql, mysql_like, database)
        assert _commit(new, END, Lsn(0, 1, 300)) is Outcome.APPLIED
    _demand_once(run_sql, mysql_like, database, times=2)
    old.close()


def test_foreign_hands_are_noticed(
    mysql_like: Server, database: str, opened: Callable[[int], ChannelCommitter], run_sql: RunSql
) -> None:
    with opened(1) as committer:
        run_sql(mysql_like, "INSERT INTO transfer_checkpoint VALUES (5, 5)", database=database)
        with pytest.raises(Halted) as halted:
            _commit(committer)
        assert halted.value.code == "datacenter-altered"


def test_old_records_go_in_order_and_never_before_a_reader(
    mysql_like: Server, database: str, opened: Callable[[int], ChannelCommitter], run_sql: RunSql
) -> None:
    def left() -> Any:
        return run_sql(mysql_like, "SELECT MIN(id), COUNT(*) FROM transfer_data", database=database)[0]

    with opened(1) as committer:
        _commit(committer)
        run_sql(mysql_like, "INSERT INTO reader_cursor VALUES ('report', 12)", database=database)
        assert committer.remove_old(60, 10) == 10
        assert committer.remove_old(60, 10) == 2
        assert left() == (13, PIECES * ROWS - 12)
        run_sql(mysql_like, "DELETE FROM reader_cursor", database=database)
        run_sql(mysql_like, "UPDATE transfer_data SET create_time = NOW() WHERE id = 20", database=database)
        assert committer.remove_old(60, 100) == 7
        assert left() == (20, PIECES * ROWS - 19)
        assert committer.remove_old(60, 100) == 0
