"""Commands in advice get the task file, the source, the place and the tables, as far as these are known."""

from __future__ import annotations

from pidts.model import Halt, Halted, Lsn, TableName, Where
from pidts.model.advice import LIST, REPLACE, RESYNC, SKIP, of_table, with_place, with_service, with_tables, with_task

A, B = TableName("shop", "a"), TableName("shop", "b c")
TEXT = f"Do it by hand, then: {SKIP}. Or: {REPLACE}; or LSN TASK SOURCE TABLE: {RESYNC}. See: {LIST}"


def test_only_commands_get_what_is_known() -> None:
    text = with_tables(with_place(with_task(TEXT, "my shop.yaml"), "s 1", "bin.3:4"), "s 1", (A,))
    assert text == (
        "Do it by hand, then: pidts ddl skip 'my shop.yaml' --source 's 1' --at bin.3:4 --yes. "
        "Or: pidts ddl replace 'my shop.yaml' SQL --source 's 1' --at bin.3:4; "
        "or LSN TASK SOURCE TABLE: pidts run 'my shop.yaml' --resync 's 1:shop.a'. See: pidts ddl list 'my shop.yaml'"
    )


def test_only_commands_of_a_service_get_the_options_that_name_it() -> None:
    text = (
        "Start it: pidts serve. See: pidts list; pidts ddl list TASK. Then: pidts run TASK (with a service: `pidts "
        "start`, not `pidts run`). Or: pidts serve --state DIR. A task needs no service: `pidts status FILE.yaml`"
    )
    assert with_service(text, "--state /s --token-file /t", "--state /s") == (
        "Start it: pidts serve --state /s. See: pidts list --state /s --token-file /t; pidts ddl list TASK. Then: pidts "
        "run TASK (with a service: `pidts start --state /s --token-file /t`, not `pidts run`). Or: pidts serve --state "
        "DIR. A task needs no service: `pidts status FILE.yaml`"
    )
    assert with_service(text, "", "") == text


def test_what_is_not_known_stays_for_the_reader() -> None:
    assert with_tables(with_place(TEXT, "", ""), "s", ()) == TEXT


def test_many_tables_are_not_listed() -> None:
    many = tuple(TableName("shop", f"t{number}") for number in range(6))
    assert with_tables(RESYNC, "s", many) == RESYNC
    assert with_tables(RESYNC, "s", many[:2]).endswith("--resync s:shop.t0,s:shop.t1")


def test_a_command_may_name_the_table_instead_of_the_place() -> None:
    assert of_table(SKIP, "s", B) == "pidts ddl skip TASK --source s --table 'shop.b c' --yes"


def test_a_halt_names_its_source_and_place_in_each_command() -> None:
    error = Halted("ddl-moves-rows", "rows move", where=Where(table=str(A)), todo=f"{SKIP}; {RESYNC}")
    lsn = Lsn(0, 1, 9)
    halt = Halt.of(error, (A,), lsn, source="s", statement="ALTER TABLE a DROP PARTITION p")
    assert halt.todo == f"pidts ddl skip TASK --source s --at {lsn} --yes; pidts run TASK --resync s:shop.a"
