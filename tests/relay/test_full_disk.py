"""A disk that really is full, as the kernel says it: what is there stays whole, a purge makes room, and all comes in."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pidts.model import Halted
from pidts.relay import RelayReader, RelayWriter

from .made_up import made_up_log, store

SIZE = 96 << 10


def test_a_small_disk(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    program = Path(__file__).with_name("on_full_disk.py")
    mount = f'mount -t tmpfs -o size={SIZE} none "$1" || exit 77; exec "$2" "$3" "$1"'
    private = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--map-root-user"]
    done = subprocess.run(
        [*private, "sh", "-c", mount, "sh", disk, sys.executable, program],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    if done.returncode == 77 or "unshare" in done.stderr or shutil.which("unshare") is None:
        pytest.skip("no private mounts here")
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert set(seen["codes"]) == {"relay-full"}
    assert len(seen["codes"]) >= 4
    assert seen["purged"] >= 5


def test_a_limit_on_a_file_s_size_halts_and_leaves_whole_entries(
    relay: Path, make_writer: Callable[..., RelayWriter]
) -> None:
    """RLIMIT_FSIZE is not a full disk: waiting does not help, so a person is told."""
    log = made_up_log(200)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    writer = make_writer()
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        with pytest.raises(Halted) as caught:
            store(writer, log)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert caught.value.code == "relay-unwritable"
    writer.close()
    reader = RelayReader(relay, "s")
    seen = [reader.read(entry.extent) for entry in reader.entries()]
    assert 0 < len(seen) < len(log)
    assert seen == [piece.raw for piece in log[: len(seen)]]
    writer = make_writer()
    assert writer.lsn is not None
    store(writer, [piece for piece in log if piece.transaction.lsn > writer.lsn])
    assert [reader.read(entry.extent) for entry in reader.entries()] == [piece.raw for piece in log]
    reader.close()
