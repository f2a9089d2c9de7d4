"""An attempt keeps the lag that was known before as long as its relay has no log."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pidts.model import Lsn, Transient
from pidts.plan import PlanState
from pidts.relay import RelayReader
from pidts.task.config.task_file import load_task
from pidts.task.measure.target_ping import TargetPing
from pidts.task.operate.progress import Progress
from pidts.task.run.alerts import Alerts
from pidts.task.run.attempt.progress import AttemptProgress, ObservedTables
from pidts.task.run.halted_tables import HaltedTables
from pidts.task.run.locked_rows import LockedRows
from pidts.task.run.retried_tables import RetriedTables
from pidts.task.run.tracker import Tracker


def test_an_attempt_without_received_log_keeps_the_lag_of_before(tmp_path: Path) -> None:
    server = {"host": "127.0.0.1", "port": 9, "user": "u"}
    instances = [{"source-id": "s", "from": server}]
    task = {"name": "t", "task-mode": "all", "target-database": server, "mysql-instances": instances}
    file = tmp_path / "t.yaml"
    file.write_text(json.dumps(task))
    config = load_task(file)
    shown: list[Progress] = []
    tracker = Tracker("t", "s", shown.append, now=lambda: 1000.0)
    tracker.show("sync", waits_since=940.0)
    tracker.paused(Transient("target-unreachable", "no answer"), 1.0)
    assert shown[-1].lag_seconds == 60.0
    apart = ObservedTables(HaltedTables("t", "s"), RetriedTables(), LockedRows(config, Alerts(tmp_path, "t")))
    stream: Any = SimpleNamespace(
        halts=(), waiting={}, halted_tables=frozenset(), awaits_spark=False, written=None, being_copied={}
    )
    with (
        closing(RelayReader(tmp_path / "relay", "s")) as relay,
        closing(AttemptProgress(config, tracker, apart, relay, TargetPing())) as progress,
    ):
        assert not progress.show(stream, PlanState(Lsn(0, 1, 4)), None).is_caught_up
    assert shown[-1].lag_seconds == 60.0
