"""A task that would carry changes back to the source of another task is refused before it writes anything."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pidts.cli.app import run_command
from pidts.model import (
    Checkpoint,
    Column,
    ColumnType,
    Cutover,
    CutoverStage,
    DdlJournal,
    Halted,
    Key,
    Kind,
    LogFile,
    Lsn,
    Position,
    PrecheckFailed,
    SourceTablesKey,
    Table,
    TableName,
)
from pidts.sandbox import Server
from pidts.source import connect, query
from pidts.source.finding import demand
from pidts.source.structures import read_structures
from pidts.task.checks.circles.ended_tasks import record_returned
from pidts.task.checks.circles.passed_check import is_checked, note_checked
from pidts.task.checks.circles.running_tasks import circle_findings, demand_no_circle, going_round
from pidts.task.checks.source import check_one_source, passed_if_ignored
from pidts.task.checks.task_records import ORIGINS, SOURCE_SERVER, record_source
from pidts.task.checks.zone_start import demand_same_zone
from pidts.task.config.task_file import TaskConfig, load_task
from pidts.task.tables.copy_start import Patterns
from pidts.task.tables.rule_changes import record_rules

RunSql = Callable[..., list[tuple[Any, ...]]]
ITEM = "circular_replication"
HAS_RECORDS = "SELECT 1 FROM information_schema.tables WHERE table_schema = 'pidts_meta' AND table_name = 'checkpoint'"
A, B, C = (TableName("d", name) for name in "abc")


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        ({A: A}, [A]),
        ({A: B, B: A}, [A, B]),
        ({A: B, B: C}, []),
        ({A: B, B: B}, [B]),
        ({}, []),
    ],
)
def test_tables_that_are_reached_again_form_a_circle(steps: dict[TableName, TableName], found: list[TableName]) -> None:
    assert going_round([A, B, C], steps.get) == found


Make = Callable[..., TaskConfig]


@pytest.fixture
def make(tmp_path: Path, database: str) -> Make:
    def task(
        name: str, source: Server, target: Server, tables: str = "", route: str = "", more: str = "", mode: str = "all"
    ) -> TaskConfig:
        path = tmp_path / f"{name}.yaml"
        chosen = f"do-tables: [{{db-name: {database}, tbl-name: '{tables}'}}]" if tables else f"do-dbs: [{database}]"
        rules = f"routes: {{r: {{schema-pattern: {database}, target-schema: {route}}}}}" if route else ""
        path.write_text(f"""\
name: {name}
task-mode: {mode}
target-database: {{host: {target.host}, port: {target.port}, user: {target.user}, password: "{target.password}"}}
mysql-instances:
  - source-id: s
    from: {{host: {source.host}, port: {source.port}, user: {source.user}, password: "{source.password}"}}
    block-allow-list: b
    {"route-rules: [r]" if route else ""}
