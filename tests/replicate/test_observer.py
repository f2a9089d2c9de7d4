"""A replicator reports how far it is behind the end of its source's log, and warns before the source purges log that it
needs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pidts.model import Position
from pidts.replicate import Replicator, ReplicatorConfig, ReplicatorState, read_status
from pidts.replicate import observer as observer_module
from pidts.replicate.expiry import ExpiryOutlook
from pidts.replicate.observer import Observer
from pidts.sandbox import Server
from pidts.source import SourceConfig, connect, log_end

RunSql = Callable[..., list[tuple[Any, ...]]]
DAY = 86400


def source_of(server: Server) -> SourceConfig:
    return SourceConfig(server.host, server.port, server.user, server.password, source_id="s")


def end_of(server: Server) -> Position:
    session = connect(source_of(server))
    try:
        return log_end(session)
    finally:
        session.close()


def until(condition: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@contextmanager
def replicating(config: ReplicatorConfig) -> Iterator[Replicator]:
    replicator, stop = Replicator(config), threading.Event()
    thread = threading.Thread(target=replicator.run, args=(stop,))
    thread.start()
    try:
        yield replicator
    finally:
        stop.set()
        thread.join(60)


@contextmanager
def observing(server: Server, relay: Path, state: ReplicatorState) -> Iterator[Observer]:
    observer = Observer(source_of(server), relay, 0.05, lambda: state)
    observer.start()
    try:
        yield observer
    finally:
        observer.stop()


def warning_of(observer: Observer) -> str:
    return observer.outlook.warning if observer.outlook else ""


def test_a_warning_comes_before_a_file_expires_and_when_it_is_gone(
    mysql_like: Server, run_sql: RunSql, database: str, tmp_path: Path
) -> None:
    run_sql(mysql_like, "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(200))", database=database)
    with replicating(ReplicatorConfig(source_of(mysql_like), tmp_path, look_every=0.1)) as replicator:
        until(lambda: replicator.state().behind_bytes == 0 and replicator.state().connected)
        status = read_status(tmp_path, "s")
        assert status is not None
        assert status["warning"] == ""
    received = end_of(mysql_like)
    for _ in range(3):
        run_sql(mysql_like, f"INSERT INTO t (v) VALUES ('{'x' * 150}')", database=database)
        run_sql(mysql_like, "FLUSH BINARY LOGS")
    name, value = ("expire_logs_days", 1) if mysql_like.kind == "mysql56" else ("binlog_expire_logs_seconds", DAY)
    (before,) = run_sql(mysql_like, f"SELECT @@GLOBAL.{name}")
    run_sql(mysql_like, f"SET GLOBAL {name} = {value}")
    now = int(time.time())
    try:
        fresh = ReplicatorState("s", connected=True, source_time=now)
        with observing(mysql_like, tmp_path, fresh) as observer:
            until(lambda: observer.outlook)
            assert observer.outlook is not None
            assert observer.outlook.behind_bytes > 3 * 150
            assert warning_of(observer) == ""
        old = ReplicatorState("s", connected=True, source_time=now - int(0.8 * DAY))
        with observing(mysql_like, tmp_path, old) as observer:
            until(lambda: warning_of(observer))
            assert f"the source may purge {received.file} in 5 hours" in warning_of(observer)
            # A server does not purge a file that a replica reads, and may notice late that the replica has gone. So the
            # purge is repeated.
            purge = f"PURGE BINARY LOGS TO '{end_of(mysql_like).file}'"
            gone = f"has purged {received.file}"
            until(lambda: run_sql(mysql_like, purge) == [] and gone in warning_of(observer))
    finally:
        run_sql(mysql_like, f"SET GLOBAL {name} = {before[0]}")


def test_a_warning_is_in_the_status_file_as_long_as_it_applies(
    mariadb: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [ExpiryOutlook(0, "")]
    monkeypatch.setattr(observer_module, "outlook", lambda *_: found[-1])

    def reported_outlook() -> tuple[object, object]:
        status = read_status(tmp_path, "s") or {}
        return status.get("behind_bytes"), status.get("warning")

    with replicating(ReplicatorConfig(source_of(mariadb), tmp_path, look_every=0.05)):
        for outlook in (ExpiryOutlook(0, ""), ExpiryOutlook(7, "it expires"), ExpiryOutlook(1, "")):
            found.append(outlook)
            until(lambda outlook=outlook: reported_outlook() == (outlook.behind_bytes, outlook.warning))  # type: ignore[misc]


def test_a_source_that_is_down_does_not_end_the_observer(mariadb: Server, tmp_path: Path) -> None:
    with replicating(ReplicatorConfig(source_of(mariadb), tmp_path, look_every=0.05)) as replicator:
        until(lambda: replicator.state().behind_bytes is not None)
    state = ReplicatorState("s", connected=True)
    nobody = SourceConfig("127.0.0.1", 9, source_id="s")
    observer = Observer(nobody, tmp_path, 0.02, lambda: state)
    observer.start()
    time.sleep(0.2)
    thread = observer._thread
    assert thread is not None
    assert thread.is_alive()
    observer.stop()
    assert not thread.is_alive()
