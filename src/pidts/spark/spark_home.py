"""Finds pyspark: the installed package, or the package in the Spark installation that SPARK_HOME names.

A machine that has Spark needs no second one: `pip install pidts` installs no Spark, `pip install 'pidts[spark]'` does.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

from pidts.model import PidtsError

_TODO = "Set SPARK_HOME to the folder of a Spark 4 installation, or run: pip install 'pidts[spark]'"


def find_pyspark() -> None:
    """Makes `import pyspark` work, or raises an error that says what to install."""
    if find_spec("pyspark") is not None:
        return
    home = os.environ.get("SPARK_HOME", "")
    if not home:
        raise PidtsError("spark-not-started", "there is no pyspark, and SPARK_HOME is not set", todo=_TODO)
    folder = Path(home) / "python"
    archives = sorted((folder / "lib").glob("py4j-*.zip"))
    # A Spark distribution has the package as files in this folder. A pip installation of Spark has it only as an
    # archive.
    package = folder if (folder / "pyspark" / "sql").is_dir() else folder / "lib" / "pyspark.zip"
    if not (archives and package.exists()):
        raise PidtsError("spark-not-started", f"SPARK_HOME={home} has no pyspark in {folder}", todo=_TODO)
    found = [str(package), str(archives[-1])]
    sys.path += found
    # Processes that this process starts find pyspark by this variable.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH", ""), *found)))
