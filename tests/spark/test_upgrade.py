"""This version continues a task that version 0.1.0 began: its checkpoints, relay, records of shards, halts and ddl
commands.

The old version is taken from the repository's history. It is killed with SIGKILL while it has everything that it can
record: a shard that waits for others, a halted table, tombstones of a version column, a relay with changes that are not
applied yet.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from .merged_task import Shards

ROOT = Path(__file__).parents[2]
VERSION_0_1 = "b4ed5dbea52b6dd7fc7715186a64c35131efead8"
"""The commit whose meta tables and relay files this version must be able to use."""

PATIENCE = 600
"""The timeout of each step in seconds: on a busy machine, version 0.1.0 answers Spark too late, and tries again."""

SETUP = (
    "CREATE TABLE {1}.keyless (v INT, t VARCHAR(20))",
    "CREATE TABLE {1}.versioned (id INT PRIMARY KEY, v VARCHAR(20) NOT NULL, update_time DATETIME(6) NOT NULL)",
    "CREATE TABLE {1}.narrow (id INT PRIMARY KEY, v VARCHAR(20) NOT NULL)",
    "INSERT INTO {1}.keyless VALUES (1, 'a'), (1, 'a'), (2, NULL)",
    "INSERT INTO {1}.versioned VALUES (1, 'one', '2020-01-01'), (2, 'two', '2020-01-01'), (3, 'three', '2020-01-01')",
    "INSERT INTO {1}.narrow VALUES (1, 'one')",
)


@pytest.fixture(scope="module")
def old_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder `src` of version 0.1.0."""
    packed = subprocess.run(["git", "archive", VERSION_0_1, "src"], cwd=ROOT, capture_output=True, check=False)
    if packed.returncode:
        pytest.skip(f"this checkout has no history: {packed.stderr.decode().strip()}")
    folder = tmp_path_factory.mktemp("version-0-1")
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as tree:
        tree.extractall(folder, filter="data")
    return folder / "src"


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("target_kind", ["postgres", "mariadb"])
def test_a_task_of_version_0_1_continues(target_kind, make_shards, old_source):
    shards: Shards = make_shards(target_kind, pidts={"version-column": "update_time"})
    own = f"{shards.schema}_1"
    shards.on("one", *SETUP)
    shards.on("two", "CREATE TABLE {1}.versioned_too (id INT PRIMARY KEY, update_time DATETIME(6) NOT NULL)")
    for number, source in enumerate(shards.sources):
        shards.on(source, f"INSERT INTO {{1}}.orders_1 VALUES ({number * 10 + 1}, 'copied', 1)")

    old = {**os.environ, "PYTHONPATH": str(old_source), "PIDTS_KERNEL": "python"}
    run = shards.task.start(environment=old)
    run.wait_until(shards.are_copied, "all is copied", PATIENCE)
    shards.on_target(f"ALTER TABLE {own}.narrow " + shorten(target_kind))
    shards.on(
        "one",
        "DELETE FROM {1}.versioned WHERE id = 3",
        "DELETE FROM {1}.keyless WHERE v = 1 LIMIT 1",
        "ALTER TABLE {1}.orders_1 ADD COLUMN c INT DEFAULT 5",
        "INSERT INTO {1}.orders_1 VALUES (2, 'held', 3, 3)",
        "INSERT INTO {1}.narrow VALUES (2, 'much longer')",
    )
    run.wait_until(
        lambda: {"shard-awaits", "target-refused"} <= {halt["code"] for halt in shards.halts()}, "both stand still"
    )
    kept = {halt["lsn"] for halt in shards.halts()}
    run.kill()
    for words in (("status",), ("ddl", "list"), ("relay", "list"), ("check",), ("plan",)):
        before, after = answers(shards, old, *words), answers(shards, None, *words)
        assert before <= after, f"pidts {' '.join(words)} --json lost {sorted(before - after)}"

    # These rows are written while no task runs; then this version continues.
    shards.on("one", "UPDATE {1}.versioned SET v = 'new', update_time = '2021-01-01' WHERE id = 1")
    shards.on(
        "one", "INSERT INTO {1}.keyless VALUES (1, 'a'), (3, 'late')", "UPDATE {1}.orders_1 SET n = 9 WHERE id = 1"
    )
    run = shards.task.start()
    run.wait_until(lambda: (1, "new") in versioned(shards), "what came meanwhile is applied", PATIENCE)
    assert versioned(shards) == [(1, "new"), (2, "two")]
    run.wait_until(
        lambda: {halt["lsn"] for halt in shards.halts()} == kept, "the same stand still, at the same places", PATIENCE
    )
    assert sorted(shards.at_target(f"SELECT v FROM {own}.keyless")) == sorted([(1,), (1,), (2,), (3,)])
    assert [row[0] for row in shards.rows()] == [1, 11]

    shards.on_target(f"ALTER TABLE {own}.narrow " + widen(target_kind))
    shards.pidts("ddl", "retry", str(shards.task.path), "--table", f"{own}.narrow", "--yes")
    for source, name in (("one", "{1}.orders_2"), ("one", "{2}.orders_3")):
        shards.on(source, f"ALTER TABLE {name} ADD COLUMN c INT DEFAULT 5")
    for name in ("{1}.orders_1", "{1}.orders_2", "{2}.orders_3"):
        shards.on("two", f"ALTER TABLE {name} ADD COLUMN c INT DEFAULT 5")
    run.wait_until(lambda: not shards.halts(), "nothing stands still", PATIENCE)
    shards.has_all(run)
    shards.equal(run)
    assert run.stop() == 0


def answers(shards: Shards, environment: Mapping[str, str] | None, *words: str) -> set[str]:
    """Returns the keys of the JSON that a command prints, each after the keys above it."""
    done = shards.task.command(*words, str(shards.task.path), "--json", environment=environment)
    assert done.stdout, done.stderr.decode()
    return set(keys(json.loads(done.stdout.splitlines()[-1])))


def keys(value: Any, above: str = "") -> Iterator[str]:
    match value:
        case dict():
            for key, below in value.items():
                yield f"{above}.{key}"
                yield from keys(below, f"{above}.{key}")
        case list():
            for below in value:
                yield from keys(below, f"{above}[]")


def versioned(shards: Shards) -> list[tuple[int, str]]:
    return sorted(shards.at_target(f"SELECT id, v FROM {shards.schema}_1.versioned"))


def shorten(kind: str) -> str:
    return "ALTER COLUMN v TYPE VARCHAR(5)" if kind == "postgres" else "MODIFY COLUMN v VARCHAR(5) NOT NULL"


def widen(kind: str) -> str:
    return "ALTER COLUMN v TYPE VARCHAR(20)" if kind == "postgres" else "MODIFY COLUMN v VARCHAR(20) NOT NULL"
