"""Files that the JVM and its libraries leave in the temporary folder are removed with the process that started it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pidts.owned_folder import owned_folder

SPARK = """
import sys, time
from pathlib import Path
from pidts.spark.session import build_session
scratch = Path(sys.argv[1])
for number in range(2):
    spark = build_session("t", "local[1]", scratch / str(number), scratch / "spark.log", {})
    assert spark.range(9).repartition(2).count() == 9
    if not number:
        spark.stop()
print(spark.sparkContext._gateway.proc.pid, flush=True)
if sys.argv[2] == "hangs":
    time.sleep(600)
"""


@pytest.mark.spark
@pytest.mark.parametrize("is_killed", [pytest.param(False, marks=pytest.mark.long), True])
def test_files_of_a_jvm_are_removed_with_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_killed: bool
) -> None:
    temporary, scratch = tmp_path / "tmp", tmp_path / "scratch"
    temporary.mkdir()
    ends = "hangs" if is_killed else "ends"
    environ = {name: value for name, value in os.environ.items() if name != "PYSPARK_SUBMIT_ARGS"}
    child = subprocess.Popen(
        [sys.executable, "-c", SPARK, str(scratch), ends],
        stdout=subprocess.PIPE,
        text=True,
        env={**environ, "TMPDIR": str(temporary)},
    )
    assert child.stdout is not None
    with child, child.stdout:
        try:
            jvm = int(child.stdout.readline())
            if is_killed:
                (folder,) = temporary.iterdir()
                left = {path.name.partition("-")[0] for path in (folder / "java").iterdir()}
                assert {"artifacts", "liblz4"} <= left
                child.kill()
            child.wait(60)
        finally:
            child.kill()
    until = time.monotonic() + 60
    while Path(f"/proc/{jvm}").exists() and time.monotonic() < until:
        time.sleep(0.1)
    if is_killed:
        monkeypatch.setattr("tempfile.tempdir", str(temporary))
        with owned_folder("next"):
            pass
    assert list(temporary.iterdir()) == []
