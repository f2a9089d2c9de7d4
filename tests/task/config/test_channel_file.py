"""A task file whose target is a datacenter accepts the keys that a channel can honour, and refuses all others with
their lines.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pidts.cli.app import run_command
from pidts.model import ConfigError
from pidts.task.config.task_file import TaskConfig, load_task

FILE = """\
name: c
task-mode: incremental
target-database: {type: datacenter, host: h, user: u, database: dc}
mysql-instances:
  - source-id: one
    from: {host: h, user: u}
"""


def _loaded(tmp_path: Path, text: str) -> TaskConfig:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    return load_task(path, {})


def test_a_channel(tmp_path: Path) -> None:
    config = _loaded(tmp_path, FILE + "pidts: {retention: 7d}\ntimezone: Asia/Shanghai\n")
    assert config.target.is_datacenter
    assert config.target.meta_schema == config.target.database == "dc"
    assert config.retention == 7 * 86400
    assert config.rules.expressions.time_zone == "Asia/Shanghai"
    assert config.notes == ()


@pytest.mark.parametrize(
    ("before", "after", "line", "named"),
    [
        ("incremental", "all", 2, "task-mode"),
        ("name: c\n", "name: c\nshard-mode: optimistic\n", 2, "shard-mode"),
        ("name: c\n", "name: c\nmeta-schema: mine\n", 4, "database"),
        (", database: dc", "", 3, "database"),
        ("database: dc", "database: mysql", 3, "database"),
        ("database: dc", "database: d-c", 3, "database"),
        (
            "user: u}\n",
            "user: u}\n    route-rules: [r]\nroutes: {r: {schema-pattern: a, target-schema: b}}\n",
            8,
            "routes",
        ),
        ("name: c\n", "pidts: {version-column: v}\nname: c\n", 1, "pidts.version-column"),
        ("name: c\n", "pidts: {split-transactions: 10}\nname: c\n", 1, "pidts.split-transactions"),
        ("name: c\n", "pidts: {on-divergence: lock}\nname: c\n", 1, "pidts.on-divergence"),
    ],
)
def test_keys_that_a_channel_does_not_have_are_refused(
    tmp_path: Path, before: str, after: str, line: int, named: str
) -> None:
    head, _, tail = FILE.rpartition(before) if before.startswith("user") else FILE.partition(before)
    with pytest.raises(ConfigError) as refused:
        _loaded(tmp_path, head + after + tail)
    assert named in refused.value.what
    assert refused.value.where.line == line


def test_several_sources(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="one source"):
        _loaded(tmp_path, FILE + "  - source-id: two\n    from: {host: h, user: u}\n")


def test_only_a_datacenter_has_a_retention(tmp_path: Path) -> None:
    text = FILE.replace("datacenter", "postgresql") + "pidts: {retention: 7d}\n"
    with pytest.raises(ConfigError, match="only a datacenter"):
        _loaded(tmp_path, text)


@pytest.mark.parametrize("command", ["repair", "cutover", "locks list"])
def test_a_channel_has_no_tables_of_the_source(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(FILE)
    assert run_command([*command.split(), str(path)]) == ConfigError.exit_code
    assert f"pidts {command.split(maxsplit=1)[0]} is not for a channel" in capsys.readouterr().err
