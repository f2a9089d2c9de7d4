"""Copied rows that wait on a full disk: the run waits for room, and leaves no part of a file."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
from pathlib import Path
import pyarrow as pa
from pidts.batch.copy.staging import keep
from pidts.model import TableName, Transient
from pidts.plan import ChunkRequest
disk = Path(sys.argv[1])
rows = pa.table({"a": ["x" * 1000] * 1000})
request = ChunkRequest(TableName("s", "t"), 1, None, None, 10)
assert keep(disk, request, rows.slice(0, 3))
before = sorted(disk.rglob("*"))
try:
    keep(disk, request, rows)
except Transient as error:
    assert error.code == "relay-full", error
    assert sorted(disk.rglob("*")) == before
else:
    raise AssertionError("the disk was not full")
"""


def test_the_run_waits_for_room_for_copied_rows(tmp_path: Path) -> None:
    mount = 'mount -t tmpfs -o size=256k none "$1" || exit 77; exec "$2" -c "$3" "$1"'
    private = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--map-root-user"]
    if shutil.which("unshare") is None:
        pytest.skip("no private mounts here")
    done = subprocess.run(
        [*private, "sh", "-c", mount, "sh", tmp_path, sys.executable, PROGRAM],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PIDTS_KERNEL": "python"},
    )
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("no private mounts here")
    assert done.returncode == 0, done.stderr
