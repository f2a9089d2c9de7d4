"""For a task of two sources, `pidts ddl` finds the change that is meant, and records the ddl command for a run."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.values_target import ValuesTarget

from pidts.cli.app import run_command
from pidts.model import Halt, Lsn, TableName
from pidts.task.config.task_file import TaskConfig
from pidts.task.operate import ddl_commands
from pidts.task.operate.ddl_commands import TaskCommands

TASK = """
name: t
task-mode: all
target-database: {host: 127.0.0.1, port: 9, user: root}
mysql-instances:
  - {source-id: s1, from: {host: 127.0.0.1, port: 9, user: root}, route-rules: [orders]}
  - {source-id: s2, from: {host: 127.0.0.1, port: 9, user: root}, route-rules: [orders]}
routes: {orders: {schema-pattern: "shop*", table-pattern: "t_*", target-schema: shop, target-table: orders}}
pidts: {relay: ./relay}
"""
ROOT = Path(__file__).parents[2]
AT, LATER = Lsn(0, 1, 500), Lsn(0, 1, 900)
_numbers = itertools.count()


class TaskOfTwoSources:
    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.path, self._capsys = folder / "t.yaml", capsys
        self.path.write_text(TASK)
        self.target = ValuesTarget(f"ddl commands {next(_numbers)}")

    def waits(
        self,
        source: str,
        table: str,
        *,
        schema: str = "shop",
        at: Lsn = AT,
        code: str = "target-refused",
        **more: Any,
    ) -> None:
        values = {"statement": f"ALTER TABLE {table} ADD x INT", "what": "no", **more}
        halt = Halt(tables=(TableName(schema, table),), lsn=at, code=code, **values)
        with closing(self.target.connect()) as session:
            session.meta.halts.save("t", source, halt)

    def pidts(self, *words: str, code: int = 0) -> Any:
        """Returns what the command prints with `--json`."""
        assert run_command([*words[:2], str(self.path), *words[2:], "--json"]) == code
        return json.loads(self._capsys.readouterr().out.splitlines()[-1])

    def said(self) -> str:
        """Returns what the command has printed since the last call."""
        return self._capsys.readouterr().out

    def given(self, source: str) -> list[tuple[Lsn, str, tuple[str, ...]]]:
        with closing(self.target.connect()) as session:
            return [
                (order.lsn, order.kind.value, order.statements) for order in session.meta.ddl_commands.read("t", source)
            ]

    def waiting(self, source: str) -> list[str]:
        with closing(self.target.connect()) as session:
            return [str(halt.tables[0]) for halt in session.meta.halts.read("t", source)]


@pytest.fixture
def task(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[TaskOfTwoSources]:
    made = TaskOfTwoSources(tmp_path, capsys)

    @contextmanager
    def connected(parts: Sequence[TaskConfig]) -> Iterator[TaskCommands]:
        with closing(made.target.connect()) as session:
            yield TaskCommands(parts, session)

    monkeypatch.setattr(ddl_commands, "task_commands", connected)
    yield made
    made.target.forget()


def test_no_ddl_command_is_recorded_without_a_confirmation(task: TaskOfTwoSources) -> None:
    task.waits("s2", "a")
    shown = task.pidts("ddl", "replace", "one; 'two;'", "three")
    assert (shown["source"], shown["statements"], shown["given"]) == ("s2", ["one", "'two;'", "three"], False)
    assert task.given("s2") == []
    assert task.pidts("binlog", "skip", code=2)["given"] is False, "dmctl's words are no preview"
    assert run_command(["binlog", "skip", str(task.path)]) == 2
    assert "Nothing has been done yet. To do it, add --yes" in task.said()
    assert task.given("s2") == []
    assert task.pidts("binlog", "inject", "one /* ; */", "-b", "bin.000001:500", "-s", "s2", "-y")["given"]
    assert task.given("s2") == [(AT, "inject", ("one /* ; */",))]
    (order,) = task.pidts("ddl", "list")["orders"]
    assert (order["source"], order["order"]) == ("s2", "inject")


def test_a_list_of_halted_tables_ends_with_0_and_the_pages_say_so(task: TaskOfTwoSources) -> None:
    task.waits("s2", "a")
    for more in ([], ["--json"], ["--table", "shop.a"]):
        assert run_command(["ddl", "list", str(task.path), *more]) == 0
        assert "target-refused" in task.said()
    for page in ("reference/cli.md", "operate/table-halted.md"):
        text = " ".join((ROOT / "docs" / page).read_text("utf-8").split())
        assert re.search(r"exit code( of `pidts ddl list`)? is 0 even if tables are halted", text), page


def test_a_lock_is_opened_for_its_first_shard_or_the_one_that_is_named(task: TaskOfTwoSources) -> None:
    task.waits("s2", "t_1", code="shard-awaits", awaits=("s1: shop.t_9",), since=5.0)
    task.waits("s1", "t_1", code="shard-awaits", awaits=("s1: shop.t_9",), since=7.0)
    task.waits("s1", "b", at=LATER)
    shown = task.pidts("ddl", "unlock")
    assert (shown["source"], shown["given"]) == ("s2", False)
    assert [one["source"] for one in shown["lock"]["arrived"]] == ["s2", "s1"]
    assert task.pidts("ddl", "unlock", "--source", "s1")["source"] == "s1"
    for words in (["unlock-ddl-lock"], ["shard-ddl-lock", "unlock"]):
        assert run_command([*words, str(task.path), "t-`shop`.`orders`"]) == 2
        assert task.given("s2") == []
    assert run_command(["unlock-ddl-lock", str(task.path), "t-`shop`.`orders`", "--yes"]) == 0
    assert (task.given("s1"), task.given("s2")) == ([], [(AT, "unlock", ())])
    assert task.pidts("ddl", "unlock", "--source", "s3", code=2)["error"]["code"] == "unknown-name"
    assert task.pidts("ddl", "unlock", "shop.b", code=2)["error"]["code"] == "no-such-lock"
    assert task.pidts("ddl", "skip", "--source", "s1", "--at", str(AT), "--yes")["lock"]["target"] == "shop.orders"
    assert task.given("s1") == [(AT, "skip", ())]


def test_rows_and_changes_are_tried_again_with_one_word(task: TaskOfTwoSources) -> None:
    task.waits("s1", "b", statement="")
    task.waits("s2", "c", statement="")
    assert task.pidts("ddl", "retry")["tables"] == ["shop.b", "shop.c"]
    assert task.pidts("ddl", "retry", "--table", "shop.b", "--yes")["given"]
    assert (task.waiting("s1"), task.waiting("s2")) == ([], ["shop.c"])
    task.waits("s2", "a", at=LATER)
    shown = task.pidts("ddl", "retry", "--table", "shop.a", "--yes")
    assert (shown["order"], shown["lsn"], task.given("s2")) == ("retry", str(LATER), [(LATER, "revert", ())])
    assert task.waiting("s2") == ["shop.a", "shop.c"], "a run takes it off when the change is made"
    assert task.pidts("ddl", "retry", "--at", str(LATER))["order"] == "retry"
    assert task.pidts("ddl", "retry", "--table", "shop.z", code=2)["error"]["code"] == "no-such-ddl"


def test_a_table_may_be_named_without_its_schema_if_only_one_is_meant(task: TaskOfTwoSources) -> None:
    task.waits("s1", "b", statement="")
    task.waits("s2", "t_1", at=LATER)
    assert task.pidts("ddl", "retry", "--table", "b")["tables"] == ["shop.b"]
    for name in ("t_1", "orders"):
        assert task.pidts("ddl", "skip", "--table", name)["lsn"] == str(LATER), (
            "by its name on the source or the target"
        )
    assert [one["tables"] for one in task.pidts("ddl", "list", "--table", "b")["halted"]] == [["shop.b"]]
    task.waits("s1", "t_1", code="shard-awaits", awaits=("s2: shop.t_9",))
    assert task.pidts("ddl", "unlock", "--table", "t_1")["lock"]["target"] == "shop.orders"
    task.waits("s2", "b", schema="crm", statement="")
    error = task.pidts("ddl", "retry", "--table", "b", code=2)["error"]
    assert (error["code"], error["what"]) == ("unknown-name", "2 blocked tables are called b")
    assert error["todo"] == "Name one of them: --table shop.b or --table crm.b"
    assert task.pidts("ddl", "retry", "--table", "crm.b")["tables"] == ["crm.b"]


def test_a_search_that_was_narrowed_says_so_if_it_finds_nothing(task: TaskOfTwoSources) -> None:
    task.waits("s1", "b", statement="")
    error = task.pidts("ddl", "retry", "--table", "item", "--source", "s1", code=2)["error"]
    assert error["what"] == "no schema change of table item is waiting on source s1"
    assert error["todo"].endswith("--table takes the schema and the name of a table: --table SCHEMA.item")
    assert task.pidts("ddl", "skip", code=2)["error"]["what"] == "no schema change of this task is waiting"


def test_a_preview_says_whose_rows_will_not_fit(task: TaskOfTwoSources, capsys: pytest.CaptureFixture[str]) -> None:
    more = {"awaits": ("s2: shop2.t_1",), "unfit": ("s2: shop2.t_1",), "lacks": ("column x is missing",)}
    task.waits("s1", "t_1", code="shard-awaits", **more)
    assert run_command(["ddl", "unlock", str(task.path), "--table", "shop.orders"]) == 0
    expected = (
        "rows of these shards do not fit, so the shards halt until they make the change themselves: s2: shop2.t_1"
    )
    assert expected in capsys.readouterr().out
    assert run_command(["ddl", "skip", str(task.path), "--source", "s1"]) == 0
    assert "do not fit, so the shard will halt: column x is missing" in capsys.readouterr().out


def test_a_preview_says_if_unlocking_does_not_end_the_wait(
    task: TaskOfTwoSources, capsys: pytest.CaptureFixture[str]
) -> None:
    stays = ("column x is already on the target, with other values in the shard's rows than on the source",)
    task.waits("s1", "t_1", code="shards-disagree", awaits=("s2: shop2.t_1",), stays=stays)
    assert run_command(["ddl", "unlock", str(task.path), "--table", "shop.orders"]) == 0
    shown = capsys.readouterr().out
    assert f"unlocking does not end the wait: {stays[0]}\n" in shown
    assert f"  Run instead: pidts ddl skip {task.path} --source s1 --at " in shown
    assert f" --yes. Then stop the task, and run: pidts run {task.path} --resync s1:shop.t_1\n" in shown
    assert "the target runs it now" not in shown
    assert task.pidts("ddl", "unlock", "--table", "shop.orders")["stays"] == [*stays]
    assert run_command(["ddl", "skip", str(task.path), "--source", "s1"]) == 0
    assert "does not end the wait" not in capsys.readouterr().out
