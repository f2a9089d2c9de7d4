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

def test_writes(tmp_path):
    (tmp_path / "seen").write_text("text")
    assert False

def test_nothing(tmp_path):
    assert False
"""
CONFTEST = """
from files_in_memory import FilesInMemory

def pytest_configure(config):
    config.pluginmanager.register(FilesInMemory())
"""


pytestmark = pytest.mark.skipif(not is_enough(MEMORY), reason="there is not enough memory")


def run(folder: Path, *options: str) -> str:
    """Returns the output of a run with a failed test."""
    plugin = (Path(__file__).parents[1] / "files_in_memory.py").read_text()
    # Other tests of this run may need much of the memory. This test hardly needs any memory.
    (folder / "files_in_memory.py").write_text(plugin.replace("16 << 30", "0").replace("8 << 30", "0"))
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "pytest.ini").write_text("[pytest]\ntmp_path_retention_policy = failed\n")
    (folder / "test_probe.py").write_text(PROBE)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", "test_probe.py", *options],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name != "TMPDIR"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def kept_in(output: str) -> list[str]:
    return re.findall(r"^The files of failed tests were in .+ and are now in (.+)$", output, re.MULTILINE)


def test_the_files_of_a_failed_test_stay_and_no_other(tmp_path: Path) -> None:
    output = run(tmp_path, "-k", "passes or writes")
    (was,) = re.findall(r"^was in (.+)$", output, re.MULTILINE)
    assert was.startswith(f"{MEMORY}/pidts-tests-")
    assert not Path(was).parents[2].exists()
    (kept,) = kept_in(output)
    try:
        assert [path.name for path in Path(kept).rglob("*") if path.is_file()] == ["seen"]
    finally:
        subprocess.run(["rm", "-r", kept], check=True)


def test_a_failed_test_without_files_leaves_no_folder(tmp_path: Path) -> None:
    assert kept_in(run(tmp_path, "-k", "nothing")) == []
