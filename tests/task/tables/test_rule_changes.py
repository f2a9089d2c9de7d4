"""If routes were changed while a task was stopped, the next start reports it."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from tests.values_target import ValuesTarget

from pidts.model import (
    Checkpoint,
    Column,
    ColumnType,
    ConfigError,
    DroppedColumnsKey,
    Halt,
    Key,
    Kind,
    Lsn,
    MergedTablesKey,
    RecordKey,
    SourceTablesKey,
    Table,
    TableName,
)
from pidts.plan import CopyMode
from pidts.rules import AllowList, ColumnMapping, Extract, RouteRule, Routes, Rules
from pidts.task.tables import rule_changes
from pidts.task.tables.target_fit import TableFit

TABLE = Table(TableName("shop", "t_1"), (Column("id", ColumnType(Kind.INT), nullable=False),))
ROUTES = Routes((RouteRule("shop", "t_*", "all", "t", Extract("t_(.*)", "n"), None, Extract("(.*)", "o")),), "s", True)
MAPPING = ColumnMapping("shop", "t_*", "id", "partition id", ("1", "", "t", "_"))


@dataclass
class Source:
    source_id: str = "s"


@dataclass
class Config:
    rules: Rules
    name: str = "t"
    source: Source = field(default_factory=Source)
    path: Path = Path("t.yaml")

    def run_command(self, options: str = "") -> str:
        return f"pidts run {self.path}{options}"

    @property
    def allow(self) -> AllowList:
        return self.rules.allow


@pytest.mark.parametrize(
    ("after", "refused"),
    [
        (Rules(routes=ROUTES, mappings=(MAPPING,)), ""),
        (Rules(AllowList(do_dbs=("shop",)), routes=ROUTES, mappings=(MAPPING,)), ""),
        (Rules(routes=Routes((*ROUTES.rules, RouteRule("crm", "", "x")), "s", True), mappings=(MAPPING,)), ""),
        (Rules(mappings=(MAPPING,)), "the new route leads to"),
        (Rules(routes=Routes(ROUTES.rules, "other", True), mappings=(MAPPING,)), "the new route leads to"),
        (Rules(routes=ROUTES), "an earlier column mapping"),
        (Rules(AllowList(ignore_dbs=("shop",))), ""),
    ],
)
def test_rows_go_where_the_existing_rows_are(after: Rules, refused: str) -> None:
    target = ValuesTarget("destinations")
    with closing(target.connect()) as session:
        session.meta.prepare()
        session.meta.checkpoints.claim("t", "s", 1, Checkpoint(task="t", source="s", worker=0, lsn=Lsn(0, 1, 4)))
        session.begin()
        session.meta.structures.save("t", SourceTablesKey("s"), Lsn(0, 1, 4), {TABLE.name: TABLE})
        session.commit()
        before: Any = Config(Rules(routes=ROUTES, mappings=(MAPPING,)))
        rule_changes.require_unmoved_rows(before, session)  # Nothing is recorded yet.
        rule_changes.record_rules(before, session)
        now: Any = Config(after)
        if refused:
            with pytest.raises(ConfigError, match=refused) as raised:
                rule_changes.require_unmoved_rows(now, session)
            assert raised.value.code == "rules-moved"
        else:
            rule_changes.require_unmoved_rows(now, session)
    target.forget()


@pytest.mark.parametrize("waits", ["s", "other"])
def test_routes_stay_while_a_shard_of_any_source_waits_for_others(waits: str) -> None:
    target = ValuesTarget("waiting shards")
    with closing(target.connect()) as session:
        before: Any = Config(Rules(routes=ROUTES, mappings=(MAPPING,)))
        rule_changes.record_rules(before, session)
        halt = Halt(tables=(TABLE.name,), lsn=Lsn(0, 1, 4), statement="ALTER ...", code="shard-awaits", what="")
        session.meta.halts.save("t", waits, halt)
        others: Any = [Config(Rules(), "t", Source("other"))]
        more: Any = Config(
            Rules(routes=Routes((*ROUTES.rules, RouteRule("crm", "", "x")), "s", True), mappings=(MAPPING,))
        )
        rule_changes.require_unmoved_rows(more, session, others)  # The shard waits for no other one.
        session.meta.halts.save("t", waits, replace(halt, awaits=("s: shop.t_2",)))
        rule_changes.require_unmoved_rows(before, session, others)
        for rules in (more.rules, replace(more.rules, routes=ROUTES, mappings=())):
            now: Any = Config(rules)
            with pytest.raises(ConfigError, match=r"a schema change of shop.t_1 waits") as raised:
                rule_changes.require_unmoved_rows(now, session, others)
            assert raised.value.code == "shard-lock-open"
    target.forget()


def test_rows_that_another_task_has_brought_are_not_taken_for_rows_that_should_go() -> None:
    target = ValuesTarget("strangers")
    target_table = TableName("all", "t")
    with closing(target.connect()) as session:
        for task, source in (("t", "s"), ("other", "s")):
            config: Any = Config(Rules(routes=ROUTES), task, Source(source))
            session.meta.checkpoints.claim(
                task, source, 1, Checkpoint(task=task, source=source, worker=0, lsn=Lsn(0, 1, 4))
            )
            session.begin()
            session.meta.structures.save(task, SourceTablesKey(source), Lsn(0, 1, 4), {TABLE.name: TABLE})
            session.meta.structures.save(task, MergedTablesKey(), Lsn(0, 1, 4), {target_table: TABLE})
            session.commit()
            rule_changes.record_rules(config, session)
        config = Config(Rules(routes=ROUTES))
        repaired, plain = (
            TableFit(TABLE.name, TABLE.renamed(target_table), CopyMode.REPAIR),
            TableFit(TABLE.name, TABLE, CopyMode.REPAIR),
        )
        refused = replace(repaired, mode=CopyMode.NEW, has_rows=True, problem="it has rows", fix="Empty it")
        assert [fit.mode for fit in rule_changes.with_other_writers(config, session, [repaired, plain])] == [
            CopyMode.ADD,
            CopyMode.REPAIR,
        ]
        (found,) = rule_changes.with_other_writers(config, session, [refused])
        assert found.problem == "it has rows, and it also gets rows of shop.t_1 of task other"
    target.forget()


@pytest.mark.parametrize(
    ("key", "name", "mode"),
    [
        (SourceTablesKey("north"), TableName("shop", "t_2"), CopyMode.ADD),
        (SourceTablesKey("north"), TableName("shop", "other"), CopyMode.REPAIR),
        (MergedTablesKey(), TableName("all", "t"), CopyMode.ADD),
        (MergedTablesKey(), TableName("shop", "t_1"), CopyMode.REPAIR),
        (DroppedColumnsKey("north"), TableName("shop", "t_2"), CopyMode.REPAIR),
    ],
)
def test_rows_of_a_source_or_a_shard_that_is_not_in_the_task_any_more_stay(
    key: RecordKey, name: TableName, mode: CopyMode
) -> None:
    target = ValuesTarget("tables in targets")
    table = TABLE.renamed(name)
    with closing(target.connect()) as session:
        for own, tables in ((SourceTablesKey("s"), {TABLE.name: TABLE}), (key, {name: table})):
            session.begin()
            session.meta.structures.save("t", own, Lsn(0, 1, 4), tables)
            session.commit()
            if isinstance(own, SourceTablesKey):
                config: Any = Config(Rules(routes=ROUTES), "t", Source(own.source))
                rule_changes.record_rules(config, session)
        config = Config(Rules(routes=ROUTES))
        (fit,) = rule_changes.with_other_writers(
            config, session, [TableFit(TABLE.name, TABLE.renamed(TableName("all", "t")), CopyMode.REPAIR)]
        )
        assert fit.mode is mode
    target.forget()


def test_a_copy_over_rows_says_what_it_removes() -> None:
    fit = TableFit(TABLE.name, TABLE, CopyMode.REPAIR)
    (note,) = rule_changes.row_notes([fit])
    assert note.startswith("the source's rows overwrite those of shop.t_1, and rows that the source does not have")
    assert rule_changes.row_notes([replace(fit, mode=CopyMode.NEW)]) == []
    with_key = replace(TABLE, keys=(Key("PRIMARY", ("id",), unique=True, primary=True),))
    (note,) = rule_changes.row_notes([replace(fit, target_table=with_key, mode=CopyMode.ADD)])
    assert note.startswith("extra rows of shop.t_1 that the source does not have stay")
    assert isinstance(note, rule_changes.Caution), "they may be rows of another task"
    filtered = replace(fit, target_table=with_key, mode=CopyMode.ADD, stay=("a filter may have kept them",))
    (note,) = rule_changes.row_notes([filtered])
    assert "stay, because a filter may have kept them; pidts verify" in note
    assert not isinstance(note, rule_changes.Caution)
    mapped = replace(
        filtered, target_table=with_key.renamed(TableName("shop", "t_2")), stay=("a mapping changes keys",)
    )
    assert len(rule_changes.row_notes([filtered, mapped])) == 2, "each table has its own reason"
    (note,) = rule_changes.row_notes([replace(fit, mode=CopyMode.ADD)])
    assert note.startswith("the source's rows overwrite those of shop.t_1"), "without a key, all rows are replaced"
