"""`pidts ddl` prints halts, waiting shards, ddl commands and previews.

tests/spark/test_halts.py and tests/task/operate/test_orders.py have the effects of its commands.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pidts.cli.app import run_command
from pidts.cli.ddl.view import advice, next_steps, show_command, show_ddl_list, show_halt, show_halts, show_retry
from pidts.cli.errors import remember_task
from pidts.model import CommandKind, DdlCommand, DdlJournal, DdlState, Halt, Halted, Lsn, Table, TableName
from pidts.model.advice import COMPARE_TODO, OTHER_ROW_TODO, REPLACE, RETRY, SKIP
from pidts.schema import PartitionRows
from pidts.target.difference import refuse_shortened, refuse_unfillable
from pidts.target.refusals import constraint_todo, trigger_todo
from pidts.task.operate.backlog import Backlog, HeldTablesOfSource, NextSchemaChange
from pidts.task.operate.ddl_commands import BlockedChange
from pidts.task.operate.shard_locks import OpenLock

Output = pytest.CaptureFixture[str]
AT = Lsn(0, 1, 500)
TASK = Path("shop.yaml")
CHANGE = Halt(
    tables=(TableName("shop", "a"),),
    lsn=AT,
    position="bin.000001:500",
    statement="ALTER TABLE a ADD x INT",
    code="target-refused",
    what="Duplicate column name 'x'",
    todo="Mend it.",
)
ROWS = Halt(tables=(TableName("shop", "b"),), lsn=AT, code="target-refused", what="Data too long", todo=COMPARE_TODO)
HALTED = BlockedChange(
    AT,
    CHANGE.statement,
    CHANGE,
    DdlCommand(lsn=AT, kind=CommandKind.REPLACE, statements=("ALTER TABLE a ADD x BIGINT",)),
    DdlJournal(task="t", source="s", lsn=AT, statement="", rendered=("one", "two"), step=1),
    "s",
    Backlog(transactions=1203, own_bytes=1_200_000, log_bytes=5_000_000, since=1_700_000_000),
)
REFUSED_ROWS = BlockedChange(AT, "", ROWS, source="s")
MERGED = TableName("shop", "orders")


def shard(source: str, number: int, *, code: str = "shard-awaits", statement: str = "") -> BlockedChange:
    text = statement or f"ALTER TABLE t_{number} ADD c INT"
    halt = Halt(
        tables=(TableName("shop", f"t_{number}"),),
        lsn=Lsn(0, number, 500),
        position=f"bin.{number:06}:500",
        statement=text,
        code=code,
        what="it waits for 2 others",
        todo="Change the others, too",
        awaits=("s2: shop.t_9",),
        since=time.time() - 3720,
    )
    return BlockedChange(halt.lsn, text, halt, source=source)


LOCK = OpenLock(target=MERGED, arrived=(shard("s1", 1), shard("s2", 2)), awaited=("s2: shop.t_9",))
APART = OpenLock(
    target=MERGED,
    arrived=tuple(
        replace(one, halt=replace(one.halt, awaits=awaits))
        for one, awaits in (
            (shard("s1", 1, code="shards-disagree"), ("s2: shop.t_2",)),
            (shard("s2", 2, code="shards-disagree", statement="ALTER ... d"), ("s1: shop.t_1",)),
            (shard("s1", 3, code="shards-disagree", statement="ALTER TABLE t_3 ADD COLUMN c INT"), ("s2: shop.t_2",)),
        )
        if one.halt is not None
    ),
    awaited=(),
)


def said(capsys: Output) -> str:
    return capsys.readouterr().out


def test_the_list_names_table_cause_place_and_remedies(capsys: Output) -> None:
    show_ddl_list(
        "t",
        TASK,
        [HALTED, REFUSED_ROWS],
        [],
        [HeldTablesOfSource("s", {TableName("shop", "a"): AT}, 42)],
        as_json=False,
    )
    text = said(capsys)
    for words in (
        "shop.a: halted at bin.000001:500",
        "Duplicate column",
        "Mend it",
        f"or run instead: pidts ddl skip {TASK} --at {AT} --yes, or, with a statement in the target's SQL",
        f"and with the target's names: pidts ddl replace {TASK} ",
        f"pidts ddl replace {TASK} {shlex.quote(CHANGE.statement)} --at {AT}",
        "ADD x BIGINT",
        "1,203 transactions (1.2 MB) wait for it, the first from 2023-11-14 22:13:20 UTC",
        f"pidts ddl retry {TASK} --table shop.b",
        f"pidts run {TASK} --resync shop.b",
        "s: 1 table waiting; the relay keeps 42 B of log that only waiting tables need; the table catches up by itself",
        "the table catches up by itself once the causes above are removed",
        "once the causes above are removed\n",
        "ddl replace (not begun) at Lsn",
    ):
        assert words in text
    assert "restart" not in text
    assert f"{shlex.quote(CHANGE.statement)} --at {AT} --yes" not in text, "these words are to be changed first"
    show_ddl_list("t", TASK, [], [], [HeldTablesOfSource("s", {}, 0)], as_json=False)
    assert "nothing is halted" in said(capsys)


def test_a_change_that_a_view_prevents_is_tried_again_after_the_view_is_dropped() -> None:
    halt = replace(CHANGE, code="objects-depend", todo="Drop the view.", instead=("ALTER TABLE shop.a ADD x int",))
    assert advice(halt, str(TASK)) == (
        f"Drop the view. Then run: pidts ddl retry {TASK} --at {halt.lsn} --yes; then create the objects again that are "
        f"still valid. Or run all of it at once: pidts ddl replace {TASK} "
        f"'DROP ...; ALTER TABLE shop.a ADD x int; CREATE ...' --at {halt.lsn}"
    )


def test_a_change_that_ends_the_run_and_that_a_view_prevents_needs_another_run() -> None:
    halt = replace(CHANGE, code="objects-depend", statement="DROP DATABASE shop", tables=())
    assert advice(halt, str(TASK)).endswith(f"--at {halt.lsn}. Then run the task again")


def test_rows_that_a_statement_moves_come_by_a_copy() -> None:
    error = PartitionRows("DROP PARTITION p0", "drop partition").refused(CHANGE.tables[0])
    halt = replace(CHANGE, code=error.code, statement="ALTER TABLE shop.a DROP PARTITION p0", todo=error.todo)
    said = advice(halt, str(TASK))
    assert [said.count(command) for command in ("ddl skip", "--resync", "ddl retry", "ddl replace")] == [1, 1, 0, 0]
    assert said.startswith("Make the same change on the target; then run pidts ddl skip")
    assert "Or skip the statement now, and copy the table again: pidts run" in said
    assert "Stop the task before you copy the table again (with a service: `pidts stop`" in said


def test_the_same_for_machines(capsys: Output) -> None:
    show_ddl_list("t", TASK, [HALTED, *LOCK.arrived], [LOCK], [HeldTablesOfSource("s", {}, 0)], as_json=True)
    found = json.loads(said(capsys))
    change, *shards = found["halted"]
    assert CHANGE.to_json().items() <= change.items()
    assert (change["source"], change["backlog"]["transactions"]) == ("s", 1203)
    assert [one["awaits"] for one in shards] == [["s2: shop.t_9"]] * 2
    (order,) = found["orders"]
    assert (order["order"], order["begun"], order["failed"], order["done"]) == ("replace", False, False, False)
    (lock,) = found["locks"]
    assert (lock["target"], lock["owner"], lock["awaited"]) == ("shop.orders", "s1", ["s2: shop.t_9"])
    assert [one["source"] for one in lock["arrived"]] == ["s1", "s2"]
    assert not lock["disagrees"]
    assert found["held"] == []


def test_ddl_commands_that_were_carried_out_long_ago_are_not_listed(capsys: Output) -> None:
    assert HALTED.journal is not None
    journal, now = replace(HALTED.journal, state=DdlState.DONE), time.time()
    old = replace(HALTED, halt=None, journal=replace(journal, saved_at=now - 25 * 3600))
    show_ddl_list("t", TASK, [old, old], [], [], as_json=False)
    assert said(capsys) == (
        f"t: nothing is halted\n2 ddl commands finished more than a day ago; to see them: pidts ddl list {TASK} --json\n"
    )
    late = replace(old, journal=replace(journal, saved_at=now - 23 * 3600))
    open_ones = [HALTED, replace(old, halt=CHANGE), replace(old, journal=journal), replace(old, journal=None), late]
    show_ddl_list("t", TASK, [old, *open_ones], [], [], as_json=False)
    text = said(capsys)
    assert text.count(") at Lsn") == len(open_ones)
    assert "ddl replace (done) at Lsn" in text
    assert "(23 h 0 min ago)" in text
    assert "1 ddl command finished more than a day ago" in text
    show_ddl_list("t", TASK, [old, *open_ones], [], [], as_json=True)
    found = json.loads(said(capsys))["orders"]
    assert [one["done_at"] is None for one in found] == [False, True, False, True, True, False]


def test_a_ddl_command_that_fails_is_named_and_so_is_its_statement(capsys: Output) -> None:
    halt = replace(
        CHANGE,
        code="order-refused",
        what="the target refuses a statement of `pidts ddl replace`: SELEC 1: syntax error",
    )
    show_ddl_list("t", TASK, [replace(HALTED, halt=halt)], [], [], as_json=False)
    text = said(capsys)
    assert "command    ddl replace (failed): ALTER TABLE a ADD x BIGINT" in text
    assert "SELEC 1: syntax error" in text
    assert "statement  ALTER TABLE a ADD x INT" in text


def test_a_statement_of_the_source_cannot_control_the_terminal(capsys: Output) -> None:
    statement, name = "ALTER TABLE t\nCOMMENT '\x1b[2J'", TableName("a", "\x1b[2J")
    halted = replace(HALTED, halt=replace(CHANGE, tables=(name,), statement=statement))
    arrived = (shard("s1", 1, statement=statement), shard("s2", 2, statement=statement))
    lock = replace(LOCK, target=name, arrived=arrived, awaited=(f"s2: {name}",))
    show_ddl_list("t", TASK, [halted, *arrived], [lock], [], as_json=False)
    text = said(capsys)
    assert "\x1b" not in text
    assert text.count("statement  ALTER TABLE t\nCOMMENT '\\x1b[2J'") == 2


def test_the_command_for_a_table_has_its_name_as_it_is(capsys: Output) -> None:
    name = TableName("a", "t\u3000\u200c")
    show_ddl_list("t", TASK, [], [replace(LOCK, target=name)], [], as_json=False)
    assert f"pidts ddl unlock {TASK} --table 'a.t\u3000\u200c' --yes" in said(capsys)


def test_shards_that_wait_are_one_block(capsys: Output) -> None:
    # The shards have waited since an hour before the test runs, and not since an hour before the import of this module.
    arrived = (shard("s1", 1), shard("s2", 2))
    lock = replace(LOCK, arrived=arrived)
    show_ddl_list(
        "t", TASK, arrived, [lock], [HeldTablesOfSource("s1", {}, 0), HeldTablesOfSource("s2", {}, 0)], as_json=False
    )
    text = said(capsys)
    for words in (
        "shop.orders: a schema change waits for all shards, since ",
        "(1 h 2 min ago); 2 of 3 have reached it\n",
        "statement  ALTER TABLE t_1 ADD c INT (on the table of each shard)\n",
        "reached by s1: shop.t_1 at bin.000001:500",
        "reached by s2: shop.t_2 at bin.000002:500",
        f"Lsn {LOCK.arrived[1].lsn}, since ",
        "waits for  s2: shop.t_9, since ",
        f"pidts ddl unlock {TASK} --table shop.orders --yes\n",
    ):
        assert words in text
    assert "cannot reach it" not in text
    assert "halted" not in text
    assert text.count("ADD c INT") == text.count("because") == 1
    show_ddl_list("t", TASK, APART.arrived, [APART], [], as_json=False)
    assert f"unlock {TASK} --table shop.orders --source s1 --at {APART.first.lsn}" in said(capsys)


def test_the_command_that_does_not_wait_for_shards_is_named_once(capsys: Output) -> None:
    arrived = tuple(
        replace(one, halt=replace(one.halt, todo="Or continue without them: run pidts ddl unlock TASK --at LSN --yes"))
        for one in LOCK.arrived
        if one.halt is not None
    )
    show_ddl_list("t", TASK, arrived, [replace(LOCK, arrived=arrived)], [], as_json=False)
    assert said(capsys).count("ddl unlock") == 1


def test_an_awaited_shard_that_cannot_come_gets_a_message_about_it(capsys: Output) -> None:
    lock = replace(LOCK, refused={"s2: shop.t_9": "target-shape"})
    show_ddl_list("t", TASK, lock.arrived, [lock], [], as_json=False)
    assert "; it cannot reach the change, since its rows are refused: [target-shape]" in said(capsys)


def test_hundreds_of_shards_are_one_screen(capsys: Output) -> None:
    arrived = [shard("s1", number) for number in range(570)]
    odd = [shard("s2", 570, code="shard-structure", statement="CREATE TABLE `shop`.`t_570` (id INT)")]
    names = tuple(f"s2: shop.t_{number}" for number in range(900, 906))
    arrived = [replace(one, halt=replace(one.halt, awaits=names)) for one in [*arrived, *odd] if one.halt is not None]
    lock = OpenLock(target=MERGED, arrived=tuple(arrived), awaited=names)
    show_ddl_list("t", TASK, arrived, [lock], [], as_json=False)
    text = said(capsys)
    assert len(text.splitlines()) < 30
    for words in (
        "571 of 577 have reached it",
        "ALTER TABLE t_0 ADD c INT (on the table of each shard)\n",
        "s1: shop.t_4 at",
        "… and 565 more: pidts ddl list shop.yaml --table shop.orders",
        "statement  CREATE TABLE `shop`.`t_570` (id INT)\n",
        "s2: shop.t_570 at",
        "s2: shop.t_904, since",
        "… and 1 more: pidts",
        "[shard-structure]",
    ):
        assert words in text, words
    assert "shop.t_5 " not in text
    assert "shop.t_905" not in text
    assert text.count("[shard-awaits]") == 1
    show_ddl_list("t", TASK, arrived, [lock], [], as_json=False, whole=True)
    text = said(capsys)
    assert all(f"s1: shop.t_{number} at" in text for number in range(570))
    assert "shop.t_905" in text
    assert "more" not in text
    show_ddl_list("t", TASK, arrived, [lock], [], as_json=True)
    assert len(json.loads(said(capsys))["locks"][0]["arrived"]) == 571


def test_the_number_of_shards_of_a_source_that_has_not_begun_is_not_known(capsys: Output) -> None:
    halt = replace(LOCK.first.halt, awaits=("s2: *",)) if LOCK.first.halt else None
    lock = OpenLock(target=MERGED, arrived=(replace(LOCK.first, halt=halt),), awaited=("s2: *",))
    show_ddl_list("t", TASK, lock.arrived, [lock], [], as_json=False)
    assert "; 1 of at least 1 have reached it\n" in said(capsys)


def test_a_row_that_is_refused_is_reported_with_its_key_and_its_source(capsys: Output) -> None:
    row = replace(REFUSED_ROWS, halt=replace(ROWS, key="id=7"))
    show_ddl_list(
        "t", TASK, [row], [], [HeldTablesOfSource("s", {}, 0), HeldTablesOfSource("s2", {}, 0)], as_json=False
    )
    text = said(capsys)
    assert "s: shop.b: halted at" in text
    assert "because    [target-refused] Data too long (key id=7)\n" in text
    assert (
        f"  do         {COMPARE_TODO}\n"
        "             If the row is right: remove the cause of the refusal, then run: "
        f"pidts ddl retry {TASK} --table shop.b --source s --yes\n"
        "             If the row is wrong: correct it on the source, stop the task, then run: pidts run"
    ) in text
    show_halt(replace(ROWS, key="id=7"), TASK, "s")
    assert "key id=7" in capsys.readouterr().err
    show_ddl_list("t", TASK, [row], [], [HeldTablesOfSource("s", {}, 0)], as_json=True)
    assert json.loads(said(capsys))["halted"][0]["key"] == "id=7"


def test_the_schema_change_behind_a_refused_row_is_shown(capsys: Output) -> None:
    row = replace(REFUSED_ROWS, next_change=NextSchemaChange(AT, "bin.000001:900", "ALTER TABLE b ADD x INT"))
    show_ddl_list("t", TASK, [row], [], [HeldTablesOfSource("s", {}, 0)], as_json=False)
    assert f"  then       ALTER TABLE b ADD x INT (at bin.000001:900, Lsn {AT})\n  do" in said(capsys)
    for is_whole, least in ((True, ""), (False, "at least ")):
        first = NextSchemaChange(AT, "bin.000001:900", "ALTER TABLE b ADD x INT", 2, is_whole)
        more = replace(row, next_change=first)
        show_ddl_list("t", TASK, [more], [], [HeldTablesOfSource("s", {}, 0)], as_json=False)
        assert f"Lsn {AT})\n             and {least}2 more schema changes of the same tables\n" in said(capsys)
    for one, change in ((row, "ALTER TABLE b ADD x INT"), (REFUSED_ROWS, None)):
        show_ddl_list("t", TASK, [one], [], [HeldTablesOfSource("s", {}, 0)], as_json=True)
        (halted,) = json.loads(said(capsys))["halted"]
        assert (halted["next_change"] and halted["next_change"]["statement"]) == change


def test_a_halt_that_an_earlier_version_has_recorded_is_read() -> None:
    about = json.loads(ROWS.dumps())
    del about["key"]
    assert Halt.loads(json.dumps(about)) == ROWS
    assert Halt.loads(replace(ROWS, key="id=7").dumps()).key == "id=7"


VALUES = ("before the change, the source had: v=1", "the target has: v=2")


def test_a_row_that_differs_is_shown_with_its_values_by_the_list_only(capsys: Output) -> None:
    halt = replace(ROWS, code="row-diverged", position="bin.000001:777", key="id=7", values=VALUES)
    show_ddl_list("t", TASK, [replace(REFUSED_ROWS, halt=halt)], [], [], as_json=False)
    text = said(capsys)
    assert f"shop.b: halted at bin.000001:777, applied up to Lsn {AT}\n" in text
    assert f"  values     {VALUES[0]}\n             {VALUES[1]}\n" in text
    assert f"Then run: pidts ddl retry {TASK} --table shop.b --yes\n" in text, (
        "nothing has to be corrected on the source"
    )
    show_ddl_list("t", TASK, [replace(REFUSED_ROWS, halt=halt)], [], [], as_json=True)
    assert json.loads(said(capsys))["halted"][0]["values"] == list(VALUES)
    show_halt(halt, TASK)
    assert "v=" not in capsys.readouterr().err + str(halt.to_json())


def test_a_record_of_a_halt_keeps_the_values_and_one_without_them_is_read() -> None:
    halt = replace(ROWS, values=VALUES)
    assert Halt.loads(halt.dumps()) == halt
    about = json.loads(halt.dumps())
    del about["values"]
    assert Halt.loads(json.dumps(about)) == ROWS


def test_a_halt_looks_like_an_error(capsys: Output) -> None:
    show_halt(ROWS, TASK)
    text = capsys.readouterr().err
    assert "error [target-refused] Data too long" in text
    assert f"pidts run {TASK} --resync shop.b" in text
    show_halt(CHANGE, TASK, "s1")
    assert f"pidts ddl retry {TASK} --source s1 --at {AT}" in capsys.readouterr().err


def test_of_many_halts_at_the_end_of_a_run_the_first_are_reported(capsys: Output) -> None:
    shards = [one.halt for one in (shard("s1", number) for number in range(570)) if one.halt is not None]
    show_halts([("s1", halt) for halt in (*shards, ROWS)], TASK)
    text = capsys.readouterr().err
    assert text.index("[target-refused]") < text.index("[shard-awaits]")
    assert text.count("error [") == 12
    assert text.endswith(f"and 559 more; to see them: pidts ddl list {TASK}\n")


def test_a_halts_own_words_name_the_tasks_file() -> None:
    todo = "To resolve these rows: pidts locks resolve TASK --table shop.a --all --take source --yes"
    said = advice(replace(CHANGE, todo=todo), "a b.yaml")
    assert said.startswith(
        "To resolve these rows: pidts locks resolve 'a b.yaml' --table shop.a --all --take source --yes. Then run: "
    )
    assert said.lower().count("then run: ") == 1


def test_the_advice_to_try_again_is_given_once() -> None:
    halt = replace(CHANGE, todo=f"Resolve them. Then: {RETRY}")
    said = advice(halt, "t", "s")
    assert said.count("pidts ddl retry") == 1
    assert f". Or run instead: pidts ddl skip t --source s --at {AT} --yes, or" in said


@pytest.mark.parametrize(
    ("halt", "words"),
    [
        (CHANGE, "Mend it. Then run: pidts ddl retry t --at"),
        (replace(CHANGE, tables=()), "Then run the task again"),
        (
            replace(CHANGE, code="ddl-not-translatable"),
            "If rows then have wrong values, copy the table again: stop the task, then",
        ),
        (
            replace(
                CHANGE, code="ddl-not-translatable", todo=refuse_shortened("at", Table(TableName("shop", "b"), ())).todo
            ),
            "Then copy the table again: stop the task, then",
        ),
        (
            replace(
                CHANGE,
                code="ddl-not-translatable",
                todo=refuse_unfillable(["at"], Table(TableName("shop", "b"), ())).todo,
            ),
            ". Then copy the table again: stop the task, then",
        ),
        (replace(CHANGE, code="shard-awaits"), "Mend it. See: pidts ddl list t"),
        (ROWS, "If the row is right: remove the cause of the refusal, then run: pidts ddl retry t --table shop.b"),
        (replace(ROWS, tables=()), "pidts run t"),
    ],
)
def test_advice_names_the_cure(halt: Halt, words: str) -> None:
    assert words in advice(halt, "t")


def test_between_zones_the_advice_after_a_refused_row_does_not_copy_again() -> None:
    """The command refuses it there. An example is a key that differs from another zone's only in spaces at its end."""
    error = Halted("target-refused", "no", todo=f"Give the keys the source's collations. {OTHER_ROW_TODO}")
    says = advice(Halt.of(error, ROWS.tables, AT, source="s", into_zone="c"), "t")
    assert "--resync" not in says
    assert says.startswith("Give the keys the source's collations. ")
    assert says.count("pidts ddl retry t --table shop.b") == 1
    assert says.count("pidts zones return FILE c") == 1
    assert "differ only in spaces" in says
    for code, todo in (("target-refused", COMPARE_TODO), ("value-not-mapped", "Mend it.")):
        halt = replace(ROWS, code=code, todo=todo, into_zone="")
        assert "--resync" not in advice(halt, "t")
        assert advice(halt, "t").count("fill the whole zone again: pidts zones return FILE ZONE") == 1
    assert "--resync" in advice(Halt.of(error, ROWS.tables, AT, source="s"), "t")


