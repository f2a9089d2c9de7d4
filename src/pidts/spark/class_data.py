"""`python -m pidts.spark.class_data` stores Spark's classes in the JVM's memory format, so that the JVM starts faster.

With the stored file, the archive, the first batch on two busy cores began after 9 s instead of 15. An archive belongs
to one version of Java and one version of Spark. The JVM itself checks whether the archive fits, and starts without it
if it does not.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pyspark
from pyspark import SparkContext

from pidts.owned_folder import owned_folder

_SECONDS = 600
"""The longest wait for the JVM, which may take minutes. After this wait, the JVM is killed without an archive."""


def archive() -> Path:
    """Returns the path of the archive of class data, whether or not it exists."""
    return Path(sys.prefix) / "share" / "pidts" / f"spark-{pyspark.__version__}.jsa"


def java_options() -> str:
    """Returns the JVM's options for the archive. With these, the JVM prints no warning if it cannot use the file."""
    path = archive()
    if not path.exists() or set(str(path)) & set(" '\""):  # options are split at spaces
        return ""
    return f"-XX:SharedArchiveFile={path} -Xshare:auto -Xlog:disable -Xlog:all=error:stderr"


def make_archive() -> None:
    """Starts Spark, runs a small stream and a small job in it, and archives the classes that it has loaded."""
    from pidts.spark.session import JAVA_OPTIONS, build_session

    path = archive()
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}.part")
    options = f"{JAVA_OPTIONS} -XX:ArchiveClassesAtExit={part} -Xlog:disable"
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--driver-java-options '{options}' pyspark-shell"
    with owned_folder("class-data") as scratch:
        spark = build_session("class data", "local[2]", scratch, scratch / "spark.log", {})
        called = threading.Event()
        stream = spark.readStream.format("rate").load().writeStream.option("checkpointLocation", f"{scratch}/query")
        query = stream.foreachBatch(lambda *_: called.set()).start()
        called.wait(_SECONDS)
        query.stop()
        rows = spark.range(0, 2, 1, 2).mapInArrow(lambda batches: batches, "id bigint")
        rows.repartition(2, "id").mapInArrow(lambda batches: batches, "id bigint").collect()
        gateway = SparkContext._gateway  # noqa: SLF001 - Spark offers no public way to its process
        spark.stop()
        if gateway is not None:
            gateway.proc.stdin.close()  # this makes the JVM end; at its end, the JVM writes the archive
            try:
                gateway.proc.wait(_SECONDS)
            except subprocess.TimeoutExpired:
                gateway.proc.kill()
                gateway.proc.wait()
                part.unlink(missing_ok=True)
    if part.exists():
        part.replace(path)


if __name__ == "__main__":
    make_archive()
