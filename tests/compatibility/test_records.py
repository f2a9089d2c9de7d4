"""The rows of `pidts_meta` that version 0.1.0 left on a target are read as they were written, and written in the same form.

The file has rows with every field: `python -m tests.compatibility.test_records FILE` records them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pidts.model import (
    Checkpoint,
    Column,
    ColumnType,
    CommandKind,
    Cutover,
    CutoverServer,
    CutoverStage,
    DdlCommand,
    DdlJournal,
    DdlState,
    DroppedColumnsKey,
    Key,
    Kind,
    LoggedStatement,
    Lsn,
    MergedTablesKey,
    MissedChangesKey,
    RangeOwner,
    RecordKey,
    RemainingRowsKey,
    Shadow,
    SourceTablesKey,
    Table,
    TableName,
    record_key,
    record_text,
)
from pidts.model.cutover import ConstraintKind
from pidts.plan import PlanState
from pidts.plan.copy.state import ChunkRequest, CopyMode, CopyState, Phase
from pidts.plan.state import copied_at, dealing_of, held_at, run_of
from pidts.target import MySqlTarget, PostgresTarget
from pidts.target.checkpoint_row import read_progress, written_progress

HERE = Path(__file__).parent
RECORDED = HERE / "records-0.1.0.json"
TASK, SOURCE = "recorded by 0.1.0", "s"
ORDERS, LINES, NEW = TableName("shop", "orders"), TableName("shop", "lines é"), TableName("shop", "_orders_gho")
AT = Lsn(2, 41, 1188, 3)

KEYS: dict[str, RecordKey] = {
    "s": SourceTablesKey("s"),
    "*": MergedTablesKey(),
    "* s": DroppedColumnsKey("s"),
    "*- s": RemainingRowsKey("s"),
    "*0 s": MissedChangesKey("s", 0),
    "*12 s": MissedChangesKey("s", 12),
}
TABLE = Table(
    ORDERS,
    (
        Column("id", ColumnType(Kind.BIGINT, unsigned=True, length=20), nullable=False, auto_increment=True),
        Column(
            "state",
            ColumnType(Kind.ENUM, charset="utf8mb4", collation="utf8mb4_bin", labels=("new", "paid, é")),
            default="'new'",
            comment="of the order",
        ),
        Column("price", ColumnType(Kind.DECIMAL, precision=12, scale=2)),
        Column("at", ColumnType(Kind.TIMESTAMP, fsp=6)),
        Column("twice", ColumnType(Kind.DECIMAL, precision=13, scale=2), generated=True, computed="`price` * 2"),
    ),
    (
        Key("PRIMARY", ("id",), unique=True, primary=True),
        Key("by_state", ("state", "at"), prefixes=(3, None), descending=(False, True), options="COMMENT 'x'"),
        Key("words", ("state",), fulltext=True),
        Key("part", ("state",), prefixes=(2,), unique_prefixes=True),
        Key("parent", ("price",), for_foreign_key=True),
    ),
    charset="utf8mb4",
    collation="utf8mb4_general_ci",
    comment="orders",
)
SHADOW = Shadow(
    TABLE.renamed(NEW),
    (
        LoggedStatement("ALTER TABLE _orders_gho ADD w INT", "shop", 1411383296, "+00:00", utf8_literals=True),
        LoggedStatement("ALTER TABLE shop._orders_gho ADD v INT"),
    ),
    complete=False,
)
JOURNAL = DdlJournal(
    task=TASK,
    source=SOURCE,
    lsn=AT,
    statement="ALTER TABLE orders ADD w INT, ADD v INT",
    rendered=('ALTER TABLE "shop"."orders" ADD "w" integer', "ALTER TABLE é"),
    step=1,
    before={"shop.orders": "0123456789abcdef", "shop.new": None},
    state=DdlState.INTENT,
    epoch=7,
)
ORDER = DdlCommand(
    lsn=AT, kind=CommandKind.REPLACE, statements=("ALTER TABLE a", "SELECT 'é; b'"), number=3, taken=True
)
CUTOVER = Cutover(
    stage=CutoverStage.DONE,
    read_only={"s": {"read_only": "OFF", "super_read_only": "OFF"}},
    constraints=(
        (ConstraintKind.FOREIGN_KEY, ORDERS, "of_customer"),
        (ConstraintKind.CHECK, ORDERS, "positive"),
        (ConstraintKind.KEY, LINES, "lower_name"),
        (ConstraintKind.ON_UPDATE, ORDERS, "at"),
        (ConstraintKind.COUNTER, ORDERS, "id"),
    ),
    position="bin.000003:991",
    gtid="0-1-88",
    began_at=1795000001.5,
    done_at=1795000009.25,
)
OWNER = RangeOwner(
    schema="shop",
    table="orders",
    where="region = 'eu'",
    zone="b",
    origin="a",
    to="b",
    settled=True,
    number=4,
    ranges="shop.orders where region = 'eu' -> b",
)
REQUEST = ChunkRequest(LINES, 5, (7, "a"), (900, "z"), 20000, 3, Phase.EXTRAS, CopyMode.OWN, whole=False, waits=True)
COPY = {
    ORDERS: CopyState(
        after=(42,),
        upto=(99,),
        reads=6,
        rows=420,
        mode=CopyMode.REPAIR,
        phase=Phase.EXTRAS,
        limit=1000,
        estimate=5000,
        since=Lsn(2, 40, 4, 0),
        keyless=True,
        settled=5,
        ahead=True,
        parts=2,
        row_bytes=88,
        waits=True,
    ),
    LINES: CopyState(),
}
STATE = PlanState(AT, COPY, held_at({NEW: Lsn(2, 41, 4, 0), LINES: Lsn(2, 40, 9, 0)}, AT))
EARLIER = PlanState(Lsn(2, 40, 4, 0), held=held_at({NEW: Lsn(2, 39, 4, 0)}, Lsn(2, 40, 4, 0)))
CHECKPOINT = Checkpoint(
    task=TASK,
    source=SOURCE,
    worker=0,
    batch=17,
    lsn=AT,
    gtid="0-1-88",
    position="bin.000041:1188",
    epoch=7,
    copy=STATE.copy_json(run=3, dealing="0123456789abcdef", copied_at=EARLIER),
)


def rows_now() -> dict[str, list[dict[str, Any]]]:
    """Returns the rows as this version writes them."""
    here = {"task": TASK, "source": SOURCE}
    orders = {"table_schema": ORDERS.schema, "table_name": ORDERS.name}
    return {
        "checkpoint": [
            here
            | {"worker": 0, "batch": 17, "lsn": str(AT), "gtid": "0-1-88", "log_position": "bin.000041:1188"}
            | {"epoch": 7, "copy_progress": written_progress(CHECKPOINT)}
        ],
        "structure": [
            {"task": TASK, "source": text, **orders, "lsn": str(AT), "structure": json.dumps(TABLE.to_json())}
            for text in KEYS
        ],
        "ddl_journal": [
            here
            | {"lsn": str(AT), "statement": JOURNAL.statement, "rendered": json.dumps(JOURNAL.rendered), "step": 1}
            | {"before_change": json.dumps(dict(JOURNAL.before)), "state": "intent", "epoch": 7}
        ],
        "ddl_order": [
            here
            | {"lsn": str(AT), "kind": "replace", "statements": json.dumps(ORDER.statements)}
            | {"number": 3, "taken": 1}
        ],
        "shadow": [here | {"table_schema": NEW.schema, "table_name": NEW.name, "about": json.dumps(SHADOW.to_json())}],
        "note": [{"task": TASK, "source": "*- s", **orders, "told": "a note: é"}],
        "reread": [here | orders | {"lsn": str(AT), "row_keys": "keys"}],
        "safe_range": [here | {"lsn": str(AT)}],
        "cutover": [{"task": TASK, "about": CUTOVER.dumps()}],
        "range_owner": [{"range_key": OWNER.id, "about": OWNER.dumps()}],
    }


@pytest.fixture(scope="module")
def rows() -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = json.loads(RECORDED.read_text("utf-8"))
    return found


def test_this_version_writes_the_same_rows(rows: Mapping[str, Any]) -> None:
    now = rows_now()
    for table, recorded in rows.items():
        assert now[table] == recorded, table


def test_the_texts_in_the_rows_are_read_as_they_were_written(rows: Mapping[str, Any]) -> None:
    texts = {table: found[0] for table, found in rows.items()}
    assert Table.from_json(json.loads(texts["structure"]["structure"])).to_json() == TABLE.to_json()
    assert Shadow.from_json(json.loads(texts["shadow"]["about"])) == SHADOW
    assert Cutover.loads(texts["cutover"]["about"]) == CUTOVER
    assert RangeOwner.loads(texts["range_owner"]["about"]) == OWNER
    assert texts["range_owner"]["range_key"] == OWNER.id


def test_the_servers_of_a_cutover_are_read_as_they_were_written() -> None:
    """The first version has not recorded them, and a later version may record more about each."""
    servers = {"s": CutoverServer("db1:3306", "mysql 7d3c")}
    text = replace(CUTOVER, servers=servers).dumps()
    assert Cutover.loads(text).servers == servers
    assert Cutover.loads(text.replace('"address"', '"more": 1, "address"')).servers == servers


def test_the_ends_of_the_logs_at_a_cutover_are_read_as_they_were_written() -> None:
    """The first version has not recorded them."""
    recorded = replace(CUTOVER, log_ends={"s": "bin.000042:1337"})
    assert Cutover.loads(recorded.dumps()) == recorded


def test_the_progress_in_a_checkpoint_is_read_as_it_was_written(rows: Mapping[str, Any]) -> None:
    (row,) = rows["checkpoint"]
    text = CHECKPOINT.copy
    stored = read_progress(replace(CHECKPOINT, copy=row["copy_progress"]))
    assert (stored, stored.altered) == (CHECKPOINT, "")
    assert PlanState.from_checkpoint(Lsn.parse(row["lsn"]), text) == STATE
    assert (run_of(text), dealing_of(text), copied_at(text)) == (3, "0123456789abcdef", EARLIER)


def test_a_request_to_the_copy_keeps_its_form() -> None:
    recorded = {
        "table": ["shop", "lines é"],
        "number": 5,
        "after": [7, "a"],
        "upto": [900, "z"],
        "limit": 20000,
        "parts": 3,
        "phase": "extras",
        "way": "own",
        "whole": False,
        "waits": True,
    }
    assert ChunkRequest.from_json(recorded) == REQUEST
    assert json.loads(json.dumps(REQUEST.to_json())) == recorded


@pytest.mark.parametrize("text", KEYS)
def test_a_key_of_a_record_is_the_same_text(text: str) -> None:
    assert record_key(text) == KEYS[text]
    assert record_text(KEYS[text]) == text


@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_a_target_with_the_rows_is_read_as_it_was_written(
    kind: str, rows: Mapping[str, Any], run_sql: Callable[..., Any], request: pytest.FixtureRequest
) -> None:
    server = request.getfixturevalue(kind)
    settings = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
    of_task = [table for table in rows if table != "range_owner"]
    with closing((PostgresTarget if kind == "postgres" else MySqlTarget)(**settings).connect()) as session:
        session.meta.prepare()
        for table in of_task:
            run_sql(server, f"DELETE FROM pidts_meta.{table} WHERE task = %s", TASK)
            for row in rows[table]:
                places = ", ".join(["%s"] * len(row))
                run_sql(server, f"INSERT INTO pidts_meta.{table} ({', '.join(row)}) VALUES ({places})", *row.values())
        meta = session.meta
        (checkpoint,) = meta.checkpoints.read(TASK, SOURCE)
        assert (checkpoint, checkpoint.altered) == (CHECKPOINT, "")
        assert {text: meta.structures.load(TASK, key) for text, key in KEYS.items()} == {
            text: {ORDERS: TABLE} for text in KEYS
        }
        assert meta.journal.read(TASK, SOURCE, AT) == JOURNAL
        assert meta.ddl_commands.read(TASK, SOURCE) == [ORDER]
        assert meta.shadows.load(TASK, SOURCE) == {NEW: SHADOW}
        assert meta.notes.read(TASK, RemainingRowsKey("s"), ORDERS) == "a note: é"
        assert meta.rereads.read(TASK, SOURCE, ORDERS, Lsn(0, 0, 0), 9) == [(AT, "keys")]
        assert meta.safe_range.read(TASK, SOURCE) == AT
        assert meta.cutovers.read(TASK) == CUTOVER


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(rows_now(), indent=1, ensure_ascii=False) + "\n", "utf-8")
