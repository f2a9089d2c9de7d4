"""The wheel can be installed into a new environment, and runs a task with a Spark that already exists."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

import pytest

from pidts.model import PidtsError
from pidts.spark.spark_home import find_pyspark

ROOT = Path(__file__).parents[3]
SITE = Path(sysconfig.get_paths()["purelib"])
OF_THE_BUILD = ("src", "requirements", "pyproject.toml", "LICENSE", "README.md")
NOT_IN_A_THIN_ONE = ("pyspark", "py4j", "pidts", "__editable__")


def program(*words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    usual = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "SPARK_HOME"}}
    command = list(map(str, words))
    return subprocess.run(command, env={**usual, **environment}, capture_output=True, text=True, check=False)


def thin_environment(tmp_path: Path) -> Path:
    """Makes an environment with the wheel. All packages of this environment except Spark are linked into it, not
    copied.
    """
    (tmp_path / "tree").mkdir()
    for name in OF_THE_BUILD:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / "tree" / name)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    built = program(*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", tmp_path, tmp_path / "tree")
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("pidts-*.whl")
    made = program(sys.executable, "-m", "venv", "--without-pip", tmp_path / "env")
    assert made.returncode == 0, made.stderr
    (there,) = (tmp_path / "env").glob("lib/python*/site-packages")
    for entry in SITE.iterdir():
        if not entry.name.startswith(NOT_IN_A_THIN_ONE):
            (there / entry.name).symlink_to(entry)
    python = tmp_path / "env" / "bin" / "python"
    installed = program(python, "-m", "pip", "--disable-pip-version-check", "install", "--no-deps", "--no-index", wheel)
    assert installed.returncode == 0, installed.stderr
    return tmp_path / "env" / "bin" / "pidts"


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_wheel_runs_a_task_with_the_spark_of_spark_home(tmp_path: Path) -> None:
    pidts = thin_environment(tmp_path)
    version = program(pidts, "--version")
    assert (version.returncode, version.stdout.startswith("pidts 0.")) == (0, True), version.stderr
    without = program(pidts, "demo", "--seconds", "1")
    assert "[spark-not-started] there is no pyspark, and SPARK_HOME is not set" in without.stderr
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.submodule_search_locations
    ran = program(pidts, "demo", "--seconds", "2", SPARK_HOME=spec.submodule_search_locations[0])
    assert ran.returncode == 0, ran.stderr
    assert "\n0 differences in " in ran.stdout, ran.stdout


def test_a_spark_home_without_pyspark_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pidts.spark.spark_home.find_spec", lambda _: None)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with pytest.raises(PidtsError, match=f"SPARK_HOME={tmp_path} has no pyspark in {tmp_path}/python"):
        find_pyspark()
