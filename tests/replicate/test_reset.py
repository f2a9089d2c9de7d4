"""If a source's log is reset while it is read, the stream looks idle, and new log is missing. The replicator notices
this.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from pidts import sandbox
from pidts.model import Halted, Position
from pidts.relay import RelayReader
from pidts.relay.structures import is_stored
from pidts.replicate import Replicator, ReplicatorConfig, read_status, watch
from pidts.replicate.observer import structures_now
from pidts.replicate.watch import StreamCheck, ends_before, is_stalled
from pidts.sandbox import Server
from pidts.source import connect, query

from .test_live import RunSql, assert_holds_the_log, end_of, following, source_of, write

LOGS = (("bin.000007", 1000), ("bin.000009", 500))
START = {"mariadb": sandbox.start_mariadb, "mysql97": sandbox.start_mysql97, "mysql56": sandbox.start_mysql56}


def test_a_log_ends_before_a_place() -> None:
    for place in ("bin.000009:501", "bin.000010:4", "bin.000007:1001"):
        assert ends_before(LOGS, Position.parse(place))
    for place in ("bin.000009:500", "bin.000009:4", "bin.000007:1000", "bin.000008:9999", "bin.000003:9999"):
        assert not ends_before(LOGS, Position.parse(place)), "what was purged was there once"
    assert not ends_before((("bin.000007", 0), ("bin.000008", 4)), Position("bin.000007", 900)), (
        "it could not be opened"
    )


def test_a_stream_is_stalled_when_there_is_more_and_nothing_comes() -> None:
    behind, at_end = (StreamCheck(Position("bin.000009", offset), 70, LOGS) for offset in (400, 500))
    grown = StreamCheck(at_end.reading, 70, (("bin.000009", 800),))
    assert is_stalled(behind, behind)
    assert is_stalled(grown, grown)
    assert not is_stalled(at_end, grown), "it may be on its way"
    assert not is_stalled(behind, at_end)
    assert not is_stalled(behind, StreamCheck(behind.reading, 71, LOGS)), "a long transaction is one place"


@pytest.fixture(scope="module", params=list(START))
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """Starts a server for these tests alone, since they reset its log."""
    with START[request.param]() as started:
        yield started
        started.kill()


@pytest.fixture(autouse=True)
def _database(request: pytest.FixtureRequest, run_sql: RunSql) -> Iterator[None]:
    if "server" not in request.fixturenames:
        yield
        return
    server = request.getfixturevalue("server")
    run_sql(server, "CREATE DATABASE d")
    reset(run_sql, server)
    yield
    run_sql(server, "DROP DATABASE d")


@contextmanager
def repeating(server: Server, statement: str, pause: float) -> Iterator[list[int]]:
    """Repeats statements on a connection of its own during the test; yields how often they ran."""
    done, end = [0], threading.Event()

    def repeat() -> None:
        session = connect(source_of(server))
        while not end.wait(pause):
            query(session, statement)
            done[0] += 1
        session.close()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield done
    finally:
        end.set()
        thread.join()


def reset(run_sql: RunSql, server: Server) -> None:
    run_sql(server, "RESET BINARY LOGS AND GTIDS" if server.kind == "mysql97" else "RESET MASTER")


@pytest.mark.parametrize("log_number", [pytest.param(1, marks=pytest.mark.long), 3])
@pytest.mark.parametrize("pause", [0.005, 0.5, 60], ids=["outgrown", "slow", "idle"])
def test_a_reset_under_a_live_stream_halts_it(
    server: Server, run_sql: RunSql, tmp_path: Path, pause: float, log_number: int
) -> None:
    for _ in range(log_number - 1):
        run_sql(server, "FLUSH BINARY LOGS")
    write(run_sql, server, "d", 3)
    config = ReplicatorConfig(source_of(server), tmp_path, Position("bin.000001", 4), look_every=0.2)
    reset_at = 0.0

    def live() -> None:
        nonlocal reset_at
        with following(config) as run, repeating(server, "INSERT INTO d.t (v) VALUES ('later')", pause):
            run.until_received(server)
            run.until(lambda: is_stored(run.reader))
            reset(run_sql, server)
            reset_at = time.monotonic()
            run.until(lambda: False)

    with pytest.raises(Halted) as caught:
        live()
    assert time.monotonic() - reset_at < 10
    assert (caught.value.code, "RESET MASTER" in caught.value.todo) == ("source-went-back", True)
    status = read_status(tmp_path, "s")
    assert status is not None
    assert (status["connected"], status["error"]["code"]) == (False, "source-went-back")
    with closing(RelayReader(tmp_path, "s")) as reader:
        if pause > 1:
            assert structures_now(source_of(server), reader, threading.Event()) is None, "a place in another log"


def test_a_storm_of_rotations_and_a_purge_are_no_reset(
    server: Server, run_sql: RunSql, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source's log never seems to end before the received place, even if a busy machine delays the stream."""
    for name in ("_EVERY", "_SHARE"):
        monkeypatch.setattr(watch, name, 0.01)
    seen = []

    def noted(logs: Sequence[tuple[str, int]], reading: Position) -> bool:
        seen.append(ends_before(logs, reading))
        return seen[-1]

    monkeypatch.setattr(watch, "ends_before", noted)
    write(run_sql, server, "d", 1)
    start = end_of(server)
    insert = f"INSERT INTO d.t (v) VALUES ('{'x' * 500}')"
    with following(ReplicatorConfig(source_of(server), tmp_path, start)) as run:
        with repeating(server, "FLUSH BINARY LOGS", 0.01) as flushed, repeating(server, insert, 0.002) as inserted:
            run.until(lambda: flushed[0] >= 100 and inserted[0] >= 100)
            time.sleep(2)
        run.until_received(server)
        entries = assert_holds_the_log(tmp_path, server, start)
        assert sum(entry.transaction.row_events for entry in entries) == inserted[0]
        run_sql(server, f"PURGE BINARY LOGS TO '{end_of(server).file}'")
        time.sleep(1)
        assert run.replicator.state().reconnects == 0
    assert seen
    assert not any(seen)


def test_a_doubt_that_is_wrong_does_not_disturb_the_stream(
    server: Server, run_sql: RunSql, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replicator checks the source's log while it receives it."""
    for name, seconds in (("_EVERY", 0.05), ("_CONFIRM", 0.05), ("_AFTER_FALSE_ALARM", 0.0)):
        monkeypatch.setattr(watch, name, seconds)
    monkeypatch.setattr(watch, "is_stalled", lambda *_: True)
    asked = []
    check = Replicator._check_log
    monkeypatch.setattr(Replicator, "_check_log", lambda *args: (check(*args), asked.append(1)))
    start = end_of(server)
    write(run_sql, server, "d", 1)
    with following(ReplicatorConfig(source_of(server), tmp_path, start)) as run:
        with repeating(server, "INSERT INTO d.t (v) VALUES ('x')", 0.005):
            run.until(lambda: len(asked) >= 5)
        run.until_received(server)
        assert run.replicator.state().reconnects == 0
    assert_holds_the_log(tmp_path, server, start)
