"""A cutover between two servers of one product creates objects on the target that other products cannot have.

The task itself does not run here: its records say that the target has everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.task.applied_task import begin

from pidts import sandbox
from pidts.apply import TargetSession
from pidts.model import Fenced
from pidts.sandbox import Server
from pidts.target.mysql.cutover import remade_tables
from pidts.task.checks.all_sources import check_all_sources
from pidts.task.checks.preview import preview_task
from pidts.task.config.task_file import TaskConfig, load_parts
from pidts.task.cutover.remaining_steps import NOTHING_TO_MAKE, switched_step
from pidts.task.cutover.steps import CutoverStep, StepName
from pidts.task.cutover.switch import CutoverOptions, CutoverRun
from pidts.task.cutover.target_side import makes_writable

RunSql = Callable[..., list[tuple[Any, ...]]]
IF_IT_CAN = "made by `pidts cutover`, if the target is {}, too, and can have it; `pidts cutover` prints its text"
START = {"mariadb": sandbox.start_mariadb, "mysql97": sandbox.start_mysql97}


@pytest.fixture(scope="module", params=[*START])
def servers(request: pytest.FixtureRequest) -> Iterator[tuple[Server, Server]]:
    """Starts a source to which only these tests write, and a target."""
    target: Server = request.getfixturevalue(request.param)
    with START[request.param]() as source:
        yield source, target
        source.kill()


@pytest.fixture
def source(servers: tuple[Server, Server]) -> Server:
    return servers[0]


@pytest.fixture
def target_server(servers: tuple[Server, Server]) -> Server:
    return servers[1]


@pytest.fixture
def parts(
    source: Server, target_server: Server, database: str, run_sql: RunSql, tmp_path: Path
) -> tuple[TaskConfig, ...]:
    one, other = (
        f'host: {each.host}, port: {each.port}, user: {each.user}, password: "{each.password}"'
        for each in (source, target_server)
    )
    path = tmp_path / "t.yaml"
    path.write_text(f"""\