block-allow-list: {{b: {{{chosen}}}}}
{rules}
{more}
""")
        return load_task(path)

    return task


def begin(config: TaskConfig, *names: str, database: str) -> None:
    """Makes the records of a first start on the target."""
    place = Lsn.at(Position("bin.000001", 4))
    columns = (Column("id", ColumnType(Kind.INT), nullable=False),)
    tables = [
        Table(TableName(database, name), columns, keys=(Key("PRIMARY", ("id",), unique=True, primary=True),))
        for name in names
    ]
    with closing(config.target.server.connect()) as target, closing(connect(config.source.server)) as source:
        target.meta.prepare()
        target.meta.checkpoints.claim(
            config.name, "s", 1, Checkpoint(task=config.name, source="s", worker=0, lsn=place, position="bin.000001:4")
        )
        target.meta.structures.save(config.name, SourceTablesKey("s"), place, {table.name: table for table in tables})
        record_rules(config, target)
        record_source(config, source, target)


def failed_findings(config: TaskConfig, resync: Patterns = None) -> list[tuple[str, str]]:
    """Returns the findings of this check alone: all other checks take ten times as long."""
    with closing(connect(config.source.server)) as source, closing(config.target.server.connect()) as target:
        found = circle_findings(config, source, target, read_structures(source, config.allow), resync)
    ignored = config.ignored_checks
    return [(one.message, one.fix) for one in found if not passed_if_ignored(one, ignored).ok]


@pytest.mark.parametrize("at", ["mariadb", "mysql97", "mysql56"])
def test_a_table_goes_in_one_direction_only(
    make: Make, mariadb: Server, mysql97: Server, mysql56: Server, at: str, database: str, run_sql: RunSql
) -> None:
    servers = {server.kind: server for server in (mariadb, mysql97, mysql56)}
    far, near = servers[at], servers["mysql97" if at == "mariadb" else "mariadb"]
    for server in (near, far):
        for name in ("t", "u"):
            run_sql(server, f"CREATE TABLE {name} (id INT PRIMARY KEY)", database=database)
    there = make(f"there_{database}", near, far, tables="t")
    back = make(f"back_{database}", far, near)
    begin(there, "t", database=database)
    try:
        ((message, fix),) = failed_findings(back)
        assert f"task {there.name} " in message
        assert f": changes of {database}.t go in a circle" in message
        with pytest.raises(PrecheckFailed, match=ITEM):
            demand(check_one_source(back))
        assert failed_findings(make(back.name, far, near, more=f"ignore-checking-items: [{ITEM}]")) == []
        assert failed_findings(make(back.name, far, near, tables="u")) == [], "another table may go the other way"
        assert failed_findings(make(back.name, far, near, route="archive")) == [], (
            "a table of another name is not written back"
        )
        assert failed_findings(there) == [], "its own records speak against nobody"
        begin(back, "t", "u", database=database)
        ((message, _),) = failed_findings(there)
        assert f"task {back.name} " in message, "a task that runs already learns of the other one"
        statement = fix.split("Run there: ")[1]
        run_sql(far, statement)
        assert failed_findings(back, resync=()) == []
        assert "has no checkpoint any more" in failed_findings(back)[0][0], "it has begun, and not copied since then"
    finally:
        for config, server in ((there, far), (back, near)):
            run_sql(server, f"DELETE FROM pidts_meta.checkpoint WHERE task = '{config.name}'")


class Ways:
    """Two tasks whose records are there: one task, and its way back that was cut over."""

    def __init__(self, there: TaskConfig, back: TaskConfig) -> None:
        self.there, self.back = there, back
        self._record: Cutover | None = None

    def switch(self, position: str, done_at: float = 1.0) -> None:
        """Records that the way back was cut over at this place of the log."""
        record = Cutover(stage=CutoverStage.DONE, position=position, done_at=done_at)
        with closing(self.back.target.server.connect()) as target:
            assert target.meta.cutovers.replace(self.back.name, self._record, record)
        self._record = record

    def stand(self, position: str, change_no: int = 0, log_file: LogFile | None = None) -> tuple[Checkpoint, ...]:
        """Moves the task's checkpoint to this place, and returns it."""
        with closing(self.there.target.server.connect()) as target:
            (row,) = target.meta.checkpoints.read(self.there.name, "s")
            lsn = Lsn.at(Position.parse(position), change_no)
            row = replace(row, lsn=lsn, position=position, log_file=log_file)
            target.begin()
            target.meta.checkpoints.save(row)
            target.commit()
        return (row,)

    def record(self, checkpoints: tuple[Checkpoint, ...], *, copied: bool) -> None:
        """Does what a start does after it has claimed the task."""
        with (
            closing(connect(self.there.source.server)) as source,
            closing(self.there.target.server.connect()) as target,
        ):
            record_returned(self.there, source, target, checkpoints, lambda _: copied)


@pytest.fixture
def ways(make: Make, mariadb: Server, mysql97: Server, database: str, run_sql: RunSql) -> Iterator[Ways]:
    for server in (mariadb, mysql97):
        run_sql(server, "CREATE TABLE t (id INT)", database=database)
    there = make(f"there_{database}", mariadb, mysql97, tables="t")
    back = make(f"back_{database}", mysql97, mariadb, tables="t")
    for config in (there, back):
        begin(config, "t", database=database)
    yield Ways(there, back)
    for config, server in ((there, mysql97), (back, mariadb)):
        run_sql(server, f"DELETE FROM pidts_meta.checkpoint WHERE task = '{config.name}'")
        run_sql(server, f"DELETE FROM pidts_meta.note WHERE task = '{config.name}'")
    run_sql(mariadb, f"DELETE FROM pidts_meta.cutover WHERE task = '{back.name}'")


