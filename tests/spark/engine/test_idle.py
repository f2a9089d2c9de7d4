"""A task without work uses almost no processor time, over all its processes.

The machine may be busy, since only processor time counts.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

import pytest

SETTLE_SECONDS = 6.0
SECONDS = 8.0
WINDOWS = 6
MOST = 0.02


def spent(pids):
    """Returns the seconds of each process, with its threads and with the children that it has waited for."""
    found = {}
    for pid in pids:
        with suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            found[pid, command[-80:]] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return found


@pytest.mark.spark
@pytest.mark.timeout(200)
def test_a_task_without_work_takes_less_than_a_fiftieth_of_a_core(
    mariadb, database, make_task, target_server, open_session, eventually
):
    cursor = open_session(mariadb).cursor()
    cursor.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
    cursor.execute(f"INSERT INTO {database}.t VALUES (1), (2)")
    server = target_server("postgres")
    target = open_session(server)
    run = make_task(mariadb, server, [database]).start()

    def copied() -> bool:
        with suppress(Exception):
            return target.execute(f"SELECT count(*) FROM {database}.t").fetchone()[0] == 2
        return False

    eventually(copied, 120, "the copy")
    time.sleep(SETTLE_SECONDS)
    windows = []
    for _ in range(WINDOWS):  # On a busy machine, a task that has just started has work for a while.
        before, begun = spent([run.process.pid, *run.pids()]), time.monotonic()
        time.sleep(SECONDS)
        after, seconds = spent([run.process.pid, *run.pids()]), time.monotonic() - begun
        used = {place: round((ticks - before.get(place, 0.0)) / seconds, 4) for place, ticks in after.items()}
        assert len(used) == 3, "the driver, the replicator, and what forks it"
        windows.append(used)
        if sum(used.values()) < MOST:
            break
    assert sum(windows[-1].values()) < MOST, windows
