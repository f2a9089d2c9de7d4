"""Alerts about rows that are set aside: each row once, many rows together, sent to a program or an address."""

from __future__ import annotations

import itertools
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.crashes import Crashes, ProcessDied
from tests.values_target import ValuesTarget

from pidts.model import Column, ColumnType, ConfigError, Kind, Lsn, RowLock, Table, TableName
from pidts.task.config.alerts import AlertReceiver
from pidts.task.config.task_file import TaskConfig, load_task
from pidts.task.run import lock_alerts
from pidts.task.run.alert_delivery import deliver
from pidts.task.run.alerts import Alerts
from pidts.task.run.lock_alerts import LockAlerts

TASK = """
name: t
task-mode: all
target-database: {{type: mysql, host: 127.0.0.1, port: 9, user: root}}
mysql-instances: [{{source-id: s, from: {{host: 127.0.0.1, port: 9, user: root}}}}]
pidts: {{on-divergence: lock, alerts: {alerts}}}
"""
_numbers = itertools.count()
NAME = TableName("shop", "t")
TABLE = Table(NAME, (Column("id", ColumnType(Kind.INT)),))


def task(folder: Path, alerts: str, **variables: str) -> TaskConfig:
    path = folder / "t.yaml"
    path.write_text(TASK.format(alerts=alerts))
    return load_task(path, variables)


def locked(*keys: int) -> list[RowLock]:
    return [
        RowLock(
            table=TABLE,
            id=f"{key:064}",
            key="",
            shown=f"id={key}",
            origin=NAME,
            lsn=Lsn(0, 1, key),
            why="so",
            since=1.0,
        )
        for key in keys
    ]


def test_the_receiver_of_alerts_is_read_from_the_task_file(tmp_path: Path) -> None:
    assert task(tmp_path, "{}").alerts is None
    assert task(tmp_path, "{command: \"page 'the team' --now\"}").alerts == AlertReceiver(("page", "the team", "--now"))
    assert task(tmp_path, "{command: page, lag: 5m}").alerts == AlertReceiver(("page",), lag=300.0)
    hook = task(tmp_path, '{webhook: "https://hooks.example/${SECRET}"}', SECRET="abc").alerts
    assert hook == AlertReceiver(webhook="https://hooks.example/abc")
    assert "abc" not in f"{hook!r} {hook}"


