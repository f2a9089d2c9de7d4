"""A later command continues the same comparison only, and a comparison does not need a writable folder."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from pidts.cli.verify import comparison_of, saved_in, with_retries
from pidts.model import TableName, Transient
from pidts.task.config.task_file import load_parts
from pidts.verify import Callbacks, ComparisonInterrupted, ComparisonState, MemoryFile, Report, TableReport

OTHER = {"target": "other", "source": "other", "[shop]": "[shop, crm]", '"1"': '"2"'}
REACHED = ComparisonState("all").finished(TableReport(TableName("shop", "orders"), rows=2), ())

TASK = """\
name: shop
task-mode: all
target-database: {type: mysql, host: target, user: u}
mysql-instances: [{source-id: a, from: {host: source, user: u}, block-allow-list: all, column-mapping-rules: [ids]}]
block-allow-list: {all: {do-dbs: [shop]}}
column-mappings:
  ids: {schema-pattern: shop, table-pattern: orders, expression: partition id, target-column: id,
        arguments: ["1", "shop", "orders"]}
"""


@pytest.mark.parametrize("changed", ["host: target", "host: source", "do-dbs: [shop]", '"1"'])
def test_another_server_or_another_rule_makes_another_comparison(tmp_path: Path, changed: str) -> None:
    # Otherwise `pidts verify` would report rows as equal that it has only compared with the former server.
    name, _, value = changed.rpartition(" ")
    texts = {"t.yaml": TASK, "other.yaml": TASK.replace(changed, f"{name} {OTHER[value]}".strip())}
    found = []
    for file, text in texts.items():
        (tmp_path / file).write_text(text)
        found.append(comparison_of(load_parts(tmp_path / file), "", ""))
    assert found[0] != found[1]
    assert found[0] == comparison_of(load_parts(tmp_path / "t.yaml"), "", "")


def test_a_comparison_goes_on_if_its_state_cannot_be_stored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "relay").write_text("a file, so that no folder can be made here")
    memory = [ComparisonState("all")]
    save = saved_in(MemoryFile(tmp_path / "relay" / "verify" / "t.json"), memory)
    save(REACHED)
    save(REACHED)
    assert memory == [REACHED]
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "cannot be written" in said


def test_a_comparison_before_the_first_run_makes_the_relay_for_its_user_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        MemoryFile(tmp_path / "relay" / "s" / "verify" / "t.json").save(ComparisonState("all"))
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert modes == {"relay": 0o700, "s": 0o700, "verify": 0o700, "t.json": 0o600}


def test_a_state_is_stored_for_the_next_command(tmp_path: Path) -> None:
    file, memory = MemoryFile(tmp_path / "verify" / "t.json"), [ComparisonState("all")]
    saved_in(file, memory)(REACHED)
    assert memory == [file.load("all")] == [REACHED]


def test_a_comparison_that_is_stopped_after_a_lost_connection_is_interrupted() -> None:
    """It ends as after each Ctrl-C, with the line that says how it continues, and not with the error that may pass."""
    callbacks = Callbacks()

    def attempt() -> Report:
        callbacks.stop.set()
        raise Transient("source-lost", "the connection to the source is lost")

    with pytest.raises(ComparisonInterrupted):
        with_retries(attempt, callbacks)
