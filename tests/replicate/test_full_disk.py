"""A disk becomes full while a server is followed: this is reported, and applied log makes room for new log."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("first_start", [False, True])
def test_a_disk_that_another_program_fills_is_reported_and_unneeded_log_makes_room(
    mariadb, run_sql, database, tmp_path, first_start
):
    """A task that has begun needs no log that it has applied, and a first start needs only log after its beginning."""
    run_sql(mariadb, f"CREATE TABLE {database}.t (a TEXT)")
    about = {"host": mariadb.host, "port": mariadb.port, "user": mariadb.user, "password": mariadb.password}
    program, given = (
        Path(__file__).with_name("on_full_disk.py"),
        json.dumps(about | {"database": database, "first_start": first_start}),
    )
    mount = 'mount -t tmpfs -o size=3m none "$1" || exit 77; exec "$2" "$3" "$1" "$4"'
    private = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--map-root-user"]
    done = subprocess.run(
        [*private, "sh", "-c", mount, "sh", tmp_path, sys.executable, program, given],
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
        # The compiler is slow on a busy machine, and these tests need no compiled code.
        env={**os.environ, "PIDTS_KERNEL": "python"},
    )
    if done.returncode == 77 or "unshare" in done.stderr or shutil.which("unshare") is None:
        pytest.skip("no private mounts here")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {"code": "relay-full", "purged": 1}


def test_a_log_on_a_full_disk_does_not_end_the_replicator():
    """`replicator.log` is on the same disk as the relay."""
    program = (
        "import structlog; from pidts.task.run.replicator_process import log_to_stderr;"
        "log_to_stderr(); structlog.get_logger().warning('the disk is full')"
    )
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-c", program], stderr=full, check=False, timeout=60)
    assert done.returncode == 0
