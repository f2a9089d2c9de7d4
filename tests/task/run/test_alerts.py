"""Alerts of a run are joined, repeated if they fail, and sent when a condition begins and ends, even after crashes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pidts.cli.verify import alert_differences
from pidts.model import Halt, Halted, Lsn, TableName, Transient, Where
from pidts.replicate import ReceiveProblem
from pidts.task.config.alerts import AlertReceiver
from pidts.task.operate.alert_conditions import conditions_of
from pidts.task.operate.progress import Progress, SourceProgress
from pidts.task.run.alert_delivery import deliver
from pidts.task.run.alerts import Alerts, AlertTimes, alerting
from pidts.task.run.cutover_under_way import CutOver, CutoverUnderWay
from pidts.verify import Report, TableReport

pytestmark = pytest.mark.slow

QUIET = SourceProgress(source="s", stage="sync", lag_seconds=0.1)


def halt(table: str, code: str = "target-refused") -> Halt:
    return Halt(tables=(TableName("shop", table),), lsn=Lsn(0, 1, 7), code=code, what="no", since=50.0)


def progress(**changes: Any) -> Progress:
    return Progress(task="t", sources=(replace(QUIET, **changes),))


class Webhook:
    """A receiver that sends the test's answers, and keeps the alerts that it has received."""

    def __init__(self) -> None:
        self.status, self.asked = 200, 0
        self.taken: list[dict[str, Any]] = []
        self.gone_to: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.asked += 1
                if outer.status == 200:
                    outer.taken.append(json.loads(body))
                self.send_response(outer.status)
                if 300 <= outer.status < 400:
                    self.send_header("Location", "/elsewhere")
                self.end_headers()

            def do_GET(self) -> None:
                outer.gone_to.append(self.path)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Writes no log lines."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.receiver = AlertReceiver(webhook=f"http://127.0.0.1:{self._server.server_port}/secret", lag=60.0)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def reported(self) -> list[tuple[str, list[tuple[str, str]]]]:
        return [(one["state"], [(each["kind"], each["subject"]) for each in one["alerts"]]) for one in self.taken]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    made = Webhook()
    yield made
    made.close()


SOON = AlertTimes(calm=0.0, first_pause=0.05)


def wait(claim: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 30
    while not claim():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def begun(folder: Path, receiver: AlertReceiver, times: AlertTimes = SOON) -> Alerts:
    alerts = Alerts(folder, "t", Path("my shop.yaml"), times)
    alerts.begin(receiver)
    return alerts


def over(alerts: Alerts, shown: Progress) -> None:
    """Lets the alerts look twice while the condition is absent."""
    alerts.look(shown)
    alerts.look(shown)


def test_each_kind_of_condition_is_found() -> None:
    away = ReceiveProblem(Transient("source-lost", "gone", where=Where(source="s")), since=9.0, heard_at=10.0)
    full = replace(away, error=Transient("relay-full", "no room for the relay"))
    shown = progress(
        halted=(halt("a"), halt("b", "shard-awaits")),
        lag_seconds=100.0,
        lack=away,
        log_warning="the source purges bin.000001 soon",
        disk_warning="10 MB left",
        locked={"shop.c": 3},
    )
    found = {one.key.kind: one for one in conditions_of(shown, 60.0)}
    assert {*found} == {"halt", "lag", "not-receiving", "log-at-risk", "relay-disk", "rows-locked"}
    assert found["halt"].key.subject.startswith("shop.a at "), "a shard that only waits needs nobody"
    assert (found["halt"].code, found["halt"].since) == ("target-refused", 50.0)
    assert "100 seconds behind" in found["lag"].what
    assert [one.key.kind for one in conditions_of(progress(lack=full, disk_warning="0 MB"), None)] == ["relay-disk"]
    assert [*conditions_of(progress(lag_seconds=100.0), None)] == [], "nobody asked for the lag"
    assert [*conditions_of(progress(), 60.0)] == []


AWAY = ReceiveProblem(Transient("source-lost", "gone", where=Where(source="s")), since=9.0, heard_at=10.0)
FULL = replace(AWAY, error=Transient("relay-full", "no room for the relay"))


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        ("halt", {"halted": (halt("a"),)}),
        ("lag", {"lag_seconds": 100.0}),
        ("not-receiving", {"lack": AWAY}),
        ("log-at-risk", {"log_warning": "the source purges bin.000001 soon"}),
        ("relay-disk", {"disk_warning": "10 MB left"}),
        ("relay-disk", {"lack": FULL}),
        ("rows-locked", {"locked": {"shop.c": 3}}),
    ],
)
def test_each_kind_is_reported_when_it_is_over(
    tmp_path: Path, webhook: Webhook, kind: str, shown: dict[str, Any]
) -> None:
    alerts = begun(tmp_path, webhook.receiver)
    alerts.look(progress(**shown))
    alerts.drain(30)
    over(alerts, progress(lag_seconds=0.0))
    alerts.drain(30)
    reported = [(state, each[0]) for state, found in webhook.reported() for each in found]
    # The beginning of locked rows is recorded separately.
    assert reported == ([] if kind == "rows-locked" else [("firing", kind)]) + [("resolved", kind)]
    alerts.close()


