"""A task file's mistakes are reported together, each with its line, but without errors that only follow from a mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from pidts.model import ConfigError
from pidts.task.config.section import in_order
from pidts.task.config.task_file import load_task

TASK = """\
name: shop
task-mode: al
collation_compatible: strict
target-database: {type: postgresql, host: h, user: app, database: shop, pasword: x}
mysql-instances:
  - source-id: shop-1
    from: {host: h, user: repl, port: 99999}
    block-allow-list: shop
    route-rules: [orders, user]
    filter-rules: [drops]
    syncer-config-name: global
    thread: 4
block-allow-list:
  shop:
    do-dbs: [shop, "~("]
routes:
  orders: {schema-pattern: "a*b", target-schema: x}
  users: {schema-pattern: b, target-schema: x}
filters:
  drops: {schema-pattern: a, events: [drop tabel], action: Ignore}
syncers:
  global: {worker-count: 0, compact: "no"}
  other: {}
pidts: {spark: {direct-row: 1}}
"""
SAID = {
    2: "[bad-value] task-mode: expected one of full, incremental, all, not 'al'. Did you mean 'all'?",
    3: "[not-supported] collation_compatible: PiDTS does not support this value of the DM setting: ",
    4: "[unknown-key] 'pasword' is not a key of target-database. Did you mean 'password'?",
    7: "[bad-value] mysql-instances[0].from.port: expected at most 65535, not 99999",
    9: "[unknown-name] route-rules: there is no 'user' in routes. Did you mean 'users'?",
    12: "[unknown-key] 'thread' is not a key of mysql-instances[0]",
    15: "[bad-pattern] block-allow-list.shop.do-dbs[1]: the pattern '(' is not understood: ",
    17: "[bad-pattern] routes.orders.schema-pattern: '*' is only possible as the last character",
    20: "[bad-event] filters.drops.events: ",
    22: "[bad-value] syncers.global.worker-count: expected at least 1, not 0",
    23: "[unused-name] syncers.other: no instance uses it.",
    24: "[unknown-key] 'direct-row' is not a key of pidts.spark. Did you mean 'direct-rows'?",
}


def refused(tmp_path: Path, text: str) -> ConfigError:
    path = tmp_path / "task.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_task(path, {})
    return caught.value


def test_all_that_can_be_found_is_reported_in_the_order_of_the_lines(tmp_path: Path) -> None:
    error = refused(tmp_path, TASK)
    assert (error.code, error.exit_code) == ("several-mistakes", 2)
    head, *lines = error.what.splitlines()
    assert head == f"{len(lines)} mistakes"
    file = tmp_path / "task.yaml"
    found = {int(line.partition(":")[2].partition(":")[0]): line.strip() for line in lines if "compact" not in line}
    assert list(found) == list(SAID)
    for number, said in SAID.items():
        assert found[number].startswith(f"{file}:{number}: {said}")
    assert any("compact: expected true or false, not text" in line for line in lines)


def test_notes_come_in_the_order_of_the_lines() -> None:
    notes = ["t.yaml:20: b", "t.yaml:3: a", "s.yaml:1: c", "t.yaml:20: b", "t.yaml:100: d"]
    assert in_order(notes) == ("t.yaml:3: a", "t.yaml:20: b", "t.yaml:100: d", "s.yaml:1: c")


def test_one_mistake_is_reported_as_itself(tmp_path: Path) -> None:
    good = "name: s\ntask-mode: all\ntarget-database: {type: mysql, host: h, user: u}\n"
    source = "mysql-instances: [{source-id: s, from: {host: h, user: u}}]\n"
    error = refused(tmp_path, good + source + "extra: 1\n")
    assert (error.code, error.where.line) == ("unknown-key", 5)


@pytest.mark.parametrize(
    ("target", "code", "todo"),
    [
        ("{type: postgresql, host: h, user: u, databse: d}", "missing-key", "Is it 'databse' in line 3?"),
        ("{type: mysql, hots: h, user: u}", "missing-key", "Is it 'hots' in line 3?"),
        ("{type: tidb, host: h, user: u}", "bad-value", "Write mysql: PiDTS writes to TiDB as to a MySQL server."),
        ("{type: postgres, host: h, user: u}", "bad-value", "Write postgresql."),
    ],
)
def test_a_misspelt_key_gets_a_suggestion(tmp_path: Path, target: str, code: str, todo: str) -> None:
    error = refused(tmp_path, f"name: s\ntask-mode: all\ntarget-database: {target}\n")
    assert (error.code, error.todo, error.where.line) == (code, todo, 3)


@pytest.mark.parametrize("what", ["task", "password-file", "ssl-ca"])
def test_a_file_without_an_end_is_refused(tmp_path: Path, what: str) -> None:
    """`/dev/zero` has no end, so it must not be read to its end."""
    path = Path("/dev/zero")
    if what != "task":
        path = tmp_path / "task.yaml"
        more = "password-file: /dev/zero" if what == "password-file" else "security: {ssl-ca: /dev/zero}"
        path.write_text(
            "name: t\ntask-mode: all\ntarget-database: {type: mysql, host: h, user: u}\n"
            f"mysql-instances: [{{source-id: s, from: {{host: h, user: r, {more}}}}}]\n"
        )
    with pytest.raises(ConfigError) as refused:
        load_task(path)
    assert "it has more than 16 MiB" in str(refused.value) or "is not a regular file" in str(refused.value)