@pytest.mark.parametrize("code", ["target-refused", "ddl-not-translatable", "rename-moves-rows", "objects-depend"])
def test_between_zones_the_advice_after_a_schema_change_does_not_copy_again(capsys: Output, code: str) -> None:
    halt = replace(CHANGE, code=code, into_zone="c")
    assert "--resync" not in advice(halt, "t")
    show_command(replace(HALTED, halt=halt), CommandKind.SKIP, (), given=False, as_json=False)
    text = said(capsys)
    assert "--resync" not in text
    if code != "rename-moves-rows":
        assert (
            "let the task carry this command out, then fill the whole zone again:\n    pidts zones return FILE c"
            in text
        )


@pytest.mark.parametrize(
    ("code", "todo", "retries", "copies", "cases"),
    [
        ("target-refused", COMPARE_TODO, 1, 1, 2),
        ("target-refused", constraint_todo('CHECK constraint "odd"', "ALTER TABLE b DROP CONSTRAINT odd"), 1, 1, 1),
        (
            "target-shape",
            "Rename it back, then run: pidts ddl retry TASK --table shop.b. Otherwise start it with",
            1,
            0,
            0,
        ),
        ("row-diverged", "Correct it.", 1, 0, 0),
        ("row-missing", "The target differs: copy the table again: pidts run TASK --resync s:b", 0, 1, 0),
        ("transaction-too-large", "Raise max_binlog_cache_size on the target", 1, 0, 0),
        ("value-not-mapped", "Correct the row on the source, or remove the mapping", 1, 1, 2),
    ],
    ids=["unknown cause", "constraint", "table gone", "row differs", "row missing", "size", "mapping"],
)
def test_the_advice_after_a_refused_row_has_each_command_at_most_once_and_only_if_it_helps(
    code: str, todo: str, retries: int, copies: int, cases: int
) -> None:
    said = advice(replace(ROWS, code=code, todo=todo), str(TASK))
    assert (said.count("pidts ddl retry"), said.count("--resync")) == (retries, copies)
    assert said.count("If the row is ") == cases
    assert ("Stop the task before" in said) == (not retries)