def test_a_task_does_not_carry_the_changes_of_its_way_back_a_second_time(
    ways: Ways, make: Make, mariadb: Server, mysql97: Server, database: str
) -> None:
    """The cutover of a task was undone, after its way back had been cut over, too."""
    ways.switch("bin.000001:500")
    ((message, fix),) = failed_findings(ways.there)
    assert f"task {ways.back.name} has carried changes from this task's target" in message
    assert "up to the switch at bin.000001:500" in message
    assert "this task's checkpoint (bin.000001:4) is after that" in message
    assert f"with the file of task {ways.back.name}" in fix
    assert "--resync" in fix
    assert failed_findings(ways.there, resync=()) == [], "the target gets all rows of the source"
    assert failed_findings(ways.there, resync=(f"{database}.t",)) == []
    assert len(failed_findings(ways.there, resync=(f"{database}.u",))) == 1
    ways.switch("bin.000001:4")
    assert failed_findings(ways.there) == [], "the task that begins at the switch does not read these changes"
    onwards = make(f"onwards_{database}", mariadb, mysql97, tables="t")
    assert f"task {ways.there.name} " not in str(failed_findings(onwards))


@pytest.mark.parametrize(
    ("switch", "checkpoint", "change_no"),
    [("bin.000001:500", "bin.000002:4", 1), ("bin.000001:500", "log.000002:4", 0), ("", "bin.000002:4", 0)],
)
def test_a_task_is_refused_if_its_place_and_that_of_the_switch_cannot_be_compared(
    ways: Ways, switch: str, checkpoint: str, change_no: int
) -> None:
    ways.switch(switch)
    ways.stand(checkpoint, change_no)
    ((_, fix),) = failed_findings(ways.there)
    assert "--resync" in fix


def test_a_way_back_without_checkpoints_is_still_found(ways: Ways, mariadb: Server, run_sql: RunSql) -> None:
    ways.switch("bin.000001:500")
    run_sql(mariadb, f"DELETE FROM pidts_meta.checkpoint WHERE task = '{ways.back.name}'")
    assert len(failed_findings(ways.there)) == 1


@pytest.mark.parametrize(("file", "passes"), [("bin.000001", True), ("bin.000002", False)])
def test_a_task_may_continue_in_a_log_file_that_is_newer_than_the_last_change_of_the_way_back(
    ways: Ways, file: str, *, passes: bool
) -> None:
    """The source's log was reset after the switch, so that its places are smaller now."""
    ways.switch("bin.000001:500")
    now = int(time.time())
    ways.stand("bin.000001:400", log_file=LogFile(file, now + 100, 1, "server"))
    assert (failed_findings(ways.there) == []) is passes
    ways.stand("bin.000001:400", log_file=LogFile(file, now - 100, 1, "server"))
    assert len(failed_findings(ways.there)) == 1, "the way back has saved its checkpoint after that"
    ways.switch("bin.000001:500", done_at=now + 200)
    ways.stand("bin.000001:400", log_file=LogFile(file, now + 100, 1, "server"))
    assert len(failed_findings(ways.there)) == 1


def test_a_task_that_has_copied_all_rows_after_a_way_back_may_continue(
    ways: Ways, mysql97: Server, database: str, run_sql: RunSql
) -> None:
    ways.switch("bin.000001:500")
    rows = ways.stand("bin.000001:4")
    ways.record(rows, copied=False)
    assert len(failed_findings(ways.there)) == 1
    ways.record(rows, copied=True)
    assert failed_findings(ways.there) == []
    ways.record(rows, copied=False)
    assert failed_findings(ways.there) == [], "the next start does not forget it"
    ways.switch("bin.000001:900", done_at=2.0)
    assert len(failed_findings(ways.there)) == 1, "the way back has run again"
    ways.record(rows, copied=True)
    run_sql(mysql97, f"DELETE FROM pidts_meta.checkpoint WHERE task = '{ways.there.name}'")
    begin(ways.there, "t", database=database)
    assert len(failed_findings(ways.there)) == 1, "a task that begins anew has not copied these rows"


def test_a_task_after_the_switch_may_continue_after_a_failover(ways: Ways) -> None:
    ways.switch("bin.000001:500")
    ways.record(ways.stand("bin.000001:500"), copied=False)
    ways.stand("other.000001:4", change_no=1)
    assert failed_findings(ways.there) == []


def test_a_task_that_has_begun_is_not_told_to_forget_its_way_back_without_a_new_copy(ways: Ways) -> None:
    """The cutover of the task was undone, and its way back was only stopped."""
    ((message, fix),) = failed_findings(ways.there)
    assert f"task {ways.back.name} (source-id s) carries changes" in message
    _, _, then = fix.partition(f"DELETE FROM `pidts_meta`.checkpoint WHERE task = '{ways.back.name}'. ")
    assert then.startswith("Then run this task with pidts run ")
    assert "--resync" in then


