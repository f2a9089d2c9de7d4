"""Merged tables of several sources begin at once or one after the other, and no start removes rows of other shards.
Starts that would mix up rows are refused.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from tests.forked_programs import LoadedPrograms

from pidts.cli.findings import show_findings
from pidts.model import (
    Halt,
    Halted,
    MergedTablesKey,
    OnDivergence,
    PrecheckFailed,
    RemainingRowsKey,
    SourceTablesKey,
    TableName,
)
from pidts.plan import CopyMode, PlanState
from pidts.rules import AllowList, Extract
from pidts.sandbox import Server
from pidts.source import connect, read_structures
from pidts.task.checks.added_source import ShardAhead
from pidts.task.checks.all_sources import check_all_sources, require_all_sources_fit
from pidts.task.config.task_file import ShardMode, TaskConfig, load_parts
from pidts.task.run.replicator_process import ReplicatorProcess
from pidts.task.run.start import StartState, begin_task
from pidts.task.run.table_set import StartRequest

RunSql = Callable[..., list[tuple[Any, ...]]]
CART = "(id INT PRIMARY KEY AUTO_INCREMENT, a INT, KEY (a))"


@dataclass
class Task:
    """A task with two sources, a and b: two names of one server. Each source has the schemas that begin with its name."""

    parts: tuple[TaskConfig, ...]
    source: Server
    target: Server
    schema: str
    run_sql: RunSql
    programs: LoadedPrograms
    replicators: dict[str, ReplicatorProcess] = field(default_factory=dict)

    def sql(self, *statements: str) -> None:
        for statement in statements:
            self.run_sql(self.source, statement.replace("$", self.schema))

    def there(self, statement: str) -> list[tuple[Any, ...]]:
        return self.run_sql(self.target, statement.replace("$", self.schema), database=self.schema)

    def start(self, source_id: str, resync: Sequence[str] | None = None) -> StartState:
        (config,) = (part for part in self.parts if part.source.source_id == source_id)
        beside = [part for part in self.parts if part is not config]
        if source_id not in self.replicators:
            self.replicators[source_id] = ReplicatorProcess(config, forker=self.programs.replicators)
        with closing(connect(config.source.server)) as source, closing(config.target.server.connect()) as target:
            wanted = StartRequest(None if resync is None else tuple(resync))
            return begin_task(config, source, target, self.replicators[source_id], threading.Event(), wanted, beside)

    def ways(self, source_id: str) -> dict[str, CopyMode]:
        with closing(self.parts[0].target.server.connect()) as target:
            (stored,) = target.meta.checkpoints.read(self.parts[0].name, source_id)
        copy = PlanState.from_checkpoint(stored.lsn, stored.copy).copy
        return {str(name).removeprefix(self.schema): state.mode for name, state in copy.items()}

    def failed(self, item: str) -> list[str]:
        return [finding.message for finding in check_all_sources(self.parts) if finding.item == item and not finding.ok]


@pytest.fixture
def task(
    tmp_path: Path, mariadb: Server, postgres: Server, database: str, run_sql: RunSql, programs: LoadedPrograms
) -> Iterator[Task]:
    path, schemas = tmp_path / "task.yaml", [f"{database}_{name}" for name in ("a1", "a2", "b1")]
    server = f'{{host: {mariadb.host}, port: {mariadb.port}, user: {mariadb.user}, password: "{mariadb.password}"}}'
    instances = "".join(
        f"""\
  - source-id: {name}
    from: {server}
    block-allow-list: {name}
    route-rules: [one]
"""
        for name in "ab"
    )
    path.write_text(f"""\
name: {database}
task-mode: all
is-sharding: true
target-database: {{type: postgresql, host: {postgres.host}, port: {postgres.port}, user: {postgres.user},
  password: "{postgres.password}", database: {database}}}
mysql-instances:
{instances}
block-allow-list:
  a: {{do-dbs: ["{database}_a*"]}}
  b: {{do-dbs: ["{database}_b*"]}}
routes:
  one: {{schema-pattern: "{database}_*", table-pattern: "cart_*", target-schema: "{database}", target-table: cart,
    extract-table: {{table-regexp: "cart_(.*)", target-column: of_table}},
    extract-schema: {{schema-regexp: "_([ab].*)", target-column: of_schema}}}}