def test_after_a_trigger_has_refused_a_row_the_advice_has_the_command_for_both_cases() -> None:
    """The advice about the missing grant mentions `--resync`, which is no command."""
    for grant in ("", 'GRANT SET ON PARAMETER session_replication_role TO "u"'):
        halt = replace(ROWS, code="target-refused", todo=trigger_todo("PL/pgSQL function f() line 3", grant))
        assert f". Then run: pidts ddl retry {TASK} --table shop.b --yes. If the row is wrong: " in advice(
            halt, str(TASK)
        )


def test_if_a_copy_is_only_the_second_choice_the_table_can_be_tried_again() -> None:
    todo = (
        "Give the keys the source's columns. If others have written there, copy it again: pidts run TASK --resync s:b"
    )
    said = advice(replace(ROWS, code="target-refused", todo=todo), str(TASK))
    assert (
        f"If you have corrected the target, run: pidts ddl retry {TASK} --table shop.b --yes. Stop the task before"
        in said
    )


def test_where_there_are_several_sources_a_table_is_called_with_its_own() -> None:
    refused = REFUSED_ROWS.halt
    assert refused is not None
    assert "pidts run t --resync two:shop.b (with a service" in advice(refused, "t", "two")


def test_the_preview_says_what_would_happen(capsys: Output) -> None:
    remember_task(Path("my shop.yaml"))
    show_command(HALTED, CommandKind.SKIP, (), given=False, as_json=False)
    remember_task(None)
    text = said(capsys)
    assert "already on the target: one" in text
    assert "shop.a: 1,203 transactions" in text
    assert "pidts run 'my shop.yaml' --resync shop.a" in text
    assert text.startswith("With --yes, this command does the following:\n")
    assert "Nothing has been done yet. To do it, add --yes" in text
    show_retry([REFUSED_ROWS], given=False, as_json=False)
    assert said(capsys) == (
        "With --yes, this command does the following:\nshop.b: tries again to write the rows that were refused\n"
        "Nothing has been done yet. To do it, add --yes.\n"
    )
    show_retry([REFUSED_ROWS], given=True, as_json=False)
    assert "shop.b: tries again to write the rows that were refused\nRecorded" in said(capsys)
    show_retry([REFUSED_ROWS], given=True, as_json=True)
    assert json.loads(said(capsys))["tables"] == ["shop.b"]


