"""A DM task file with all of DM's keys is accepted unchanged, and its rules have effect."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pidts.model import ConfigError, Position, TableName
from pidts.rules import ColumnMapping
from pidts.rules.event_filter import FilterDecision
from pidts.rules.routes import Destination
from pidts.task.config.task_file import TaskConfig, load_task

FILES = Path(__file__).with_name("dm")
TASK, SOURCE = ((FILES / name).read_text("utf-8") for name in ("task.yaml", "crm-a.yaml"))

Load = Callable[..., TaskConfig]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def both(task: str = TASK, source: str = SOURCE) -> TaskConfig:
        (tmp_path / "crm-a.yaml").write_text(source)
        (tmp_path / "task.yaml").write_text(task)
        return load_task(tmp_path / "task.yaml", {})

    return both


def test_a_file_with_everything_in_it_is_taken_as_it_is(load: Load) -> None:
    config = load()
    assert (config.name, config.mode, config.workers, config.limits.threads) == (
        "crm-to-analytics",
        "incremental",
        3,
        8,
    )
    assert config.source.start == Position("bin.000017", 4711)
    assert (config.source.server.server_id, config.target.port) == (429, 4000)
    noted = {note.split(": ")[1] for note in config.notes}
    assert "syncers.all.worker-count" not in noted
    assert {"target-database.session.sql_mode", "syncers.all.checkpoint-flush-interval"} <= noted


def test_the_rules_of_a_dm_file_have_effect(load: Load) -> None:
    rules = load().rules
    name = TableName("crm_1", "customers_de")
    destination = rules.routes.destination(name)
    assert (destination.name, destination.extracted) == (
        TableName("crm", "customers"),
        (("region", "de"), ("shard", "1"), ("origin", "crm-a")),
    )
    assert rules.routes.destination(TableName("crm_1", "x")).name == TableName("crm", "x")
    assert rules.routes.destination(other := TableName("hr", "x")) == Destination(other)
    assert rules.events(name, ["truncate table"]) is FilterDecision.SKIP
    assert rules.events(name, ["insert"]) is FilterDecision.TAKE
    assert rules.events(TableName("crm_1", "log_1"), ["delete"]) is FilterDecision.SKIP
    assert rules.events(TableName("crm_1", "sessions"), ["insert"]) is FilterDecision.SKIP, (
        "a filter of the source file"
    )
    assert rules.events(TableName("", ""), [], "CREATE  SEQUENCE s") is FilterDecision.SKIP
    assert [rule.insert or rule.update_new for rule in rules.expressions.rules] == ["id < 0", "id = 2"]
    assert rules.allow(name)
    assert not rules.allow(TableName("crm_1", "tmp_1"))
    assert not rules.allow(TableName("crm_1", "_customers_de_gho")), "a table of gh-ost"
    assert not rules.allow(TableName("crm_x", "t"))


def test_the_names_of_rules_are_kept_for_messages(load: Load) -> None:
    name = TableName("crm_1", "customers_de")
    fitting = [(rule.map, rule.name) for rule in load().rule_names if rule.fits(name, case_sensitive=False)]
    assert fitting == [
        ("routes", "customers"),
        ("routes", "schema"),
        ("filters", "no-truncate"),
        ("filters", "whatever-this-is"),
        ("expression-filter", "no-tests"),
        ("expression-filter", "not-closed"),
    ]


def test_an_old_name_of_the_block_allow_list_counts(load: Load) -> None:
    config = load(TASK.replace("block-allow-list", "black-white-list"))
    assert config.allow.do_dbs == (r"~^crm_\d+$",)


def test_column_mappings_are_read_though_dm_has_left_them(load: Load) -> None:
    mapping = """
column-mappings:
  id:
    schema-pattern: crm_*
    table-pattern: customers_*
    source-column: id
    target-column: id
    expression: {}
    arguments: [1, crm_, customers_]
"""
    task = TASK.replace("    block-allow-list: crm\n", "    block-allow-list: crm\n    column-mapping-rules: [id]\n")
    assert load(task + mapping.format("partition id")).rules.mappings == (
        ColumnMapping("crm_*", "customers_*", "id", "partition id", ("1", "crm_", "customers_"), "id"),
    )
    with pytest.raises(ConfigError, match="of a column mapping") as caught:
        load(task + mapping.format("partition of id"))
    assert caught.value.where.line == TASK.count("\n") + 9


def test_variables_of_mysql_s_sessions_are_nothing_to_postgresql(load: Load) -> None:
    config = load(TASK.replace("  host: 10.0.0.9", "  type: postgresql\n  database: d\n  host: 10.0.0.9"))
    assert config.target.variables == ()
    noted = [note.split(": ")[1] for note in config.notes]
    assert {"target-database.session", "target-database.max-allowed-packet"} <= set(noted)
    assert "target-database.session.sql_mode" not in noted


def test_a_filter_of_the_source_file_gives_way_to_one_of_the_task_for_the_same_patterns(load: Load) -> None:
    source = SOURCE.replace("table-pattern: sessions", "table-pattern: '*'")
    config = load(source=source)
    assert config.rules.events(TableName("crm_1", "sessions"), ["insert"]) is FilterDecision.TAKE
    assert any("a filter of the task has the same patterns" in note for note in config.notes)
