"""The core of a task runs on the older supported versions of Spark; all other tests use the newest version."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.spark.older_spark import environment_of

ROOT = Path(__file__).parents[3]
CORE = ("engine/test_versions.py", "engine/test_cluster.py")
OLDEST = (*CORE, "engine/test_large.py", "engine/test_failures.py", "engine/test_given_back.py")


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("version", "file"),
    [*(("4.0", file) for file in OLDEST), *((version, file) for version in ("4.1", "4.2") for file in CORE)],
)
def test_an_older_spark_carries_a_task(version: str, file: str) -> None:
    """The tests of this file pass on the older version, too."""
    # The py4j of older Spark versions leaves open sockets to the garbage collector. The tests treat this as an error,
    # except here.
    known = ("-W", "ignore:unclosed <socket:ResourceWarning")
    words = ["-q", "-n", "0", "-p", "no:cacheprovider", *known, ROOT / "tests/spark" / file]
    command = [sys.executable, "-m", "pytest", *words]
    environment = environment_of(version)
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=3500, check=False)
    assert done.returncode == 0, done.stdout[-5000:]
    assert " passed" in done.stdout