def test_a_replacement_that_changes_the_rows_of_all_shards_names_them_all(capsys: Output) -> None:
    changed = {"s2": [TableName("shop", "c")], "s": {TableName("shop", "b"), TableName("shop", "a")}}
    show_command(HALTED, CommandKind.REPLACE, ("X",), given=False, as_json=False, changed=changed)
    assert "--resync s:shop.a,s:shop.b,s2:shop.c\n" in said(capsys)
    many = {"s": [TableName("shop", f"t{number}") for number in range(21)]}
    show_command(HALTED, CommandKind.REPLACE, ("X",), given=False, as_json=False, changed=many)
    text = said(capsys)
    assert "--resync s:shop.a\n  Name all other shards of the target table, too: see" in text


def test_a_command_that_replaces_a_recorded_one_says_so(capsys: Output) -> None:
    show_command(HALTED, CommandKind.REVERT, (), given=True, as_json=False, name="retry")
    recorded = "the command that was recorded for it is forgotten: ddl replace: ALTER TABLE a ADD x BIGINT"
    assert recorded in said(capsys)
    assert HALTED.command is not None
    statements = HALTED.command.statements
    withdrawn = replace(HALTED, command=replace(HALTED.command, kind=CommandKind.REVERT, statements=()))
    show_command(HALTED, CommandKind.REPLACE, statements, given=True, as_json=False)
    show_command(withdrawn, CommandKind.REPLACE, statements, given=True, as_json=False)
    assert "forgotten" not in said(capsys)


