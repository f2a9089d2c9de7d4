"""Older versions of Spark, each in a folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SHOW = "import pyspark; print(pyspark.__version__)"


def environment_of(version: str) -> dict[str, str]:
    """Returns the environment variables with which Python finds this Spark."""
    folder = ROOT / f".venv-spark-{version}"
    made = subprocess.run(
        [ROOT / "setup" / "folder_of.sh", f"requirements/older/spark-{version}.txt", folder],
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    found = subprocess.run([sys.executable, "-c", SHOW], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.startswith(f"{version}.")
    return environment
