"""Pieces of a copy run on real servers, without Spark, in the way in which Spark tasks run them. A later batch settles
them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.target.conformance.samples import create

from pidts.apply import ApplyRules, prepared
from pidts.apply.merge.recorded_tables import RULES
from pidts.apply.uncopied_keys import packed
from pidts.batch.context import JobContext
from pidts.batch.copy import load_task
from pidts.batch.copy.finish import FinishThreads
from pidts.batch.copy.load_task import FetchedPiece, RequestedChunk, carry_out
from pidts.batch.copy.pieces import CutRequest, RequestCutter
from pidts.batch.copy.staging import staged_chunk, staged_rows
from pidts.batch.copy.target_statistics import Statistics
from pidts.batch.decoding import absent
from pidts.login import Mode, Tls
from pidts.model import (
    Checkpoint,
    Fenced,
    Lsn,
    MergedTablesKey,
    Position,
    RemainingRowsKey,
    SourceTablesKey,
    Table,
    TableName,
    Transient,
)
from pidts.plan import ChunkRequest, CopyMode, CopyState, Phase
from pidts.relay import Origin, RelayWriter
from pidts.rules import Extract, RouteRule, Routes, Rules
from pidts.rules.record import to_text
from pidts.sandbox import Server
from pidts.schema import Dialect
from pidts.source import SourceConfig, connect, event_at, log_end, read_structures, server_info
from pidts.target import MySqlTarget, PostgresTarget

RunSql = Callable[..., list[tuple[Any, ...]]]


@dataclass
class Place:
    """A source, a target with the same tables, and the beginning of a relay."""

    context: JobContext
    source: Server
    run_sql: RunSql

    def sql(self, *statements: str) -> None:
        for statement in statements:
            self.run_sql(self.source, statement, database=self.context.task)

    def know(self, *, before_copy: bool = False) -> None:
        """Creates the tables on the target, with the checkpoint of a task that has requested their rows."""
        context = self.context
        with closing(connect(context.source)) as source, closing(context.target.connect()) as target:
            structures = read_structures(source, self.ours)
            for table in structures.values():
                for statement in target.schema.create_statements(table, before_copy=before_copy).statements:
                    target.execute(statement)
                if before_copy:
                    target.meta.leave_unfinished(table.name)
            here = Lsn.at(log_end(source))
            start = Checkpoint(task=context.task, source="s", worker=0, lsn=here)
            (claimed,) = target.meta.checkpoints.claim(context.task, "s", 1, start)
            self.context = replace(context, structures=structures, epoch=claimed.epoch)

    def ours(self, name: TableName) -> bool:
        return name.schema == self.context.task

    def name(self, table: str) -> TableName:
        return TableName(self.context.task, table)

    def piece(self, table: str, **about: Any) -> RequestedChunk:
        request = ChunkRequest(self.name(table), 0, None, None, 100, **about)
        return RequestedChunk(request, 0, 100)

    def cut(self, request: ChunkRequest) -> CutRequest:
        with closing(RequestCutter()) as cutter:
            (found,) = cutter.cut(self.context, [request], 0, None)
            return found

    def rows(self, table: str) -> list[dict[str, Any]]:
        with closing(self.context.target.connect()) as target:
            return target.read_rows(self.context.structures[self.name(table)]).to_pylist()


@pytest.fixture(params=["postgres", "mysql97"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, mariadb: Server, database: str, run_sql: RunSql
) -> Iterator[Place]:
    there = request.getfixturevalue(request.param)
    login = {"host": there.host, "port": there.port, "user": there.user, "password": there.password}
    target = PostgresTarget(**login) if request.param == "postgres" else MySqlTarget(**login, tls=Tls(Mode.DISABLED))
    config = SourceConfig(mariadb.host, mariadb.port, mariadb.user, mariadb.password, source_id="s")
    with closing(connect(config)) as source, closing(RelayWriter.open(tmp_path / "relay", "s")) as writer:
        here = log_end(source)
        writer.begin(Origin(server_info(source).identity, "bin", 0), Lsn.at(here), "")
        writer.start_segment(event_at(config, Position(here.file, 4)))
    with closing(target.connect()) as session:
        session.meta.prepare()
    context = JobContext(
        task=database,
        source=config,
        relay=tmp_path / "relay",
        staging=tmp_path / "staging",
        target=target,
        workers=1,
        epoch=0,
        change_no=0,
        structures={},
        dialect=Dialect(),
        charsets={},
    )
    yield Place(context, mariadb, run_sql)
    load_task.close_kept()
    if there.kind != "postgres":
        run_sql(there, f"DROP DATABASE IF EXISTS `{database}`")


def test_a_table_without_a_key_is_read_in_one_go_and_once(place: Place) -> None:
    """A limited copy rate does not slow the reading of this table. Another attempt at the request loads no rows."""
    place.sql("CREATE TABLE bag (a INT)", "INSERT INTO bag SELECT seq FROM seq_1_to_40")
    place.know()
    place.context = replace(place.context, copy_rate=1)
    began = time.monotonic()
    first = next(carry_out(place.context, [place.piece("bag", whole=True)]))
    assert time.monotonic() - began < 20, "half of what it would take at that rate"
    assert (first.rows, len(place.rows("bag"))) == (40, 40)
    place.sql("INSERT INTO bag VALUES (0)")
    again = next(carry_out(place.context, [place.piece("bag", whole=True)]))
    assert replace(again, seconds=0) == replace(first, seconds=0), "another attempt at the same request"
    assert len(place.rows("bag")) == 40
    later = next(carry_out(place.context, [replace(place.piece("bag", whole=True), batch=1)]))
    assert (later.rows, later.low > first.low, len(place.rows("bag"))) == (41, True, 41)


def test_all_that_only_the_target_has_is_found_page_by_page(place: Place) -> None:
    place.sql("CREATE TABLE t (k VARCHAR(9) PRIMARY KEY, n INT)", "INSERT INTO t VALUES ('b', 1), ('d', 1), ('x', 1)")
    place.know()
    table = place.context.structures[place.name("t")]
    with closing(place.context.target.connect()) as target:
        target.begin()
        assert target.load(table, rows(table, "abcdef"))
        target.commit()
    found, after, asked = [], None, 0
    while asked < 9:
        request = ChunkRequest(place.name("t"), asked, after, None, 2, phase=Phase.EXTRAS, mode=CopyMode.REPAIR)
        cut = place.cut(request)
        cut.store_result(place.context, list(carry_out(place.context, cut.pieces)))
        reported = staged_chunk(place.context.staging, request)
        assert reported is not None
        found += [key for part in staged_rows(place.context.staging, request) for key in part["k"].to_pylist()]
        after, asked = reported.last_key, asked + 1
        if reported.is_last:
            break
    assert (sorted(found), asked) == (list("acef"), 4)
    assert [row["k"] for row in place.rows("t")] == list("abcdef"), "they go with the batch that settles the request"


def test_of_several_tables_in_one_only_what_is_too_much_of_its_own_is_found(place: Place) -> None:
    place.sql("CREATE TABLE t_1 (k VARCHAR(9) PRIMARY KEY, n INT)", "INSERT INTO t_1 VALUES ('b', 1), ('d', 1)")
    place.sql("CREATE TABLE t_2 LIKE t_1")
    place.know()
    task, one, target_table = place.context.task, place.name("t_1"), place.name("all")
    route = RouteRule(task, "t_*", target_table.schema, target_table.name, Extract("t_(.)", "part"))
    rules = Rules(routes=Routes((route,), "s", True), keyed=frozenset({target_table}))
    place.context = replace(place.context, rules=rules)
    table = rules.target_table(place.context.structures[one])
    there = [
        {"k": key, "n": 0, "part": part} for part, keys in (("1", "abcdef"), ("2", "az"), ("9", "ay")) for key in keys
    ]
    with closing(place.context.target.connect()) as target:
        create(target, table)
        target.begin()
        assert target.load(table, table.arrow.empty_table().from_pylist(there, table.arrow))
        target.meta.structures.save(task, SourceTablesKey("s"), Lsn(0, 1, 4), place.context.structures)
        target.meta.structures.save(task, MergedTablesKey(), Lsn(0, 1, 4), {target_table: table})
        target.meta.notes.write(task, SourceTablesKey("s"), RULES, to_text(rules))
        target.commit()

    def remove(keys: Any) -> None:
        writing = ApplyRules(task=task, source="s", filters=rules, merged=frozenset({target_table}))
        batches = [replace(batch, upstream=one) for batch in absent(table, keys)]
        with closing(place.context.target.connect()) as target:
            target.begin()
            for change in prepared(target, batches, writing, {one: CopyState(mode=CopyMode.OWN, phase=Phase.EXTRAS)}):
                target.write(change)
            target.commit()

    def there_now() -> list[tuple[str, str]]:
        with closing(place.context.target.connect()) as target:
            return sorted((row["part"], row["k"]) for row in target.read_rows(table).to_pylist())

    def extra() -> tuple[list[str], int]:
        found, after = [], None
        for asked in count():
            request = ChunkRequest(one, asked, after, None, 2, phase=Phase.EXTRAS, mode=CopyMode.OWN)
            cut = place.cut(request)
            cut.store_result(place.context, list(carry_out(place.context, cut.pieces)))
            reported = staged_chunk(place.context.staging, request)
            assert reported is not None
            found += [row for part in staged_rows(place.context.staging, request) for row in part.to_pylist()]
            if reported.is_last:
                assert {row["part"] for row in found} <= {"1"}
                return sorted(row["k"] for row in found), asked + 1
            after = reported.last_key
        raise AssertionError

    assert extra() == (list("acef"), 4)
    before = there_now()
    too_much = pa.table({"k": list("acef"), "part": ["1"] * 4})
    gone = place.name("t_1x")
    for record in (SourceTablesKey("s"), RemainingRowsKey("s"), RemainingRowsKey("z"), SourceTablesKey("z")):
        with closing(place.context.target.connect()) as target:
            target.begin()
            target.meta.notes.write(task, SourceTablesKey(record.source), RULES, to_text(rules))
            target.meta.structures.save(task, record, Lsn(0, 1, 4), {gone: place.context.structures[one].renamed(gone)})
            target.commit()
        assert extra() == ([], 1), f"rows with the same values are, or were, those of {gone} of {record}"
        remove(too_much)
        assert there_now() == before, "known since the keys were read"
        with closing(place.context.target.connect()) as target:
            target.begin()
            target.meta.structures.save(task, record, Lsn(0, 1, 4), {gone: None})
            target.commit()
    assert extra()[0] == list("acef")
    with closing(place.context.target.connect()) as target:
        target.begin()
        target.meta.structures.save("another", MergedTablesKey(), Lsn(0, 1, 4), {target_table: table})
        target.commit()
    assert extra() == ([], 1), "nobody knows what another task has brought there"
    with closing(place.context.target.connect()) as target:
        target.begin()
        target.meta.structures.save("another", MergedTablesKey(), Lsn(0, 1, 4), {target_table: None})
        target.commit()
    remove(too_much)
    assert set(before) - set(there_now()) == {("1", key) for key in "acef"}
    assert set(there_now()) <= set(before)


def rows(table: Table, keys: str) -> Any:
    return table.arrow.empty_table().from_pylist([{"k": key, "n": 0} for key in keys], table.arrow)


def test_rows_that_are_there_wait_and_others_are_loaded(place: Place) -> None:
    place.sql("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t SELECT seq FROM seq_1_to_30")
    place.know()
    cut = place.cut(ChunkRequest(place.name("t"), 0, None, None, 10, parts=3))
    first: list[FetchedPiece] = list(carry_out(place.context, cut.pieces))
    again = list(carry_out(place.context, cut.pieces[:1]))
    assert [(one.rows, one.waiting) for one in first] == [(10, 0)] * 3
    assert [(one.rows, one.waiting) for one in again] == [(10, 10)]
    assert len(place.rows("t")) == 30


def test_results_before_a_failed_piece_are_reported(place: Place) -> None:
    place.sql("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t SELECT seq FROM seq_1_to_30")
    place.know()
    cut = place.cut(ChunkRequest(place.name("t"), 0, None, None, 10, parts=3))
    shown = []
    with pytest.raises(Transient, match="the request that they were read for is already done") as late:
        shown += carry_out(place.context, [cut.pieces[0], replace(cut.pieces[1], batch=-1), cut.pieces[2]])
    assert (late.value.code, late.value.where.source) == ("chunk-too-late", place.context.source.source_id)
    assert [one.rows for one in shown] == [10]
    assert [row["id"] for row in place.rows("t")] == list(range(1, 11))


def ending(table: Table) -> ChunkRequest:
    return ChunkRequest(table.name, 1, None, None, 0, phase=Phase.FINISH)


def test_tables_get_their_keys_side_by_side(place: Place) -> None:
    names = [f"t{number}" for number in range(5)]
    place.sql(*(f"CREATE TABLE {name} (id INT PRIMARY KEY, k INT, UNIQUE KEY by_k (k))" for name in names))
    place.know(before_copy=True)
    tables = [place.context.structures[place.name(name)] for name in names]

    def keys(table: Table) -> int:
        with closing(place.context.target.connect()) as target:
            found = target.schema.structure(table.name)
            return len(found.keys) if found else 0

    FinishThreads(place.context, ()).wait(1)
    finishing = FinishThreads(place.context, [ending(table) for table in tables])
    began = time.monotonic()
    while not finishing.wait(0.1):
        assert time.monotonic() - began < 30
    assert [keys(table) for table in tables] == [2] * 5
    statistics = Statistics()
    statistics.gather(place.context.target, ["no statement of any target", *finishing.later])
    statistics.close(30)
    if isinstance(target := place.context.target, PostgresTarget):
        with closing(target.connect()) as session:
            sql = "SELECT count(*) FROM pg_catalog.pg_class WHERE relnamespace = %s::regnamespace AND reltuples >= 0"
            ((looked_at,),) = session.pipeline.now(f"{sql} AND relkind = 'r'", (place.context.task,)).rows
        assert looked_at == 5


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
def test_an_attempt_that_ends_takes_no_further_table(place: Place) -> None:
    names = [f"t{number}" for number in range(3)]
    place.sql(*(f"CREATE TABLE {name} (id INT PRIMARY KEY, k INT, UNIQUE KEY by_k (k))" for name in names))
    place.know(before_copy=True)
    tables = [place.context.structures[place.name(name)] for name in names]
    place.context = replace(place.context, copy_threads=1)
    with closing(place.context.target.connect()) as other:
        other.begin()
        other.clear(tables[0].name)
        # This transaction locks the table: the key is created when the transaction has ended.
        assert other.count(tables[0].name) == 0
        finishing = FinishThreads(place.context, [ending(table) for table in tables])
        assert not finishing.wait(0.5)
        finishing.begin_no_more()
        other.rollback()
        assert finishing.wait(30)
        keys = [len(found.keys) for table in tables if (found := other.schema.structure(table.name))]
    assert keys == [2, 1, 1]


def test_a_run_that_was_replaced_notices_it_at_the_end_of_a_table(place: Place) -> None:
    place.sql("CREATE TABLE t (id INT PRIMARY KEY, k INT, UNIQUE KEY by_k (k))")
    place.know()
    place.context = replace(place.context, epoch=place.context.epoch - 1)
    finishing = FinishThreads(place.context, map(ending, place.context.structures.values()))
    with pytest.raises(Fenced, match="has taken over") as caught:
        finishing.wait(30)
    assert (caught.value.code, caught.value.where.source) == ("fenced", place.context.source.source_id)


def test_recorded_keys_are_read_again_up_to_what_all_workers_have_recorded(place: Place) -> None:
    """A recorded key is not read if its table's key has other columns by now. The record is removed when the rows are
    settled.
    """
    place.sql("CREATE TABLE t (id INT, k VARCHAR(9), v INT, PRIMARY KEY (k, id))")
    place.sql("INSERT INTO t VALUES (1, 'a', 1), (2, 'ä', 2), (3, 'c', 3), (4, 'd', 4)")
    place.know()
    name = place.name("t")
    table = place.context.structures[name]
    schema = pa.schema([table.arrow.field(each) for each in table.identity])
    records = {
        10: pa.table([["a", "gone"], [1, 9]], schema=schema),
        20: pa.table({"id": pa.array([4], pa.int64())}),
        30: pa.table([["ä"], [2]], schema=schema),
        40: pa.table([["c"], [3]], schema=schema),
    }
    places = {offset: Lsn(0, 1, offset) for offset in records}
    with closing(place.context.target.connect()) as session:
        session.begin()
        for offset, keys in records.items():
            session.meta.rereads.add(place.context.task, "s", name, places[offset], packed(keys))
        session.commit()

    def read(after: int | None, limit: int) -> tuple[FetchedPiece, list[int]]:
        begin = None if after is None else (str(places[after]),)
        request = ChunkRequest(name, 1, begin, (str(places[30]),), limit, phase=Phase.REREAD)
        cut = place.cut(request)
        (fetched,) = carry_out(place.context, cut.pieces)
        cut.store_result(place.context, [fetched])
        found = staged_chunk(place.context.staging, request)
        assert found is not None
        assert found.is_last == (not fetched.last_key)
        rows = [row for part in staged_rows(place.context.staging, request) for row in part.to_pylist()]
        return fetched, sorted(row["v"] for row in rows)

    def left() -> list[Lsn]:
        with closing(place.context.target.connect()) as session:
            found = session.meta.rereads.read(place.context.task, "s", name, Lsn(0, 0, 0), 9)
            return [lsn for lsn, _ in found]

    fetched, values = read(None, 2)
    assert (fetched.last_key, fetched.waiting, values) == (str(places[10]), 1, [1])
    assert left() == list(places.values())
    fetched, values = read(10, 2)
    assert (fetched.last_key, values, left()) == ("", [2], list(places.values())[1:])
    ends = [ChunkRequest(name, 1, (str(places[offset]),), None, 0, phase=Phase.FINISH) for offset in (30, 40)]
    for end, is_read in zip(ends, (False, True), strict=True):
        finishing = FinishThreads(place.context, [end])
        while not finishing.wait(0.1):
            pass
        assert (end not in finishing.unread) is is_read
    assert left() == []