def test_a_task_whose_way_back_was_stopped_and_forgotten_has_to_copy_all_rows(
    ways: Ways, make: Make, mariadb: Server, mysql97: Server, database: str, run_sql: RunSql
) -> None:
    """The user has deleted the checkpoint of the way back, as the finding says, and forgets the second part of it."""
    delete = f"DELETE FROM pidts_meta.checkpoint WHERE task = '{ways.back.name}'"
    run_sql(mariadb, delete)
    ((message, fix),) = failed_findings(ways.there)
    assert f"task {ways.back.name} has carried changes from this task's target to this source" in message
    assert "has no checkpoint any more. Nothing shows that this task has copied all rows since then" in message
    assert "--resync" in fix
    assert failed_findings(ways.there, resync=()) == []
    assert failed_findings(make(f"new_{database}", mariadb, mysql97, tables="t")) == [], "its first start copies all"
    rows = ways.stand("bin.000009:4")
    ways.record(rows, copied=False)
    assert len(failed_findings(ways.there)) == 1, "no place in the log shows that the task is after the last change"
    ways.record(rows, copied=True)
    assert failed_findings(ways.there) == []
    begin(ways.back, "t", database=database)
    with closing(ways.back.target.server.connect()) as target:
        note_checked(ways.back, target, 7)
    assert len(failed_findings(ways.there)) == 1
    run_sql(mariadb, delete)
    assert len(failed_findings(ways.there)) == 1, "the way back has run again since the copy"


def test_a_way_back_over_a_third_server_is_found_after_its_end(ways: Ways) -> None:
    """The ended task has read another server, to which a third task has carried the changes of this task's target."""
    ways.switch("bin.000001:500")
    place = (ways.back.name, SourceTablesKey("s"))
    with closing(ways.back.target.server.connect()) as target:
        own = target.meta.notes.read(*place, SOURCE_SERVER)
        ends = [[end.schema, end.name] * 2 for end in target.meta.structures.load(*place)]
        target.begin()
        target.meta.notes.write(*place, SOURCE_SERVER, "a third server")
        target.meta.notes.write(*place, ORIGINS, json.dumps([{"server": own, "tasks": ["bc"], "tables": ends}]))
        target.commit()
    ways.stand("bin.000001:4")
    ((message, _),) = failed_findings(ways.there)
    assert f"task {ways.back.name} has carried changes from this task's target to this source" in message


def test_a_task_that_begins_at_a_given_place_passes_after_a_forgotten_way_back(
    ways: Ways, mariadb: Server, run_sql: RunSql
) -> None:
    """The advice at a first start is to delete the checkpoint if the place is after the last change."""
    run_sql(mariadb, f"DELETE FROM pidts_meta.checkpoint WHERE task = '{ways.back.name}'")
    with (
        closing(connect(ways.there.source.server)) as source,
        closing(ways.there.target.server.connect()) as target,
    ):
        record_returned(ways.there, source, target, ways.stand("bin.000009:4"), lambda _: False, is_first=True)
    assert failed_findings(ways.there) == []


def test_a_task_that_does_not_see_the_cutover_of_its_way_back_once_does_not_forget_it(
    ways: Ways, mariadb: Server, run_sql: RunSql
) -> None:
    """The account may not read the record at one start, for example after a REVOKE."""
    ways.switch("bin.000001:500")
    rows = ways.stand("bin.000001:4")
    ways.record(rows, copied=True)
    run_sql(mariadb, "RENAME TABLE pidts_meta.note TO pidts_meta.note_unseen")
    ways.record(rows, copied=False)
    run_sql(mariadb, "RENAME TABLE pidts_meta.note_unseen TO pidts_meta.note")
    assert failed_findings(ways.there) == []


def given(config: TaskConfig, position: str) -> TaskConfig:
    """Returns the task with a start in its file."""
    file, offset = position.split(":")
    start = f"    block-allow-list: b\n    meta: {{binlog-name: {file}, binlog-pos: {offset}}}"
    config.path.write_text(config.path.read_text().replace("    block-allow-list: b", start))
    return load_task(config.path)


@pytest.mark.parametrize(("start", "passes"), [("bin.000001:499", False), ("bin.000001:500", True)])
def test_a_start_before_the_switch_of_a_way_back_is_refused_by_the_check(
    ways: Ways, make: Make, mariadb: Server, mysql97: Server, database: str, start: str, *, passes: bool
) -> None:
    """A refusal after the first start's claim would leave a checkpoint, so that a corrected file had no effect."""
    ways.switch("bin.000001:500")
    config = given(make(f"later_{database}", mariadb, mysql97, tables="t", mode="incremental"), start)
    found = [one for one in check_one_source(config) if one.item == ITEM]
    assert [one.ok for one in found] == [True] * len(found) if passes else [False]
    assert passes or f"the start in this task's file ({start}) is after that" in found[0].message


