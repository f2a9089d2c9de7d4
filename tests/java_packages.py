"""Packages of Java for tests, which `mvn` downloads into a folder."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path

import pytest


def packages(listed: Path, folder: Path) -> Path:
    """Returns the folder with the packages of a `pom.xml`. Skips the test if `mvn` is missing."""
    if shutil.which("mvn") is None:
        pytest.skip("mvn is missing, which gets packages of Java: apt-get install maven")
    made_of = folder / "made-of"
    with listed.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # Another worker of the tests may download them now.
        wanted = file.read()
        if not made_of.exists() or made_of.read_bytes() != wanted:
            shutil.rmtree(folder, ignore_errors=True)
            get = ["mvn", "-q", "-B", "-f", listed, "dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
            done = subprocess.run(get, capture_output=True, text=True, timeout=600, check=False)
            assert done.returncode == 0, done.stdout[-3000:]
            made_of.write_bytes(wanted)
    return folder