pidts: {{relay: relay}}
""")
    made = Task(load_parts(path), mariadb, postgres, database, run_sql, programs)
    for schema in schemas:
        made.sql(f"CREATE DATABASE {schema}", f"CREATE TABLE {schema}.cart_1 {CART}")
        made.sql(f"INSERT INTO {schema}.cart_1 VALUES (1, 1), (2, 2)")
    yield made
    for replicator in made.replicators.values():
        replicator.stop()
    for schema in schemas:
        made.sql(f"DROP DATABASE {schema}")


def key(task: Task) -> list[str]:
    (text,) = (row[0] for row in task.there("SELECT indexdef FROM pg_indexes WHERE indexname = 'cart_pkey'"))
    return text[text.index("(") + 1 : text.index(")")].split(", ")


def test_sources_that_begin_at_once_make_one_table_whose_key_has_the_extracted_columns(task: Task) -> None:
    with ThreadPoolExecutor() as pool:
        one, two = pool.map(task.start, "ab")
    assert key(task) == ["id", "of_table", "of_schema"]
    assert one.rules.keyed == two.rules.keyed == {TableName(task.schema, "cart")}
    assert task.ways("a") == {"_a1.cart_1": CopyMode.ADD, "_a2.cart_1": CopyMode.ADD}
    assert task.ways("b") == {"_b1.cart_1": CopyMode.ADD}
    assert task.there("SELECT count(*) FROM pg_indexes WHERE tablename = 'cart'") == [(2,)], "all keys are made at once"


def test_rows_of_a_source_that_has_begun_are_no_strangers_to_the_next(task: Task) -> None:
    task.start("a")
    task.there("""INSERT INTO "$".cart VALUES (1, 1, '1', 'a1')""")
    task.start("b")
    assert task.ways("b") == {"_b1.cart_1": CopyMode.ADD}
    task.start("b", resync=[])
    assert task.ways("b") == {"_b1.cart_1": CopyMode.OWN}, "what a has there is not looked at"


def test_a_shard_that_is_copied_once_more_removes_its_own_rows_where_the_key_shows_which_these_are(task: Task) -> None:
    task.sql("CREATE TABLE $_a1.cart_2 LIKE $_a1.cart_1")
    task.start("a")
    task.there("""INSERT INTO "$".cart VALUES (1, 1, '1', 'a1'), (9, 9, '1', 'a1')""")
    task.start("b")
    begun = task.start("a", resync=[f"{task.schema}_a1.cart_1"])
    assert task.ways("a")["_a1.cart_1"] is CopyMode.OWN
    assert any(f"are removed unless {task.schema}_a1.cart_1 has them" in note for note in begun.notes)
    assert not any(note.startswith("extra rows") for note in begun.notes)
    whole = task.parts
    only = AllowList.parse(f"{task.schema}_a1.cart_1,{task.schema}_a2.*")
    task.parts = (replace(whole[0], rules=replace(whole[0].rules, allow=only)), whole[1])
    task.start("a")
    with closing(whole[0].target.server.connect()) as target:
        left = target.meta.structures.load(whole[0].name, RemainingRowsKey("a"))
    assert set(left) == {TableName(f"{task.schema}_a1", "cart_2")}
    task.parts = whole
    task.start("a", resync=[])
    assert task.ways("a") == {"_a1.cart_1": CopyMode.OWN, "_a2.cart_1": CopyMode.OWN, "_a1.cart_2": CopyMode.ADD}
    guarded = replace(whole[0], version_column="a")
    task.parts = (guarded, whole[1])
    begun = task.start("a", resync=[f"{task.schema}_a1.cart_1"])
    assert task.ways("a")["_a1.cart_1"] is CopyMode.ADD
    assert any(note.startswith("extra rows") for note in begun.notes)


def test_rows_that_remain_of_a_re_copied_shard_are_reported_at_once(task: Task) -> None:
    task.start("a")
    task.there("""INSERT INTO "$".cart VALUES (1, 1, '1', 'a1'), (9, 9, '1', 'a1')""")
    task.start("b")
    name = TableName(f"{task.schema}_a1", "cart_1")
    with closing(task.parts[0].target.server.connect()) as target:
        (stored,) = target.meta.checkpoints.read(task.parts[0].name, "a")
        halt = Halt(tables=(name,), lsn=stored.lsn, code="target-refused", what="no")
        target.meta.halts.save(task.parts[0].name, "a", halt)
    begun = task.start("a", resync=[str(name)])
    assert begun.joined == (name,)
    (found,) = (note for note in begun.notes if note.startswith("extra rows"))
    assert f"{task.schema}.cart that the source does not have stay, because they may be rows of other tables" in found


def test_rows_of_no_shard_are_refused_and_otherwise_the_target_is_taken_as_it_is(task: Task) -> None:
    task.there('CREATE SCHEMA "$"')
    task.there(
        'CREATE TABLE "$".cart (id int, a int, of_table text, of_schema text, PRIMARY KEY (id, of_table, of_schema))'
    )
    task.there("""INSERT INTO "$".cart VALUES (1, 1, '1', 'a1')""")
    with pytest.raises(PrecheckFailed, match="it already has rows on the target"):
        task.start("a")
    task.there('TRUNCATE "$".cart')
    assert task.failed("auto_increment_ID") == [], "this target tells equal numbers apart"
    task.there('ALTER TABLE "$".cart DROP CONSTRAINT cart_pkey, ADD PRIMARY KEY (id)')
    assert len(task.failed("auto_increment_ID")) == 1
    assert task.start("a").rules.keyed == frozenset()
    (found,) = task.failed("auto_increment_ID")
    assert "b: " in found, "who has let the others begin knows of them"
    assert f"a: {task.schema}_a1.cart_1 (1 to 3) and a:" not in found
    task.start("b")
    assert task.failed("auto_increment_ID") == []


@pytest.mark.parametrize("mode", ["", "pessimistic"])
def test_merged_tables_do_not_begin_in_a_task_that_locks_rows(task: Task, mode: ShardMode) -> None:
    """Their rows are not compared, so a row that another program has changed would be overwritten."""
    task.parts = tuple(replace(part, shard_mode=mode, on_divergence=OnDivergence.LOCK) for part in task.parts)
    (found,) = task.failed("row_locks")
    assert f"are merged into {task.schema}.cart" in found
    with pytest.raises(PrecheckFailed, match="Set on-divergence to overwrite, warn or halt") as raised:
        require_all_sources_fit(task.parts, {})
    assert raised.value.code == "merged-not-locked"
    for policy in set(OnDivergence) - {OnDivergence.LOCK}:
        task.parts = tuple(replace(part, on_divergence=policy) for part in task.parts)
        assert task.failed("row_locks") == []
        require_all_sources_fit(task.parts, {})


def test_merged_tables_begin_in_a_task_that_locks_rows_if_versions_decide_about_them(task: Task) -> None:
    """Column a is the version. None of their rows is ever locked."""
    task.parts = tuple(
        replace(part, shard_mode="", on_divergence=OnDivergence.LOCK, version_column="a") for part in task.parts
    )
    assert task.failed("row_locks") == []
    require_all_sources_fit(task.parts, {})
    assert task.start("a").rules.keyed


def test_a_table_that_joins_by_the_log_does_not_prevent_the_start_of_a_task_that_locks_rows(task: Task) -> None:
    """It halts alone."""
    task.sql("DROP TABLE $_a2.cart_1", "DROP TABLE $_b1.cart_1", "CREATE TABLE $_b1.other (id INT PRIMARY KEY)")
    task.parts = tuple(replace(part, shard_mode="", on_divergence=OnDivergence.LOCK) for part in task.parts)
    assert task.failed("row_locks") == []
    task.start("a")
    task.start("b")
    task.sql(f"CREATE TABLE $_b1.cart_1 {CART}")
    (found,) = [one for one in check_all_sources(task.parts) if one.item == "row_locks"]
    assert found.ok
    assert found.message.endswith("; the joining table will halt (merged-not-locked)")
    require_all_sources_fit(task.parts, {})


def test_tables_that_differ_do_not_begin_together(task: Task, capsys: pytest.CaptureFixture[str]) -> None:
    task.sql("ALTER TABLE $_b1.cart_1 ADD b INT")
    (found,) = task.failed("schema_of_shard_tables")
    assert "b: " in found
    assert "column b" in found
    with pytest.raises(PrecheckFailed, match=r"column b \((int here, nothing|nothing here, int) there\)") as raised:
        task.start("a")
    assert raised.value.code == "shards-differ"
    with pytest.raises(PrecheckFailed) as raised:
        require_all_sources_fit(task.parts, {})
    assert raised.value.code == "shards-differ", "the checks before it say the same"
    assert show_findings("t", check_all_sources(task.parts), as_json=True) == PrecheckFailed.exit_code
    told_all = json.loads(capsys.readouterr().out)["findings"]
    assert [one["code"] for one in told_all if not one["ok"]] == ["shards-differ"]
    parts = [replace(part, relay=Path("/dev/null/no")) for part in task.parts]
    with pytest.raises(PrecheckFailed) as raised:
        require_all_sources_fit(parts, {})
    assert raised.value.code == "precheck-failed", "there is more"
    assert "optimistic" in raised.value.todo
    task.parts = tuple(replace(part, shard_mode="optimistic") for part in task.parts)
    assert task.failed("schema_of_shard_tables") == []
    task.start("a")
    columns = "SELECT column_name FROM information_schema.columns WHERE table_name = 'cart' ORDER BY 1"
    assert [row[0] for row in task.there(columns)] == ["a", "b", "id", "of_schema", "of_table"]
    task.start("b")


def test_extracted_columns_that_are_alike_distinguish_nothing(task: Task) -> None:
    """The servers have schemas and tables with the same names, and no column has the name of the server."""
    alike = Extract(r"_([ab])\d$", "of_schema")
    task.parts = tuple(
        replace(
            part,
            rules=replace(part.rules, routes=replace(part.rules.routes, rules=(replace(rule, extract_schema=alike),))),
        )
        for part in task.parts
        for rule in part.rules.routes.rules
    )
    (found,) = task.failed("auto_increment_ID")
    assert "a1.cart_1" in found
    assert "a2.cart_1" in found
    assert "b1" not in found


def test_overlapping_numbers_are_reported_beforehand(task: Task) -> None:
    assert task.failed("auto_increment_ID") == [], "the target is going to tell them apart"
    bare(task)
    (found,) = task.failed("auto_increment_ID")
    assert f"a: {task.schema}_a1.cart_1 (1 to 3) and a: {task.schema}_a2.cart_1 (1 to 3)" in found
    task.sql("UPDATE $_a2.cart_1 SET id = id + 100", "UPDATE $_b1.cart_1 SET id = id + 200")
    task.sql("ALTER TABLE $_a2.cart_1 AUTO_INCREMENT = 103", "ALTER TABLE $_b1.cart_1 AUTO_INCREMENT = 203")
    assert task.failed("auto_increment_ID") == []
    task.sql("INSERT INTO $_a1.cart_1 VALUES (150, 1)")
    assert len(task.failed("auto_increment_ID")) == 1
    task.parts = tuple(replace(part, ignored_checks=("auto_increment_ID",)) for part in task.parts)
    assert task.failed("auto_increment_ID") == []


def bare(task: Task) -> None:
    """Removes the extracted columns from the task's routes."""
    task.parts = tuple(
        replace(
            part,
            rules=replace(
                part.rules,
                routes=replace(part.rules.routes, rules=(replace(rule, extract_table=None, extract_schema=None),)),
            ),
        )
        for part in task.parts
        for rule in part.rules.routes.rules
    )