def test_an_undo_of_a_cutover_says_that_its_way_back_has_run(
    ways: Ways, capsys: pytest.CaptureFixture[str], mariadb: Server, run_sql: RunSql
) -> None:
    def undo() -> str:
        with closing(ways.there.target.server.connect()) as target:
            assert target.meta.cutovers.replace(ways.there.name, None, Cutover(stage=CutoverStage.DONE))
        assert run_command(["cutover", str(ways.there.path), "--undo", "--yes"]) == 0
        return capsys.readouterr().out

    said = undo()
    assert "undone: the source is as it was before the cutover, but the task cannot run as it is" in said
    assert f"task {ways.back.name} (source-id s) carries changes from this task's target to this source" in said
    assert "--resync" in said
    run_sql(mariadb, f"DELETE FROM pidts_meta.note WHERE task = '{ways.back.name}'")
    run_sql(mariadb, f"DELETE FROM pidts_meta.checkpoint WHERE task = '{ways.back.name}'")
    assert undo() == (
        f"{ways.there.name}: undone: the source is as it was before the cutover, and the task may run again\n"
    )


def test_a_task_that_was_refused_needs_its_source_until_a_start_has_passed(
    ways: Ways, mariadb: Server, run_sql: RunSql, database: str
) -> None:
    with (
        closing(connect(ways.there.source.server)) as source,
        closing(ways.there.target.server.connect()) as target,
    ):
        names = [TableName(database, "t")]
        rows = target.meta.checkpoints.read(ways.there.name, "s")
        with pytest.raises(PrecheckFailed, match="in a circle"):
            demand_no_circle(ways.there, source, target, names, rows[0].epoch)
        assert not is_checked(ways.there, target, rows)
        demand_no_circle(replace(ways.there, ignored_checks=(ITEM,)), source, target, names, rows[0].epoch)
        assert not is_checked(ways.there, target, rows), "an ignored check has not passed"
        run_sql(mariadb, f"DELETE FROM pidts_meta.note WHERE task = '{ways.back.name}'")
        run_sql(mariadb, f"DELETE FROM pidts_meta.checkpoint WHERE task = '{ways.back.name}'")
        demand_no_circle(ways.there, source, target, names, rows[0].epoch)
        assert is_checked(ways.there, target, rows)
        assert not is_checked(ways.there, target, [replace(rows[0], epoch=rows[0].epoch + 1)]), "claimed since then"


def test_a_task_with_a_start_of_its_own_begins_after_the_changes_of_a_forgotten_task(
    ways: Ways, make: Make, mariadb: Server, mysql97: Server, database: str
) -> None:
    later = make(f"later_{database}", mariadb, mysql97, tables="t", mode="incremental")
    assert "the start in this task's file" not in failed_findings(later)[0][1]
    later = given(later, "bin.000001:4")
    assert "the start in this task's file (meta) is after the last change" in failed_findings(later)[0][1]


def zone(name: str) -> str:
    return f"pidts: {{zone: {name}}}\n"


@pytest.mark.parametrize(
    ("back", "mode", "meta", "passes"),
    [
        (zone("2"), "incremental", "", True),
        (zone("2"), "all", "", False),
        (zone("2"), "incremental", "meta-schema: other_meta", False),
        (zone("1"), "incremental", "", False),
        ("", "incremental", "", False),
    ],
)
def test_two_directions_pass_where_each_names_its_own_zone(
    make: Make,
    mariadb: Server,
    mysql97: Server,
    mysql56: Server,
    database: str,
    run_sql: RunSql,
    back: str,
    mode: str,
    meta: str,
    passes: bool,
) -> None:
    for server in (mariadb, mysql97):
        run_sql(server, "CREATE TABLE t (id INT PRIMARY KEY)", database=database)
    there = make(f"there_{database}", mariadb, mysql97, more=zone("1"))
    begin(there, "t", database=database)
    try:
        second = make(f"back_{database}", mysql97, mariadb, more=f"{back}{meta}", mode=mode)
        assert bool(failed_findings(second)) is not passes
        assert failed_findings(there) == []
        if passes:
            begin(second, "t", database=database)
            assert failed_findings(there) == failed_findings(second) == []
        onwards = make(f"onwards_{database}", mysql97, mysql56, more=f"{zone('2')}{meta}")
        assert bool(failed_findings(onwards)) is bool(meta)
    finally:
        for server in (mariadb, mysql97):
            if run_sql(server, HAS_RECORDS):
                run_sql(server, f"DELETE FROM pidts_meta.checkpoint WHERE task LIKE '%{database}'")