@pytest.mark.parametrize(
    ("kind", "lock", "words"),
    [
        (
            CommandKind.UNLOCK,
            LOCK,
            [
                "without waiting for the shards",
                "these shards also continue: s2: shop.t_2",
                "does not wait for: s2: shop.t_9",
            ],
        ),
        (
            CommandKind.UNLOCK,
            APART,
            [
                "these shards also continue: s1: shop.t_3\n",
                "the target does not run this different change: ALTER ... d\n    from s2: shop.t_2\n",
            ],
        ),
        (CommandKind.REPLACE, LOCK, ["these shards also continue", "the target does not run the change again"]),
        (CommandKind.SKIP, LOCK, ["shop.orders keeps its columns", "the other shards still wait"]),
        (CommandKind.INJECT, LOCK, ["once all shards have reached it"]),
        (CommandKind.REVERT, LOCK, ["unchanged, once all shards have reached it"]),
    ],
)
def test_the_preview_shows_what_becomes_of_other_shards(
    kind: CommandKind, lock: OpenLock, words: list[str], capsys: Output
) -> None:
    show_command(lock.first, kind, (), given=False, as_json=False, lock=lock)
    text = said(capsys)
    assert [one for one in words if one not in text] == []
    assert "\n\n" not in text
    show_command(lock.first, kind, (), given=False, as_json=True, lock=lock)
    alone = kind not in {CommandKind.UNLOCK, CommandKind.REPLACE}
    others = [] if alone else ["s1: shop.t_3"] if lock is APART else ["s2: shop.t_2"]
    assert json.loads(said(capsys))["counts_for"] == ["s1: shop.t_1", *others]
    assert text.count(f"{lock.first.source}: shop.t_1") == 0, "it is no other one"


