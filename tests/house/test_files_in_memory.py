"""The files of tests are in memory during a run, and those of failed tests are on the disk after it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.files_in_memory import MEMORY, is_enough

PROBE = """
def test_passes(tmp_path):
    (tmp_path / "passed").touch()
    print("was in", tmp_path)

def test_fails(tmp_path):
    (tmp_path / "seen").write_text("text")
    assert False
"""
CONFTEST = """
from files_in_memory import FilesInMemory

def pytest_configure(config):
    config.pluginmanager.register(FilesInMemory())
"""


@pytest.mark.skipif(not is_enough(MEMORY), reason="there is not enough memory")
def test_the_files_of_a_failed_test_stay_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "files_in_memory.py").write_bytes((Path(__file__).parents[1] / "files_in_memory.py").read_bytes())
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\ntmp_path_retention_policy = failed\n")
    (tmp_path / "test_probe.py").write_text(PROBE)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", "test_probe.py"],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "TMPDIR"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    (was,) = re.findall(r"^was in (.+)$", done.stdout, re.MULTILINE)
    assert was.startswith(f"{MEMORY}/pidts-tests-")
    assert not Path(was).parents[2].exists()
    (kept,) = re.findall(r"^The files of failed tests were in .+ and are now in (.+)$", done.stdout, re.MULTILINE)
    try:
        assert [path.name for path in Path(kept).rglob("*") if path.is_file()] == ["seen"]
    finally:
        subprocess.run(["rm", "-r", kept], check=True)
