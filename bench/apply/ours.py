"""Measures PiDTS from source to target: `pidts replicate` until the relay has the whole log, then `pidts run` until the
target has it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import yaml
from targets import TargetServer
from workload import SCHEMA, Log, Source

from pidts.batch.relay_events import log_format
from pidts.binlog import decode_slice
from pidts.model import ChangeBatch, Extent, Table
from pidts.relay import RelayReader

_DONE = re.compile(r"batch done .*?called=([\d.]+) .*?planned=([\d.]+) seconds=(\{.*?\})")
_PIDTS = [sys.executable, "-m", "pidts"]


class Task:
    """The relay with one log of a source, and the task files that read this relay."""

    def __init__(
        self, source: Source, log: Log, folder: Path, settings: dict[str, Any], more: dict[str, Any] | None = None
    ) -> None:
        """`settings` become keys of `pidts.spark` in the task file, and `more` keys of `pidts`."""
        self._source, self._log, self._folder, self._settings = source, log, folder, settings
        self._more = more or {}
        self._relay = folder / "relay"

    def file(self, target: TargetServer, workers: int, on_divergence: str = "overwrite", user: str = "") -> Path:
        server, target_server = self._source.server, target.server
        about: dict[str, Any] = {"host": target_server.host, "port": target_server.port}
        about |= {"user": user or target_server.user}
        about |= {"type": "postgresql", "database": "postgres"} if target.kind == "postgres" else {"type": "mysql"}
        begin = self._log.begin
        task = {
            "name": "bench",
            "task-mode": "incremental",
            "target-database": about,
            "mysql-instances": [
                {
                    "source-id": "one",
                    "from": {"host": server.host, "port": server.port, "user": server.user, "password": ""},
                    "meta": {"binlog-name": begin.file, "binlog-pos": begin.offset},
                    "block-allow-list": "ours",
                    "syncer-config-name": "global",
                }
            ],
            "block-allow-list": {"ours": {"do-dbs": [SCHEMA]}},
            # Without this duration, the task would write the whole log in safe mode, since the relay has it before the
            # task begins. In safe mode, PiDTS compares no rows.
            "syncers": {"global": {"worker-count": workers, "safe-mode-duration": "0s"}},
            "pidts": {
                "relay": str(self._relay),
                "relay-keep": "24h",
                "on-divergence": on_divergence,
                "spark": {"master": "local[2,4]", **self._settings},
                **self._more,
            },
        }
        path = self._folder / "bench.yaml"
        path.write_text(yaml.safe_dump(task))
        return path

    def fill(self, target: TargetServer) -> None:
        """Runs the replicator until the relay has the whole log."""
        end = self._log.end.log_index, self._log.end.offset
        with (self._folder / "replicate.log").open("wb") as output:
            command = [*_PIDTS, "replicate", str(self.file(target, 1))]
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        try:
            with closing(RelayReader(self._relay, "one")) as relay:
                while (lsn := relay.received) is None or (lsn.log_index, lsn.offset) < end:
                    if process.poll() is not None:
                        raise RuntimeError((self._folder / "replicate.log").read_text())
                    time.sleep(0.05)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)

    def changes(self, table: Table) -> list[ChangeBatch]:
        """Returns the changes of the whole log, decoded."""
        found: list[ChangeBatch] = []
        with closing(RelayReader(self._relay, "one")) as relay:
            entries = [entry for entry in relay.entries() if entry.transaction.row_events]
            for segment in sorted({entry.extent.segment for entry in entries}):
                mine = [entry for entry in entries if entry.extent.segment == segment]
                first, last = mine[0].extent.offset, mine[-1].extent.end
                begin = mine[0].transaction.begin
                found += decode_slice(
                    relay.read(Extent(segment, first, last - first)),
                    format=log_format(relay.format(segment)),
                    log_file=begin.position(relay.log_base).file,
                    change_no=begin.change_no,
                    structures={table.name: table},
                    offset=begin.offset,
                )
        return found

    def run(
        self, target: TargetServer, workers: int, on_divergence: str = "overwrite", user: str = ""
    ) -> dict[str, Any]:
        """Runs the task until it is synced, and returns its figures."""
        log, begun, rows = run_task(self.file(target, workers, on_divergence, user), self._folder)
        return figures(log, begun, sum(rows.values()))

    def run_again(self, target: TargetServer) -> None:
        """Runs the task once more. It has nothing left to apply."""
        run_task(self.file(target, 1), self._folder)


def run_task(path: Path, folder: Path) -> tuple[str, float, dict[str, int]]:
    """Runs a task until it is synced. Returns the task's log, the time of its start, and the number of rows by kind."""
    scratch, log = folder / "scratch", folder / "run.log"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    begun = time.time()
    with log.open("wb") as output:
        done = subprocess.run(
            [*_PIDTS, "run", str(path), "--until-synced", "--json", "--debug"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=output,
            env={**os.environ, "TMPDIR": str(scratch)},
            timeout=1800,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(log.read_text()[-3000:])
    rows: dict[str, int] = json.loads(done.stdout.decode().splitlines()[-1])["rows"]
    return log.read_text(), begun, rows


def figures(log: str, begun: float, changes: int) -> dict[str, Any]:
    """Returns the figures that the run has logged. `start_seconds` is the time before the first batch."""
    batches = [
        (float(planned), float(called), json.loads(seconds.replace("'", '"')))
        for called, planned, seconds in _DONE.findall(re.sub(r"\x1b\[[0-9;]*m", "", log))
    ]
    first, ends = batches[0][1], [called + sum(seconds.values()) for _, called, seconds in batches]
    last = ends[-1]
    steps: dict[str, float] = {}
    for _, _, seconds in batches:
        for name, value in seconds.items():
            steps[name] = round(steps.get(name, 0.0) + value, 3)
    return {
        "changes": changes,
        "seconds": round(last - first, 3),
        "changes_per_second": round(changes / (last - first)),
        "start_seconds": round(first - begun, 1),
        "seconds_with_start": round(last - begun, 1),
        "batch_seconds": [round(end - called, 2) for end, (_, called, _) in zip(ends, batches, strict=True)],
        "steps_seconds": steps,
        "planning_gaps_seconds": [
            round(planned - end, 2) for end, (planned, _, _) in zip(ends, batches[1:], strict=False)
        ],
        "calling_gaps_seconds": [round(called - planned, 2) for planned, called, _ in batches[1:]],
    }
