"""A disk that is really full, as the kernel reports it: existing log stays complete, a purge makes room, and all log is
received.
"""

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
from typing import Any

import pytest

from pidts.model import Halted
from pidts.relay import RelayReader, RelayWriter
from pidts.relay.disk_space import Reserve

from .sample_log import sample_log, store


def on_small_disk(tmp_path: Path, size: int, program: str, *arguments: str) -> Any:
    """Runs a program on a disk of this size, and returns what it prints."""
    disk = tmp_path / "disk"
    disk.mkdir()
    path = Path(__file__).with_name(program)
    mount = f'mount -t tmpfs -o size={size} none "$1" || exit 77; python="$2"; shift 2; exec "$python" "$@"'
    private = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--map-root-user"]
    done = subprocess.run(
        [*private, "sh", "-c", mount, "sh", disk, sys.executable, path, disk, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    if done.returncode == 77 or "unshare" in done.stderr or shutil.which("unshare") is None:
        pytest.skip("no private mounts here")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_small_disk(tmp_path: Path) -> None:
    seen = on_small_disk(tmp_path, 96 << 10, "on_full_disk.py")
    assert set(seen["codes"]) == {"relay-full"}
    assert len(seen["codes"]) >= 4
    assert seen["purged"] >= 5


def test_a_transaction_that_is_larger_than_the_disk_is_named_as_the_cause(tmp_path: Path) -> None:
    """Its received part is removed again. So the disk has free space, and an operator would not see what fills it."""
    seen = on_small_disk(tmp_path, 3 << 20, "on_large_transaction.py")
    assert (seen["code"], seen["has_room"]) == ("relay-full", False)
    received = seen["what"].removeprefix("no room for the relay: the disk was full after ").partition(" MB")[0]
    assert 2 < float(received) < 4.2, seen["what"]
    assert seen["todo"].startswith(f"Make room for much more than {received} MB on that disk")


@pytest.mark.slow
def test_a_full_disk_of_a_served_relay_is_emptied_by_what_its_followers_say(tmp_path: Path) -> None:
    seen = on_small_disk(tmp_path, 96 << 10, "on_full_served_disk.py")
    assert seen["full"] >= 2
    assert seen["first"] == sorted(set(seen["first"])), "each report made room"


@pytest.mark.parametrize("how", ["alone", "stranger"])
def test_an_applied_segment_is_purged_to_make_room_for_new_log(tmp_path: Path, how: str) -> None:
    """The segment does not stay the last one for long: it ends before the disk is full, or in the reserved room."""
    seen = on_small_disk(tmp_path, 3 << 20, "on_one_full_segment.py", how)
    assert seen["purged"] >= 2
    assert (seen["full"] > 0) is (how == "stranger")


def test_a_reserve_of_which_a_killed_process_wrote_a_part_only_is_made_whole(tmp_path: Path) -> None:
    for left in (0, 1000, 1 << 16):
        (tmp_path / "reserve").write_bytes(bytes(left))
        Reserve(tmp_path).keep()
        assert (tmp_path / "reserve").stat().st_size == 1 << 16


def test_a_limit_on_a_file_s_size_halts_and_leaves_whole_entries(
    relay: Path, make_writer: Callable[..., RelayWriter]
) -> None:
    """RLIMIT_FSIZE is not a full disk: waiting does not help, so an operator is needed."""
    log = sample_log(200)
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
