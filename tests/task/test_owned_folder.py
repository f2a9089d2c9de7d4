"""A temporary folder is removed at the latest by the next start of a process, even if its own process was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pidts.owned_folder import owned_folder

RUN = """
import sys, time
from pidts.owned_folder import owned_folder
with owned_folder("shop") as folder:
    (folder / "rows").write_text("x")
    print(folder, flush=True)
    time.sleep(600)
"""


def test_a_killed_run_s_folder_is_removed_by_the_next_and_a_living_one_s_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "pidts-shop-of-an-older-version").mkdir()
    child = subprocess.Popen(
        [sys.executable, "-c", RUN], stdout=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(tmp_path)}
    )
    assert child.stdout is not None
    try:
        theirs = Path(child.stdout.readline().strip())
        assert (theirs / "rows").exists()
        with owned_folder("other") as ours:
            assert theirs.exists(), "its run is alive"
            child.send_signal(signal.SIGKILL)
            child.wait(30)
            with owned_folder("third"):
                assert not theirs.exists()
                assert ours.exists()
        assert not ours.exists()
    finally:
        child.kill()
        child.wait(30)
        child.stdout.close()
    assert [path.name for path in tmp_path.iterdir()] == ["pidts-shop-of-an-older-version"]