def test_a_task_that_has_begun_keeps_its_zone(
    make: Make, mariadb: Server, mysql97: Server, database: str, run_sql: RunSql
) -> None:
    run_sql(mariadb, "CREATE TABLE t (id INT PRIMARY KEY)", database=database)
    files = [make(f"t_{database}", mariadb, mysql97, more=more) for more in (zone("a"), zone("c"), "")]
    new, old = (
        [Checkpoint(task=files[0].name, source="s", worker=0, lsn=Lsn(0, 1, 4), batch=batch)] for batch in (0, 1)
    )
    for before in (files[2], *files[:2]):
        begin(before, "t", database=database)
        with closing(before.target.server.connect()) as target:
            for after in files:
                demand_same_zone(after, target, new)
                if after is before:
                    demand_same_zone(after, target, old)
                else:
                    with pytest.raises(Halted, match="zone-changed"):
                        demand_same_zone(after, target, old)
    with closing(files[0].target.server.connect()) as target:
        text = "ALTER TABLE t ADD c INT"
        target.meta.journal.write(
            DdlJournal(task=files[0].name, source="s", lsn=Lsn(0, 1, 4), statement=text, rendered=(text,), step=0)
        )
        with pytest.raises(Halted, match="zone-changed"):
            demand_same_zone(files[0], target, new)
    for table in ("checkpoint", "ddl_journal"):
        run_sql(mysql97, f"DELETE FROM pidts_meta.{table} WHERE task = 't_{database}'")


def test_a_chain_of_servers_is_no_circle(
    make: Make, mariadb: Server, mysql97: Server, mysql56: Server, database: str, run_sql: RunSql
) -> None:
    run_sql(mysql97, "CREATE TABLE t (id INT PRIMARY KEY)", database=database)
    first = make(f"first_{database}", mariadb, mysql97)
    begin(first, "t", database=database)
    try:
        assert failed_findings(make(f"second_{database}", mysql97, mysql56)) == []
    finally:
        run_sql(mysql97, f"DELETE FROM pidts_meta.checkpoint WHERE task = '{first.name}'")


@pytest.fixture
def ring(
    make: Make, mariadb: Server, mysql97: Server, mysql56: Server, database: str, run_sql: RunSql
) -> Iterator[list[TaskConfig]]:
    """Makes tasks from MariaDB to MySQL 9.7, from there to MySQL 5.6, and back to MariaDB; none has begun."""
    servers = (mariadb, mysql97, mysql56)
    for server in servers:
        for name in ("t", "u"):
            run_sql(server, f"CREATE TABLE {name} (id INT PRIMARY KEY)", database=database)
    targets = (*servers[1:], mariadb)
    tasks = [
        make(f"{name}_{database}", source, target)
        for name, source, target in zip(("ab", "bc", "ca"), servers, targets, strict=True)
    ]
    yield tasks
    for task, target in zip(tasks, targets, strict=True):
        if run_sql(target, HAS_RECORDS):
            run_sql(target, f"DELETE FROM pidts_meta.checkpoint WHERE task = '{task.name}'")


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0), (2, 0, 1)])
def test_the_task_that_closes_a_ring_of_three_is_refused(
    ring: list[TaskConfig], order: tuple[int, int, int], database: str
) -> None:
    first, second, last = (ring[place] for place in order)
    begin(first, "t", database=database)
    assert failed_findings(second) == []
    begin(second, "t", database=database)
    ((message, fix),) = failed_findings(last)
    assert f"task {second.name} " in message
    assert f"(they come there by task {first.name})" in message
    assert f": changes of {database}.t go in a circle" in message
    with pytest.raises(PrecheckFailed, match=ITEM):
        demand(check_one_source(last))
    statement = fix.split("Run there: ")[1]
    with closing(connect(last.source.server)) as source:
        query(source, statement)
    assert failed_findings(last) == []


def test_a_ring_of_three_is_noticed_when_a_task_starts_again(ring: list[TaskConfig], database: str) -> None:
    ab, bc, ca = ring
    begin(bc, "t", database=database)
    begin(ab, "t", database=database)
    assert failed_findings(ca) == [], "the second task has not seen the first one"
    begin(ca, "t", database=database)
    ((message, _),) = failed_findings(ab)
    assert f"task {ca.name} " in message
    assert f"(they come there by task {bc.name})" in message
    begin(bc, "t", database=database)
    assert len(failed_findings(ca)) == 1