@pytest.mark.parametrize("group", ["ddl", "binlog"])
def test_dmctl_s_words_are_understood(group: str, capsys: Output) -> None:
    for command in ("list", "skip", "replace", "inject", "revert"):
        assert run_command([group, command, "--help"]) == 0
    assert "--binlog-pos" in capsys.readouterr().out
    assert run_command([group, "replace", "nowhere.yaml", " ; "]) == 2
    assert "no statement to run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "reads"),
    [
        (["show-ddl-locks", "nowhere.yaml"], True),
        (["shard-ddl-lock", "nowhere.yaml"], True),
        (["shard-ddl-lock", "list", "nowhere.yaml"], True),
        (["shard-ddl-lock", "unlock", "nowhere.yaml", "task-`shop`.`orders`"], True),
        (["unlock-ddl-lock", "nowhere.yaml", "task-`shop`.`orders`"], True),
        (["shard-ddl-lock", "unlock"], False),
        (["shard-ddl-lock", "list", "one", "two"], False),
    ],
)
def test_dmctl_s_words_for_locks_are_understood(words: list[str], reads: bool, capsys: Output) -> None:
    assert run_command(words) == 2
    assert ("unreadable-file" if reads else "usage") in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["shard-ddl-lock", "unlock"], ["the task file is missing", "pidts shard-ddl-lock unlock TASK 'LOCK'"]),
        (["shard-ddl-lock", "list"], ["the task file is missing", "Write: pidts shard-ddl-lock TASK"]),
        (["shard-ddl-lock", "unlock", "a", "b", "c"], ["too many words: a b c", "unlock TASK 'LOCK'"]),
        (["shard-ddl-lock", "unlock", "t-`shop`.`o`"], ["name of a lock", "unlock TASK 't-`shop`.`o`'"]),
        (["unlock-ddl-lock", "t-`shop`.`o`"], ["name of a lock", "unlock TASK 't-`shop`.`o`'"]),
    ],
)
def test_a_task_file_that_was_forgotten_is_reported_with_the_words_to_say(
    words: list[str], says: list[str], capsys: Output
) -> None:
    assert run_command(words) == 2
    found = capsys.readouterr().err
    assert "[usage]" in found
    assert [one for one in says if one not in found] == []