def apart(task: Task) -> None:
    for number, name in enumerate(("a1", "a2", "b1")):
        task.sql(f"UPDATE $_{name}.cart_1 SET id = id + {number * 100} ORDER BY id DESC")
        task.sql(f"ALTER TABLE $_{name}.cart_1 AUTO_INCREMENT = {number * 100 + 3}")


def test_a_table_that_is_the_first_of_several_gets_the_long_key(task: Task) -> None:
    task.sql("DROP DATABASE $_a2", "DROP DATABASE $_b1", "CREATE DATABASE $_a2", "CREATE DATABASE $_b1")
    task.parts = task.parts[:1]
    assert task.start("a").rules.keyed == {TableName(task.schema, "cart")}
    assert key(task) == ["id", "of_table", "of_schema"]
    assert shared(task) == set()


def test_a_table_that_joins_does_not_take_the_place_of_others_rows(task: Task) -> None:
    bare(task)
    apart(task)
    task.start("a")
    assert shared(task) == {TableName(task.schema, "cart")}
    inner = task.parts[1]
    task.sql(f"CREATE TABLE $_b1.cart_2 {CART}", "INSERT INTO $_b1.cart_2 VALUES (2, 2)")
    (found,) = task.failed("auto_increment_ID")
    assert "cart_2 (2 to 3)" in found
    other, only = TableName(f"{task.schema}_b1", "cart_2"), AllowList.parse(f"{task.schema}_b1.cart_1")
    task.parts = (task.parts[0], replace(inner, rules=replace(inner.rules, allow=only)))
    assert task.failed("auto_increment_ID") == []
    task.start("b")
    task.parts = (task.parts[0], inner)
    assert task.failed("auto_increment_ID") == [], "no reason not to go on with all else"
    with pytest.raises(Halted, match="the numbers of these tables overlap") as raised:
        task.start("b")
    assert raised.value.code == "shard-keys-meet"
    task.sql("UPDATE $_b1.cart_2 SET id = 1000", "ALTER TABLE $_b1.cart_2 AUTO_INCREMENT = 1001")
    assert task.start("b").joined == (other,)