def way(source: str, target: str, forwards: str = "") -> str:
    return f"pidts: {{zone: {source}, target-zone: {target}, forward: [{', '.join(forwards)}]}}\n"


def passing(config: TaskConfig) -> list[str]:
    return [one.message for one in check_one_source(config) if one.item == ITEM and one.ok]


@pytest.fixture
def zoned(
    make: Make, mariadb: Server, mysql97: Server, mysql56: Server, database: str, run_sql: RunSql
) -> Iterator[Callable[..., TaskConfig]]:
    """Makes tasks between zones a, b and c, which have table t."""
    servers = dict(zip("abc", (mariadb, mysql97, mysql56), strict=True))
    for server in servers.values():
        for name in ("t", "u"):
            run_sql(server, f"CREATE TABLE {name} (id INT PRIMARY KEY)", database=database)

    def task(
        source: str, target: str, forwards: str = "", *, mode: str = "incremental", tables: str = ""
    ) -> TaskConfig:
        name, more = f"{source}{target}_{database}", way(source, target, forwards)
        return make(name, servers[source], servers[target], mode=mode, tables=tables, more=more)

    yield task
    for server in servers.values():
        if run_sql(server, HAS_RECORDS):
            run_sql(server, f"DELETE FROM pidts_meta.checkpoint WHERE task LIKE '%{database}'")


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_a_ring_in_which_each_zone_carries_on_what_is_not_of_the_next_one_passes(
    zoned: Callable[..., TaskConfig], order: tuple[int, ...], database: str
) -> None:
    ring = [zoned("a", "b", "c"), zoned("b", "c", "a"), zoned("c", "a", "b")]
    for place in order:
        assert failed_findings(ring[place]) == []
        begin(ring[place], "t", database=database)
    assert [failed_findings(task) for task in ring] == [[], [], []]
    assert [passing(task) for task in ring] == [[former_values(zone)] for zone in "cab"]


def test_a_change_that_would_arrive_twice_or_be_called_another_zone_s_is_refused(
    zoned: Callable[..., TaskConfig], database: str
) -> None:
    for pair in ("ab", "bc"):
        begin(zoned(*pair), "t", database=database)
    begin(zoned("a", "c"), "t", database=database)
    ((message, fix),) = failed_findings(zoned("b", "c", "a"))
    assert message == f"task ac_{database} also carries changes of zone a to this target: they would arrive twice"
    assert f"DELETE FROM `pidts_meta`.checkpoint WHERE task = 'ac_{database}'" in fix
    assert failed_findings(zoned("b", "c", "a", tables="u")) == [], "the other task has no such table"


def test_tasks_with_different_rules_for_conflicts_are_reported(
    make: Make,
    zoned: Callable[..., TaskConfig],
    mariadb: Server,
    mysql97: Server,
    database: str,
    run_sql: RunSql,
) -> None:
    """The first task whose rule is changed has to start before the others, so it may start."""
    for server in (mariadb, mysql97):
        run_sql(server, "ALTER TABLE t ADD COLUMN v BIGINT", database=database)
    more = way("a", "b").replace("}", ", conflict: version, version-column: v}")
    first = make(f"ab_{database}", mariadb, mysql97, mode="incremental", more=more)
    begin(first, "t", database=database)
    second = zoned("b", "a")
    (message,) = passing(second)
    assert "rows are locked in this task, and versions decide (column v) in task ab_" in message
    assert failed_findings(second) == []
    more = way("b", "a").replace("}", ", conflict: version, version-column: v}")
    assert passing(make(f"ba_{database}", mysql97, mariadb, mode="incremental", more=more)) == []


def test_a_task_starts_again_where_the_target_s_zone_has_made_a_table(
    make: Make, zoned: Callable[..., TaskConfig], mariadb: Server, mysql97: Server, database: str, run_sql: RunSql
) -> None:
    """Zone b creates a table, task ba carries the table and its rows to a, and task ab starts again."""
    run_sql(mysql97, "INSERT INTO u VALUES (1)", database=database)
    task, alone = zoned("a", "b", mode="all"), make(f"alone_{database}", mariadb, mysql97)
    for config, ok in ((task, True), (alone, False)):
        begin(config, "t", database=database)
        found = [one for one in check_one_source(config) if one.item == "target_tables"]
        assert [one.ok for one in found] == [ok]
        assert "it already has rows on the target" in found[0].message
        run_sql(mysql97, f"DELETE FROM pidts_meta.checkpoint WHERE task = '{config.name}'")