@pytest.mark.parametrize("refused", [refuse_shortened, lambda name, table: refuse_unfillable([name], table)])
def test_a_change_after_which_the_table_is_copied_has_each_command_once(refused: Callable[..., Halted]) -> None:
    error = refused("at", Table(TableName("shop", "b"), ()))
    error.instead = ("ALTER TABLE a MODIFY at DATETIME",)
    said = advice(Halt.of(error, (TableName("shop", "b"),), AT, source="s", statement="ALTER"), "t.yaml", "s")
    filled = f"pidts ddl replace t.yaml 'ALTER TABLE a MODIFY at DATETIME' --source s --at {AT} --yes. Then copy the"
    assert filled in said
    assert (said.count("pidts ddl replace"), said.count("--resync s:shop.b")) == (1, 1)
    assert "Stop the task before you copy the table again" in said


def test_a_refused_statement_is_not_advised_as_it_is() -> None:
    sql = "ALTER TABLE a ADD KEY by_x (x)"
    table = (TableName("shop", "b"),)
    refused = Halted("target-refused", "no", todo="Mend it", instead=(sql,))
    said = advice(Halt.of(refused, table, AT, source="s", statement=sql), "t")
    assert said.endswith(f", or, after you have changed the statement: pidts ddl replace t '{sql}' --at {AT}"), said
    todo = f"Change it: run {REPLACE}. Or run: {SKIP}. Or: {RETRY}"
    of_operator = Halted("order-refused", "no", todo=todo)
    assert advice(Halt.of(of_operator, table, AT, source="s", statement=sql), "t", "s") == (
        f"Change it: run pidts ddl replace t SQL --source s --at {AT}. Or run: pidts ddl skip t --source s --at {AT} "
        f"--yes. Or: pidts ddl retry t --source s --at {AT} --yes"
    )
    taken = Halted("target-refused", "no", todo=todo, instead=(sql,))
    assert advice(Halt.of(taken, table, AT, source="s", statement=sql), "t", "s").startswith(
        f"Change it: run pidts ddl replace t '{sql}' --source s --at {AT}. Or run: pidts ddl skip t"
    ), "the operator has to change it first: there is no --yes"