@pytest.mark.parametrize(
    ("alerts", "said"),
    [
        ("{command: a, webhook: 'http://h'}", "only one of command and webhook"),
        ('{command: "page \'x"}', "not a command"),
        ("{webhook: 'ftp://secret.example'}", "begins with http"),
        ("{webhook: 'http://[secret'}", "begins with http"),
        ("{mail: a}", "mail"),
        ("{command: a, lag: soon}", "not a length of time"),
        ("{command: a, lag: 0}", "longer than 0"),
    ],
)
def test_a_receiver_that_cannot_be_used_is_refused(tmp_path: Path, alerts: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        task(tmp_path, alerts)
    assert "secret" not in str(refused.value)


class Operator:
    """A program that writes down its input."""

    def __init__(self, folder: Path) -> None:
        self.received = folder / "received"
        self.config = task(folder, "{}")
        program = f"import sys; open({str(self.received)!r}, 'a').write(sys.stdin.read() + '\\n')"
        self.config = replace(self.config, alerts=AlertReceiver((sys.executable, "-c", program)))

    def alerts(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.received.read_text().splitlines()] if self.received.exists() else []


class LockingTarget:
    """A target with locks, and runs that read them."""

    def __init__(self, folder: Path) -> None:
        self.operator, self.target = Operator(folder), ValuesTarget(f"alerts-{next(_numbers)}")
        self._folder = folder
        self._all: Alerts | None = None
        self.restart()

    def restart(self) -> None:
        """Begins another run. The earlier run's thread first delivers the alerts that it has kept."""
        if self._all is not None:
            self._all.drain(30)
        self._all = Alerts(self._folder, "t")
        self._all.begin(self.operator.config.alerts)
        self.alerts = LockAlerts(self._all)

    def lock(self, *keys: int) -> None:
        with closing(self.target.connect()) as session:
            session.begin()
            session.meta.row_locks.add("t", "s", locked(*keys))
            session.commit()

    def look(self, *, now: bool = False) -> None:
        with closing(self.target.connect()) as session:
            counts = session.meta.row_locks.tables("t", "s")
            self.alerts.look(session, self.operator.config, counts, now=now)
        assert self._all is not None
        self._all.drain(30)


@pytest.fixture
def locking(tmp_path: Path) -> Iterator[LockingTarget]:
    made = LockingTarget(tmp_path)
    yield made
    made.target.forget()


def test_each_row_is_reported_once_and_many_together(locking: LockingTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    locking.look()
    assert locking.operator.alerts() == []
    locking.lock(1)
    locking.look()
    locking.lock(*range(2, 40))
    locking.look()
    (first,) = locking.operator.alerts()
    assert (first["event"], first["task"], first["source"], first["tables"]) == ("rows-locked", "t", "s", {"shop.t": 1})
    assert first["examples"] == [
        {"id": f"{1:064}"[:12], "table": "shop.t", "key": "id=1", "why": "so", "lsn": str(Lsn(0, 1, 1))}
    ]
    monkeypatch.setattr(lock_alerts, "_PAUSE_SECONDS", 0.0)
    locking.look(now=True)
    _, second = locking.operator.alerts()
    assert (second["rows"], second["tables"], len(second["examples"])) == (38, {"shop.t": 38}, 20)
    locking.look(now=True)
    locking.restart()
    locking.look(now=True)
    assert len(locking.operator.alerts()) == 2


@pytest.mark.parametrize("after", range(8))
def test_a_run_that_dies_reports_each_row_and_perhaps_twice(locking: LockingTarget, after: int) -> None:
    locking.lock(1, 2)
    locking.target.store.hook = Crashes([after])
    died = False
    try:
        locking.look(now=True)
    except ProcessDied:
        died = True
    locking.target.store.hook = None
    locking.restart()
    locking.look(now=True)
    assert sum(one["rows"] for one in locking.operator.alerts()) in ((2, 4) if died else (2,))


def test_a_row_that_is_resolved_meanwhile_is_not_reported(locking: LockingTarget) -> None:
    locking.lock(1, 2)
    with closing(locking.target.connect()) as session:
        session.begin()
        session.meta.row_locks.remove("t", "s", NAME, {locked(1)[0].id})
        session.commit()
    locking.look()
    assert [one["rows"] for one in locking.operator.alerts()] == [1]


class Receiver(BaseHTTPRequestHandler):
    """Receives the alerts that are posted."""

    got: list[tuple[str, bytes]]
    status = 200

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.got.append((self.headers["Content-Type"], body))
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Writes no log lines."""


@pytest.mark.parametrize("status", [200, 500])
def test_an_address_gets_the_document_and_no_text_has_the_address(
    status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    got: list[tuple[str, bytes]] = []
    handler = type("Taking", (Receiver,), {"got": got, "status": status})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        to = AlertReceiver(webhook=f"http://127.0.0.1:{server.server_port}/hidden")
        problem = deliver(to, {"rows": 2, "key": "é"})
        thread.join(10)
    ((kind, body),) = got
    assert (kind, json.loads(body)) == ("application/json", {"rows": 2, "key": "é"})
    assert "hidden" not in "".join(capsys.readouterr())
    assert problem == ("status 500" if status == 500 else "")


@pytest.mark.parametrize(
    ("receiver", "said"),
    [
        (AlertReceiver((sys.executable, "-c", "import sys; sys.exit('no pager')")), "no pager"),
        (AlertReceiver(("/no/such/program",)), "FileNotFoundError"),
        (AlertReceiver(webhook="http://127.0.0.1:9/hidden"), "refused"),
        (AlertReceiver(webhook="http://127.0.0.1:notaport/hidden"), "InvalidURL"),
    ],
)
def test_a_failed_delivery_of_an_alert_is_reported(receiver: AlertReceiver, said: str) -> None:
    problem = deliver(receiver, {"rows": 2})
    assert said in problem
    assert "hidden" not in problem