def test_names_of_one_zone_that_differ_are_refused(
    zoned: Callable[..., TaskConfig], make: Make, mariadb: Server, mysql97: Server, mysql56: Server, database: str
) -> None:
    begin(zoned("a", "b"), "t", database=database)
    onwards = make(f"x_{database}", mysql97, mysql56, more=way("x", "c"), mode="incremental")
    assert [message for message, _ in failed_findings(onwards)] == [
        f"task ab_{database} says that this source is zone b, not x"
    ]
    back = make(f"y_{database}", mysql97, mariadb, more=way("b", "y"), mode="incremental")
    assert [message for message, _ in failed_findings(back)] == [
        f"task ab_{database} says that this target is zone a, not y"
    ]
    beside = make(f"z_{database}", mysql56, mysql97, more=way("c", "z"), mode="incremental")
    assert [message for message, _ in failed_findings(beside)] == [
        f"task ab_{database} says that this target is zone b, not z"
    ]


def former_values(zone: str) -> str:
    return (
        f"this task forwards changes of zone {zone}. A row that gets former values again while several zones write it can "
        "differ between zones without a lock. To prevent this, let each write change a column, such as a time"
    )


def test_changes_that_do_not_arrive_yet_are_reported(zoned: Callable[..., TaskConfig], database: str) -> None:
    forwarding = zoned("b", "c", "a")
    assert passing(forwarding) == [
        "this task is to forward changes of zone a, but no task carries them to the source yet",
        former_values("a"),
    ]
    begin(zoned("a", "b"), "t", database=database)
    assert passing(forwarding) == [former_values("a")]
    assert passing(zoned("b", "c")) == [
        "changes of zone a reach the source, and no task carries them to the target yet"
    ]
    begin(zoned("a", "c"), "t", database=database)
    (message,) = passing(zoned("b", "c"))
    assert "A change that zone b makes to one of these rows may arrive at the target before the row itself" in message


def test_two_paths_are_allowed_if_versions_decide(
    make: Make, zoned: Callable[..., TaskConfig], mysql97: Server, mysql56: Server, database: str, run_sql: RunSql
) -> None:
    for server in (mysql97, mysql56):
        run_sql(server, "ALTER TABLE t ADD COLUMN v BIGINT", database=database)
    for pair in ("ab", "ac"):
        begin(zoned(*pair), "t", database=database)
    more = way("b", "c").replace("}", ", conflict: version, version-column: v}")
    versions = make(f"bc_{database}", mysql97, mysql56, mode="incremental", more=more)
    assert not [one for one in passing(versions) if "before the row itself" in one]


def test_tables_that_end_elsewhere_make_no_ring(
    make: Make, ring: list[TaskConfig], mysql97: Server, mysql56: Server, database: str
) -> None:
    ab, bc, ca = ring
    begin(ab, "t", database=database)
    begin(make(bc.name, mysql97, mysql56, route=f"{database}_archive"), "t", database=database)
    assert failed_findings(ca) == []


def test_a_task_without_a_record_of_its_origins_is_no_hindrance(
    ring: list[TaskConfig], mysql56: Server, database: str, run_sql: RunSql
) -> None:
    """The task's records are of an earlier version, which did not record origins."""
    ab, bc, ca = ring
    begin(ab, "t", database=database)
    begin(bc, "t", database=database)
    run_sql(mysql56, f"DELETE FROM pidts_meta.note WHERE task = '{bc.name}' AND table_name = '{ORIGINS.name}'")
    assert failed_findings(ca) == []


def test_tables_that_a_task_no_longer_carries_are_removed_from_the_record(
    ring: list[TaskConfig], mysql97: Server, database: str, run_sql: RunSql
) -> None:
    ab, bc, ca = ring
    begin(ab, "t", database=database)
    begin(bc, "t", database=database)
    assert len(failed_findings(ca)) == 1
    run_sql(mysql97, f"DELETE FROM pidts_meta.checkpoint WHERE task = '{ab.name}'")
    begin(bc, "t", database=database)
    assert failed_findings(ca) == []


def test_a_task_does_not_write_into_what_it_reads(make: Make, mariadb: Server, database: str, run_sql: RunSql) -> None:
    run_sql(mariadb, "CREATE TABLE t (id INT PRIMARY KEY)", database=database)
    ((message, _),) = failed_findings(make(f"itself_{database}", mariadb, mariadb))
    assert message == f"the target is the source itself: changes of {database}.t go in a circle"
    assert failed_findings(make(f"itself_{database}", mariadb, mariadb, route="archive")) == []
