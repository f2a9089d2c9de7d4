"""The import rules detect violations. `./test` checks before the tests that there are none."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINT_IMPORTS = Path(sysconfig.get_path("scripts")) / "lint-imports"


def _lint(root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(LINT_IMPORTS), "--no-logo", "--no-cache", "--config", str(root / "pyproject.toml")],
        cwd=root / "src",
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(root / "src"), "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
    )


def test_a_task_does_not_load_the_data_source() -> None:
    """An error of `format("binlog")` must not stop a task that does not use it."""
    loaded = "[name for name in sys.modules if name.startswith('pidts.spark.format')]"
    code = f"import sys, pidts.spark.stream; print({loaded})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("module", ["pidts.task.run.task_run", "pidts.task.operate.status"])
def test_a_task_between_servers_does_not_load_what_warehouses_need(module: str) -> None:
    """Loading pyiceberg takes a fifth of the time until a run begins."""
    code = f"import sys, {module}; print(sorted({{'pyiceberg', 'pyspark'}} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.fixture
def small_tree(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for package in (
        "model",
        "binlog",
        "schema",
        "source",
        "relay",
        "replicate",
        "excerpt",
        "apply",
        "target",
        "spark",
        "sandbox",
        "batch",
        "ddl",
        "ddl/shards",
        "task",
        "task/cutover",
    ):
        (tmp_path / "src" / "pidts" / package).mkdir(parents=True)
        (tmp_path / "src" / "pidts" / package / "__init__.py").write_text("")
    for module in ("__init__", "batch/decoding", "batch/returned"):
        (tmp_path / "src" / "pidts" / f"{module}.py").write_text("")
    return tmp_path


ALLOWED = [
    ("replicate", "import pidts.source"),
    ("replicate", "import pidts.relay"),
    ("source", "import pidts.binlog"),
    ("spark", "import pyspark.sql"),
    ("source", "import pymysql.cursors"),
    ("target", "import psycopg"),
]
FORBIDDEN = [
    ("model", "import pidts.binlog"),
    ("binlog", "import pidts.schema"),
    ("binlog", "import pidts.source"),
    ("source", "import pidts.relay"),
    ("source", "import pidts.replicate"),
    ("excerpt", "import pidts.target"),
    ("apply", "import pidts.spark"),
    ("sandbox", "import pidts.source"),
    ("target", "from pyspark.sql import Row"),
    ("relay", "import pymysql"),
    ("source", "import psycopg"),
]


def _write(tree: Path, cases: list[tuple[str, str]]) -> list[str]:
    """Writes each line into a module of its own; returns the names of the modules."""
    for number, (importer, line) in enumerate(cases):
        (tree / "src" / "pidts" / importer / f"work{number}.py").write_text(line + "\n")
    return [f"pidts.{importer}.work{number} " for number, (importer, _) in enumerate(cases)]


def test_allowed_imports_pass(small_tree: Path) -> None:
    _write(small_tree, ALLOWED)
    done = _lint(small_tree)
    assert done.returncode == 0, done.stdout


def test_forbidden_imports_are_detected(small_tree: Path) -> None:
    """Among them: decoding a batch may not import what applies it."""
    modules = _write(small_tree, FORBIDDEN)
    for module in ("decoding", "returned"):
        (small_tree / "src" / "pidts" / "batch" / f"{module}.py").write_text("import pidts.apply\n")
        modules.append(f"pidts.batch.{module} -> pidts.apply")
    done = _lint(small_tree)
    assert done.returncode == 1, done.stdout
    assert [module for module in modules if module not in done.stdout] == []
