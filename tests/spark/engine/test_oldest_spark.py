"""The core of a task's life on the oldest Spark that the product runs on; all other tests use the newest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / ".venv-spark-oldest"
CORE = ("engine/test_large.py", "engine/test_cluster.py", "engine/test_versions.py", "engine/test_failures.py")
SHOW = "import pyspark; print(pyspark.__version__)"


@pytest.fixture(scope="module")
def oldest() -> dict[str, str]:
    """The environment in which Python finds that Spark."""
    made = subprocess.run(
        [ROOT / "setup" / "folder_of.sh", "requirements/oldest/spark.txt", FOLDER],
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    environment = {**os.environ, "PYTHONPATH": str(FOLDER)}
    found = subprocess.run([sys.executable, "-c", SHOW], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.startswith("4.0.")
    return environment


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("file", CORE)
def test_it_carries_a_task(oldest: dict[str, str], file: str) -> None:
    """The file's tests pass there, too."""
    # Its py4j leaves sockets to the collector of garbage, which is an error in the tests of the newest one.
    known = ("-W", "ignore:unclosed <socket:ResourceWarning")
    words = ["-q", "-n", "0", "-p", "no:cacheprovider", *known, ROOT / "tests/spark" / file]
    command = [sys.executable, "-m", "pytest", *words]
    done = subprocess.run(command, env=oldest, cwd=ROOT, capture_output=True, text=True, timeout=3500, check=False)
    assert done.returncode == 0, done.stdout[-5000:]
    assert " passed" in done.stdout