def test_the_command_that_cures_a_halt_has_its_sql() -> None:
    halt = replace(CHANGE, code="ddl-not-translatable", instead=("ALTER TABLE a ADD b INT DEFAULT VALUE", "SELECT 'x'"))
    said = advice(halt, "a b.yaml", "one")
    sql = "'ALTER TABLE a ADD b INT DEFAULT VALUE; SELECT '\"'\"'x'\"'\"''"
    assert f"First run: pidts ddl replace 'a b.yaml' {sql} --source one --at {halt.lsn} --yes" in said
    assert Halt.loads(halt.dumps()) == halt
    unknown = advice(replace(halt, instead=(), statement="ALTER TABLE a ADD b INT"), "a b.yaml", "one")
    assert f"First run: pidts ddl replace 'a b.yaml' 'ALTER TABLE a ADD b INT' --source one --at {halt.lsn}." in unknown


def test_after_a_ddl_command_the_list_says_when_it_is_carried_out(capsys: Output) -> None:
    """An operator who has followed the advice must not read the same advice again."""
    decided = replace(HALTED, halt=replace(CHANGE, is_decided=True))
    show_ddl_list("t", TASK, [decided], [], [], as_json=False)
    text = said(capsys)
    assert "command    ddl replace (not begun): ALTER TABLE a ADD x BIGINT\n" in text
    assert "do         Nothing, if the task runs: it carries out the ddl command within seconds. Otherwise the" in text
    assert f"To withdraw the ddl command before that, run: pidts ddl revert {TASK} --at {AT} --yes" in text
    for words in ("Mend it", "ddl skip", "ddl replace shop.yaml", "--resync"):
        assert words not in text
    assert decided.command is not None
    printed = replace(CHANGE, instead=decided.command.statements, todo="Then copy the table again: x", is_decided=True)
    steps = next_steps(replace(decided, halt=printed), str(TASK), "s")
    assert steps[1].startswith(
        f"Then copy the table again: stop the task, then run: pidts run {TASK} --resync s:shop.a"
    )
    in_zone = next_steps(replace(decided, halt=replace(printed, into_zone="b")), str(TASK), "s")
    assert in_zone[1].startswith("Then fill the whole zone again: pidts zones return FILE b")
    retried = next_steps(replace(decided, command=replace(decided.command, kind=CommandKind.REVERT)), str(TASK))
    assert len(retried) == 1, "a retry cannot be withdrawn"


def test_a_shard_with_a_ddl_command_needs_no_other_one(capsys: Output) -> None:
    first, second = (
        replace(one, command=DdlCommand(lsn=one.lsn, kind=CommandKind.UNLOCK), halt=replace(one.halt, is_decided=True))
        for one in LOCK.arrived
        if one.halt is not None
    )
    show_ddl_list("t", TASK, [], [replace(LOCK, arrived=(first, second))], [], as_json=False)
    text = said(capsys)
    assert "given      ddl unlock of s1: shop.t_1" in text
    assert "pidts ddl unlock" not in text