def test_a_source_that_is_ahead_of_the_others_begins_when_they_have_come_there(task: Task) -> None:
    task.start("a")
    task.sql("ALTER TABLE $_b1.cart_1 ADD b INT")
    with pytest.raises(PrecheckFailed, match="column b"):
        task.start("b")
    assert task.failed("target_tables")
    task.sql("ALTER TABLE $_a1.cart_1 ADD b INT", "ALTER TABLE $_a2.cart_1 ADD b INT")
    assert task.failed("target_tables") == []
    with pytest.raises(ShardAhead, match="has not reached it yet"):
        task.start("b")
    task.there('ALTER TABLE "$".cart ADD b int')
    came(task, "a")
    task.start("b")
    assert task.ways("b") == {"_b1.cart_1": CopyMode.ADD}


def test_a_source_whose_rows_have_a_place_among_the_others_begins(task: Task) -> None:
    task.sql(
        "ALTER TABLE $_a1.cart_1 ADD b INT", "ALTER TABLE $_a2.cart_1 ADD b INT", "ALTER TABLE $_b1.cart_1 ADD b INT"
    )
    task.start("a")
    task.sql("ALTER TABLE $_b1.cart_1 DROP b")
    task.start("b")
    assert task.ways("b") == {"_b1.cart_1": CopyMode.ADD}