name: {database}
task-mode: all
target-database: {{type: mysql, {other}}}
mysql-instances: [{{source-id: a, from: {{{one}}}, block-allow-list: all, route-rules: [there]}}]
block-allow-list: {{all: {{do-dbs: [shop]}}}}
routes: {{there: {{schema-pattern: shop, target-schema: {database}}}}}
""")
    run_sql(source, "DROP DATABASE IF EXISTS shop")
    run_sql(source, "CREATE DATABASE shop")
    for sql in TABLES:
        run_sql(source, sql, database="shop")
    return load_parts(path)


TABLES = (
    "CREATE TABLE words (id INT PRIMARY KEY, spot POINT NOT NULL, txt TEXT, SPATIAL KEY by_spot (spot))",
    "ALTER TABLE words ADD FULLTEXT KEY by_txt (txt)",
    "CREATE TABLE parted (id INT PRIMARY KEY, n INT)",
    "ALTER TABLE parted PARTITION BY LIST (id) (PARTITION p0 VALUES IN (1, 2), PARTITION p1 VALUES IN (3))",
    "CREATE TABLE refused (id INT PRIMARY KEY) PARTITION BY LIST (id) (PARTITION p0 VALUES IN (1))",
    "CREATE TABLE others (id INT PRIMARY KEY) PARTITION BY HASH (id) PARTITIONS 2",
    "INSERT INTO words (id, spot, txt) VALUES (1, POINT(1, 2), 'some words')",
    "INSERT INTO parted VALUES (1, 1), (3, 3)",
)


def test_keys_and_partitions_are_made_on_a_target_of_the_same_product(
    parts: tuple[TaskConfig, ...],
    source: Server,
    target_server: Server,
    database: str,
    run_sql: RunSql,
) -> None:
    notes = {of.source.name: of.notes for tables in preview_task(parts).values() for of in tables}
    if_it_can = IF_IT_CAN.format("MariaDB" if source.kind == "mariadb" else "MySQL")
    assert f"spatial key by_spot (SPATIAL KEY `by_spot` (`spot`)): {if_it_can}" in notes["words"]
    assert f"fulltext key by_txt (FULLTEXT KEY `by_txt` (`txt`)): {if_it_can}" in notes["words"]
    (found,) = [one for one in check_all_sources(parts) if one.item == "not_carried" and "shop.words" in one.message]
    assert found.ok
    assert "fulltext key by_txt" in found.message
    assert "spatial key by_spot" in found.message
    assert any(
        note.startswith("partitions (PARTITION BY LIST (") and note.endswith(if_it_can) for note in notes["parted"]
    )
    with closing(parts[0].target.server.connect()) as target:
        begin(parts[0], target)
        for sql in (
            "INSERT INTO words VALUES (1, POINT(1, 2), 'some words')",
            "INSERT INTO parted VALUES (1, 1), (3, 3)",
            "INSERT INTO refused VALUES (7)",
            "ALTER TABLE others PARTITION BY HASH (id) PARTITIONS 5",
        ):
            run_sql(target_server, sql, database=database)
        switch = CutoverRun(
            parts, target, CutoverOptions(read_only=False), run_once=lambda: pytest.fail("applied"), verify=None
        )
        look = switch.look()
        shown = {step.name.value: step for step in look.steps}
        assert shown["special-keys"].details == (
            f"FULLTEXT key by_txt of {database}.words (txt) is made",
            f"SPATIAL key by_spot of {database}.words (spot) is made",
        )
        assert shown["partitions"].details == (
            f"partitions of {database}.parted are made",
            f"partitions of {database}.refused are made",
        )
        said = (
            "PiDTS sees no run of the task; after this step, no run of the task can begin, unless you undo the cutover"
        )
        assert shown["stop"].about == said
        assert shown["verify"].about == "left out (--no-verify): the source and the target are not compared"
        (left,) = look.left
        assert str(left) == "partitions others of shop.others"
        assert f"On the target, if it fits:\nALTER TABLE `{database}`.`others` PARTITION BY HASH" in left.text
        # The process dies in the middle. The same command continues.
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(remade_tables, "make", killed_at(f"partitions of {database}.refused"))
            with pytest.raises(KeyboardInterrupt):
                switch.carry_out()
        target.rollback()
        again = CutoverRun(
            parts, target, CutoverOptions(read_only=False), run_once=lambda: pytest.fail("applied"), verify=None
        )
        done = {step.name.value: step for step in again.carry_out().steps}
        assert [*done][-6:] == ["stop", "columns", "special-keys", "partitions", "on-update", "switch"]
        assert done["special-keys"].about == NOTHING_TO_MAKE, "they were made before"
        assert done["partitions"].about == "1 not made"
        (refused,) = done["partitions"].details
        assert refused.startswith(f"partitions of {database}.refused: ")
        assert f"; the statement is: ALTER TABLE `{database}`.`refused` PARTITION BY LIST" in refused
        assert run_sql(target_server, "SELECT * FROM refused", database=database) == [(7,)]
        rows = "SELECT * FROM parted ORDER BY id"
        assert run_sql(target_server, rows, database=database) == [(1, 1), (3, 3)]
        types = (
            "SELECT index_name, index_type FROM information_schema.statistics WHERE table_schema = %s "
            "AND table_name = 'words' ORDER BY 1"
        )
        assert run_sql(target_server, types, database) == run_sql(source, types, "shop")
        names = "SELECT partition_name FROM information_schema.partitions WHERE table_schema = %s AND table_name = 'parted' ORDER BY 1"
        assert run_sql(target_server, names, database) == [("p0",), ("p1",)]
        again.undo()
        assert run_sql(target_server, names, database) == [("p0",), ("p1",)], "nobody takes them back"


class UnseenCutover(CutoverRun):
    """A command on a target without named locks: no other command sees it."""

    @contextmanager
    def _shown(self) -> Iterator[None]:
        yield


def test_a_cutover_that_another_machine_undoes_changes_no_table_afterwards(
    parts: tuple[TaskConfig, ...], target_server: Server, database: str, run_sql: RunSql
) -> None:
    options = CutoverOptions(read_only=False)

    def undo(step: CutoverStep) -> None:
        if step.name is StepName.STOP:
            with closing(parts[0].target.server.connect()) as other:
                UnseenCutover(parts, other, options, run_once=lambda: None, verify=None).undo()

    with closing(parts[0].target.server.connect()) as target:
        begin(parts[0], target)
        switch = UnseenCutover(parts, target, options, run_once=lambda: None, verify=None, show=undo)
        with pytest.raises(Fenced, match="cutover-taken"):
            switch.carry_out()
    made = (
        "SELECT index_name FROM information_schema.statistics WHERE table_schema = %s "
        "AND index_type IN ('FULLTEXT', 'SPATIAL')"
    )
    assert run_sql(target_server, made, database) == []


def killed_at(name: str) -> Callable[..., str]:
    make = remade_tables.make

    def stopped(session: Any, wanted: Any) -> str:
        if str(wanted) == name:
            raise KeyboardInterrupt
        return make(session, wanted)

    return stopped


def test_the_command_says_in_advance_that_there_is_no_way_back(
    parts: tuple[TaskConfig, ...], target_server: Server, database: str, run_sql: RunSql
) -> None:
    for sql in (
        "CREATE USER narrow@'%' IDENTIFIED BY 'x'",
        f"GRANT ALL ON `{database}`.* TO narrow@'%'",
        "GRANT ALL ON pidts_meta.* TO narrow@'%'",
    ):
        run_sql(target_server, sql)
    try:
        with closing(parts[0].target.server.connect()) as target:
            begin(parts[0], target)
            assert switch_step(parts, target).details == ()
        spec = replace(parts[0].target, user="narrow", password="x")
        narrow = (replace(parts[0], target=spec),)
        with closing(spec.server.connect()) as target:
            (said,) = switch_step(narrow, target).details
            assert said.startswith("there will be no way back by --reverse: ")
            assert f"pidts grants {parts[0].path} --cutover" in said
            is_mariadb = target_server.kind == "mariadb"
            run_sql(
                target_server, f"GRANT {'BINLOG MONITOR' if is_mariadb else 'REPLICATION CLIENT'} ON *.* TO narrow@'%'"
            )
            assert switch_step(narrow, target).details == ()
    finally:
        run_sql(target_server, "DROP USER narrow@'%'")


def switch_step(parts: tuple[TaskConfig, ...], target: TargetSession) -> CutoverStep:
    switch = CutoverRun(
        parts, target, CutoverOptions(read_only=False), run_once=lambda: pytest.fail("applied"), verify=None
    )
    return switch.look().steps[-1]


def test_the_last_step_says_that_the_target_is_read_only(
    parts: tuple[TaskConfig, ...], target_server: Server, run_sql: RunSql
) -> None:
    with closing(parts[0].target.server.connect()) as target:
        begin(parts[0], target)
        assert switch_step(parts, target).about.startswith("when all steps are done, point the application to mysql ")
        run_sql(target_server, "SET GLOBAL read_only = ON")
        try:
            statement = makes_writable(target)
            before, after = switch_step(parts, target).about, switched_step(parts[0], "", statement).about
        finally:
            run_sql(target_server, "SET GLOBAL read_only = OFF")
        assert makes_writable(target) == ""
    first = (
        "run SET GLOBAL read_only = OFF on the target, since it is read-only, and then point the application to mysql "
    )
    assert before.startswith(f"when all steps are done, {first}")
    assert after.startswith(f"all steps are done: {first}")


def test_the_list_says_in_advance_that_no_task_can_carry_rows_back(
    parts: tuple[TaskConfig, ...], tmp_path: Path
) -> None:
    text = parts[0].path.read_text()
    instance = next(line for line in text.splitlines() if line.startswith("mysql-instances: "))[
        len("mysql-instances: [") :
    ]
    path = tmp_path / "two.yaml"
    path.write_text(text.replace(instance, f"{instance[:-1]}, {instance.replace('source-id: a', 'source-id: b')}"))
    with closing(parts[0].target.server.connect()) as target:
        begin(parts[0], target)
        assert switch_step(load_parts(path), target).details == (
            "there will be no way back by --reverse: the task has several sources",
        )