def test_a_comparison_reports_differences_and_when_there_are_none_any_more(tmp_path: Path, webhook: Webhook) -> None:
    config: Any = SimpleNamespace(
        name="t",
        alerts=webhook.receiver,
        relay=tmp_path,
        source=SimpleNamespace(source_id="s"),
        path=Path("shop.yaml"),
    )
    (tmp_path / "s" / "verify").mkdir(parents=True)
    table = TableReport(TableName("shop", "a"), rows=5)
    alert_differences(config, Report((table,), ()), "")
    assert webhook.reported() == []
    alert_differences(config, Report((replace(table, missing=2),), ()), "")
    alert_differences(config, Report((replace(table, waiting=1, waits=("it waits",)),), ()), "")
    alert_differences(config, Report((table,), ()), "shop.b")  # Comparing one table ends no alert about all.
    assert webhook.reported() == [("firing", [("verify-differences", "all tables")])]
    assert webhook.taken[0]["alerts"][0]["what"] == "2 rows differ"
    alert_differences(config, Report((table,), ()), "")
    assert webhook.reported()[1:] == [("resolved", [("verify-differences", "all tables")])]


def test_conditions_are_reported_once_bundled_and_once_more_when_they_are_over(
    tmp_path: Path, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    alerts = begun(tmp_path, webhook.receiver)
    alerts.look(progress(halted=(halt("a"),)))
    wait(lambda: len(webhook.taken) == 1, "the first is reported at once")
    for _ in range(3):
        alerts.look(progress(halted=(halt("a"), halt("b"), halt("c"))))
    time.sleep(0.3)
    assert len(webhook.taken) == 1, "what comes within a minute is reported together"
    alerts.drain(30)
    over(alerts, progress(halted=(halt("b"),)))
    alerts.drain(30)
    first, second, third = webhook.reported()
    assert first[0] == second[0] == "firing"
    assert [subject.split()[0] for _, subject in second[1]] == ["shop.b", "shop.c"]
    assert third[0] == "resolved"
    assert [subject.split()[0] for _, subject in third[1]] == ["shop.a", "shop.c"]
    assert webhook.taken[0]["task"] == "t"
    alerts.close()


def test_an_unknown_condition_is_not_over(tmp_path: Path, webhook: Webhook) -> None:
    alerts = begun(tmp_path, webhook.receiver)
    alerts.look(progress(halted=(halt("a"),), lag_seconds=100.0))
    alerts.drain(30)
    over(alerts, progress(stage="starting", lag_seconds=None))
    over(alerts, progress(stage="paused", lag_seconds=None))
    over(alerts, Progress(task="t", sources=(SourceProgress(source="other", stage="sync"),)))
    over(alerts, progress(halted=(halt("a"),), lag_seconds=None))
    alerts.drain(30)
    assert [state for state, _ in webhook.reported()] == ["firing"]
    alerts.close()


def test_a_receiver_that_is_away_is_tried_again_and_gets_what_still_holds(tmp_path: Path, webhook: Webhook) -> None:
    webhook.status = 503
    alerts = begun(tmp_path, webhook.receiver)
    alerts.look(progress(halted=(halt("a"),)))
    wait(lambda: webhook.asked >= 2, "it is tried again")
    alerts.look(progress(halted=(halt("a"), halt("b"))))
    over(alerts, progress(halted=(halt("b"),)))
    webhook.status = 200
    alerts.drain(30)
    ((state, found),) = webhook.reported()
    assert (state, [subject.split()[0] for _, subject in found]) == ("firing", ["shop.b"]), "a was over before"
    alerts.close()


def test_an_alert_that_is_given_up_is_in_the_log_without_the_address(
    tmp_path: Path, webhook: Webhook, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    webhook.status = 500
    alerts = begun(tmp_path, webhook.receiver, replace(SOON, tries=3))
    alerts.look(progress(halted=(halt("a"),)))
    alerts.drain(30)
    said = "".join(capsys.readouterr())
    assert webhook.asked == 3
    assert "shop.a" in said
    assert "status 500" in said
    assert "secret" not in said
    alerts.close()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_webhook_that_has_moved_has_taken_nothing(webhook: Webhook, status: int) -> None:
    webhook.status = status
    assert deliver(webhook.receiver, {"event": "halted", "state": "firing"}) == f"status {status}"
    assert (webhook.taken, webhook.gone_to) == ([], [])


def test_a_later_run_reports_that_it_is_over(tmp_path: Path, webhook: Webhook) -> None:
    first = begun(tmp_path, webhook.receiver)
    first.look(progress(halted=(halt("a"),)))
    first.drain(30)
    first.close()
    second = begun(tmp_path, webhook.receiver)
    second.look(progress(halted=(halt("a"),)))
    second.drain(30)
    assert [state for state, _ in webhook.reported()] == ["firing"], "it was reported already"
    over(second, progress())
    second.close()
    assert [state for state, _ in webhook.reported()] == ["firing", "resolved"]
    assert json.loads((tmp_path / "alerts-t.json").read_text()) == {"documents": [], "open": []}
    assert (tmp_path / "alerts-t.json").stat().st_mode & 0o077 == 0


def test_the_error_that_ends_a_run_is_reported_and_over_when_a_later_one_carries_changes(
    tmp_path: Path, webhook: Webhook
) -> None:
    error = Halted("position-lost", "the source no longer has the log", todo="Copy again.")
    with pytest.raises(Halted), alerting(Alerts(tmp_path, "t", times=SOON), webhook.receiver):
        raise error
    (found,) = webhook.taken
    assert found["alerts"][0]["kind"] == "run-ended"
    assert found["alerts"][0]["code"] == "position-lost"
    assert found["alerts"][0]["todo"] == "Copy again."
    later = begun(tmp_path, webhook.receiver)
    later.look(progress(stage="starting"))
    later.look(progress())
    later.close()
    assert [state for state, _ in webhook.reported()] == ["firing", "resolved"]


def test_a_cutover_sends_no_alert(tmp_path: Path, webhook: Webhook) -> None:
    with pytest.raises(CutOver), alerting(Alerts(tmp_path, "t", times=SOON), webhook.receiver):
        raise CutoverUnderWay("being-cut-over", "task t is being cut over")
    assert webhook.taken == []


def test_a_task_without_receivers_keeps_no_file(tmp_path: Path) -> None:
    alerts = Alerts(tmp_path, "t")
    alerts.begin(None)
    alerts.look(progress(halted=(halt("a"),)))
    alerts.send({"event": "rows-locked"})
    alerts.close()
    assert [*tmp_path.iterdir()] == []


def test_a_full_disk_loses_only_what_a_later_run_would_know(
    tmp_path: Path, webhook: Webhook, capsys: pytest.CaptureFixture[str]
) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.touch()
    alerts = begun(in_the_way / "folder", webhook.receiver)
    alerts.look(progress(halted=(halt("a"),)))
    alerts.drain(30)
    alerts.close()
    assert [state for state, _ in webhook.reported()] == ["firing"]
    assert "cannot be kept" in "".join(capsys.readouterr())


DYING = """
import os, signal, sys, time
from pathlib import Path
from pidts.task.config.alerts import AlertReceiver
from pidts.task.operate.alert_conditions import AlertKey, Condition
from pidts.task.run import alerts as module

folder, address, point = sys.argv[1:]

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

deliver, save = module.deliver, module.Alerts._save
saves = 0
if point == "before delivery":
    module.deliver = die
elif point == "behind delivery":
    module.deliver = lambda *given: (deliver(*given), die())
else:
    def counted(self):
        global saves
        saves += 1
        if point == "before the file":
            die()
        save(self)
        if point == "behind the file" or saves == 2:
            die()
    module.Alerts._save = counted
alerts = module.Alerts(Path(folder), "t")
alerts.begin(AlertReceiver(webhook=address))
alerts.fire(Condition(key=AlertKey("halt", "s", "shop.a"), what="no"))
time.sleep(20)
"""


@pytest.mark.parametrize(
    ("point", "times"),
    [
        ("before the file", [0]),
        ("behind the file", [1]),
        ("before delivery", [1]),
        ("behind delivery", [2]),
        ("behind the second file", [1]),
    ],
)
def test_a_process_that_is_killed_loses_no_alert_that_is_on_file(
    tmp_path: Path, webhook: Webhook, point: str, times: list[int]
) -> None:
    died = subprocess.run(
        [sys.executable, "-c", DYING, str(tmp_path), webhook.receiver.webhook, point],
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert died.returncode == -signal.SIGKILL
    later = begun(tmp_path, webhook.receiver)
    later.drain(30)
    later.close()
    assert len(webhook.taken) in times


def test_a_program_gets_the_document_as_its_input(tmp_path: Path) -> None:
    found = tmp_path / "received"
    program = f"import sys; open({str(found)!r}, 'a').write(sys.stdin.read() + '\\n')"
    alerts = begun(tmp_path, AlertReceiver((sys.executable, "-c", program)))
    alerts.look(progress(halted=(halt("a"),)))
    alerts.drain(30)
    alerts.close()
    (line,) = found.read_text().splitlines()
    assert json.loads(line)["alerts"][0]["todo"] == "pidts ddl list 'my shop.yaml'"