def shared(task: Task) -> set[TableName]:
    with closing(task.parts[0].target.server.connect()) as target:
        return set(target.meta.structures.load(task.parts[0].name, MergedTablesKey()))


def came(task: Task, source_id: str) -> None:
    """Waits until the relay has the whole log of a source."""
    (config,) = (part for part in task.parts if part.source.source_id == source_id)
    with closing(connect(config.source.server)) as source, closing(config.target.server.connect()) as target:
        (stored,) = target.meta.checkpoints.read(config.name, source_id)
        target.begin()
        target.meta.structures.save(
            config.name, SourceTablesKey(source_id), stored.lsn, read_structures(source, config.allow)
        )
        target.commit()


def test_a_table_without_a_key_becomes_one_with_no_other(task: Task) -> None:
    task.sql("CREATE TABLE $_a1.cart_2 (id INT, a INT)")
    assert any("without a key" in message for message in task.failed("target_tables"))


def test_shards_that_differ_in_pessimistic_mode_are_reported_with_the_consequence(
    task: Task, capsys: pytest.CaptureFixture[str]
) -> None:
    def hints() -> list[str]:
        show_findings(
            "t", [one for one in check_all_sources(task.parts) if one.item == "schema_of_shard_tables"], as_json=False
        )
        return capsys.readouterr().out.splitlines()

    optimistic = task.parts = tuple(replace(part, shard_mode="optimistic") for part in task.parts)
    task.sql("ALTER TABLE $_b1.cart_1 ADD b INT")
    task.start("a")
    task.start("b")
    task.parts = tuple(replace(part, shard_mode="pessimistic") for part in optimistic)
    hint, fix, _ = hints()
    assert hint.startswith("hint ")
    assert f"a: {task.schema}_a1.cart_1 in column b (nothing here, int there); a: {task.schema}_a2.cart_1 in" in hint
    assert f"b: {task.schema}_b1.cart_1 in the order of columns. In pessimistic mode" in hint
    assert "do not wait for these shards as long as their rows fit" in hint
    assert "shard-mode: optimistic" in fix
    task.sql("ALTER TABLE $_a1.cart_1 ADD b INT", "ALTER TABLE $_a2.cart_1 ADD b INT")
    assert hints()[0].endswith("have the same structure"), "it is on its way"
    task.parts = optimistic
    assert hints()[0].startswith("ok ")
