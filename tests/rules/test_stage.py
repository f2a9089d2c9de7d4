"""A task's rules convert changes, copied rows and structures."""

from __future__ import annotations

import pickle
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from pidts.model import (
    ChangeBatch,
    Column,
    ColumnType,
    Halted,
    Key,
    Kind,
    Lsn,
    Op,
    Table,
    TableName,
    change_schema,
)
from pidts.reduce import with_whole_keys
from pidts.reduce.column_presence import column_presence
from pidts.rules import (
    ColumnMapping,
    EventFilter,
    ExpressionFilter,
    ExpressionRule,
    Extract,
    FilterRule,
    RouteRule,
    Routes,
    Rules,
)

Row = dict[str, Any]
Change = tuple[Op, Row | None, Row | None, bytes | None]
N, U, D = Op.INSERT, Op.UPDATE, Op.DELETE
NAME = TableName("shop_1", "t_7")
TEXT = ColumnType(Kind.VARCHAR, length=9, charset="utf8mb4", collation="utf8mb4_bin")


def structure(width: int = 2) -> Table:
    rest = (Column(f"c{number}", TEXT) for number in range(1, width))
    columns = (Column("id", ColumnType(Kind.BIGINT), nullable=False), *rest)
    return Table(NAME, columns, (Key("PRIMARY", ("id",), unique=True, primary=True),))


def batch(table: Table, *changes: Change) -> ChangeBatch:
    lsns = [Lsn(0, 1, 100, row).to_bytes() for row in range(len(changes))]
    values = [lsns, *([change[place] for change in changes] for place in range(4))]
    arrays = [pa.array(column, field.type) for column, field in zip(values, change_schema(table), strict=True)]
    return ChangeBatch.of(table, *arrays)


def images_of(changes: ChangeBatch | None) -> list[tuple[Any, ...]]:
    """Returns the before and after images of the changes."""
    if changes is None:
        return []
    rows = [row.values() for row in changes.rows.to_pylist()]
    return [(before, after) for _, _, before, after, _ in rows]


T = structure()
BATCH = batch(
    T,
    (N, None, {"id": 1, "c1": "a"}, None),
    (U, {"id": 1, "c1": "a"}, {"id": 1, "c1": None}, None),
    (D, {"id": 1, "c1": None}, None, None),
)
ROUTE = RouteRule("shop_*", "t_*", "shop", "t", Extract("_(.*)", "of_table"), None, Extract("(.*)", "of_source"))
ROUTED = Rules(routes=Routes((ROUTE,), "s-1"))


def test_without_rules_everything_stays_the_same_object() -> None:
    rows = pa.table([[1], ["a"]], schema=T.arrow)
    for rules in (Rules(), replace(ROUTED, routes=Routes((RouteRule("crm", "", "x"),)))):
        assert rules.target_table(T) is T
        assert rules.target_name(NAME) is NAME
        assert rules.upstream(T) is None
        assert rules.changes(BATCH) is BATCH
        assert rules.rows(T, rows) is rows


def test_a_renamed_table_keeps_its_rows_where_they_are() -> None:
    rules = Rules(routes=Routes((RouteRule("shop_*", "", "shop"),)))
    rows = pa.table([[1], ["a"]], schema=T.arrow)
    assert rules.target_table(T) == replace(T, name=TableName("shop", "t_7"))
    assert rules.upstream(T) == NAME
    assert rules.rows(T, rows) is rows
    found = rules.changes(BATCH)
    assert found is not None
    assert (found.table.name, found.upstream, found.origin) == (TableName("shop", "t_7"), NAME, NAME)
    assert found.rows == BATCH.rows
    assert found.rows["after"].buffers()[-1].address == BATCH.rows["after"].buffers()[-1].address


def test_extracted_columns_are_in_the_structure_and_in_both_images() -> None:
    target_table = ROUTED.target_table(T)
    assert target_table.name == TableName("shop", "t")
    assert target_table.keys == T.keys
    assert [(c.name, c.type.kind, c.nullable, c.default) for c in target_table.columns[2:]] == [
        ("of_table", Kind.VARCHAR, True, None),
        ("of_source", Kind.VARCHAR, True, None),
    ]
    found = ROUTED.changes(BATCH)
    assert found is not None
    assert (found.table, found.upstream, found.is_partial) == (target_table, NAME, False)
    more = {"of_table": "7", "of_source": "s-1"}
    one, other = {"id": 1, "c1": "a", **more}, {"id": 1, "c1": None, **more}
    assert images_of(found) == [(None, one), (one, other), (other, None)]
    assert found.rows["lsn"] == BATCH.rows["lsn"]


def test_a_copied_row_is_what_its_insert_would_be() -> None:
    rows = pa.concat_tables(pa.table([[n], [value]], schema=T.arrow) for n, value in enumerate(["a", None, "c"]))
    inserted = ROUTED.changes(batch(T, *((N, None, row, None) for row in rows.to_pylist())))
    copied = ROUTED.rows(T, rows)
    assert inserted is not None
    assert copied.schema == inserted.table.arrow
    assert copied.to_pylist() == inserted.rows["after"].to_pylist()
    assert ROUTED.rows(T, rows.slice(0, 0)).schema == copied.schema


def test_an_extracted_column_that_the_table_has_halts() -> None:
    clash = replace(T, columns=(*T.columns, Column("OF_TABLE", ColumnType(Kind.INT))))
    with pytest.raises(Halted, match="of_table") as caught:
        ROUTED.target_table(clash)
    assert (caught.value.code, caught.value.where.table) == ("extracted-column-exists", "shop_1.t_7")


@pytest.mark.parametrize(
    ("action", "events", "left"),
    [
        ("Ignore", ["insert"], [U, D]),
        ("Ignore", ["update", "delete"], [N]),
        ("Ignore", ["all dml"], []),
        ("Ignore", ["all ddl"], [N, U, D]),
        ("Do", ["insert", "update"], [N, U]),
        ("Do", ["all ddl"], []),
        ("Do", ["all"], [N, U, D]),
        ("Error", ["drop table"], [N, U, D]),
    ],
)
def test_the_event_filter_drops_by_kind(action: str, events: list[str], left: list[Op]) -> None:
    for schema, kept in (("shop_1", left), ("shop", [N, U, D])):  # The filter has the source's names.
        rules = replace(ROUTED, events=EventFilter((FilterRule(schema, "t_*", tuple(events), (), action),)))
        found = rules.changes(BATCH)
        assert ([] if found is None else found.rows["op"].to_pylist()) == kept


def test_a_refused_change_halts_at_the_first_of_its_kind() -> None:
    rules = Rules(events=EventFilter((FilterRule("*", "", ("update", "delete"), (), "Error"),)))
    with pytest.raises(Halted, match="each update") as caught:
        rules.changes(BATCH)
    assert (caught.value.code, caught.value.where.table) == ("event-refused", "shop_1.t_7")
    assert caught.value.where.position == str(Lsn(0, 1, 100, 1))
    inserts = ChangeBatch(T, BATCH.rows.slice(0, 1))
    assert rules.changes(inserts) is inserts


def test_expressions_see_what_the_source_wrote() -> None:
    rules = replace(
        ROUTED, expressions=ExpressionFilter((ExpressionRule(schema="shop_1", table="t_7", insert="c1 = 'a'"),))
    )
    more = batch(T, *((N, None, {"id": number, "c1": value}, None) for number, value in enumerate(["a", "b", None])))
    found = rules.changes(more)
    assert found is not None
    assert [image["id"] for image in found.rows["after"].to_pylist()] == [1, 2], "what is not TRUE drops nothing"
    assert rules.changes(ChangeBatch(T, BATCH.rows.slice(0, 1))) is None


def test_a_mapping_counts_even_where_it_leaves_the_structure() -> None:
    base = (1 << 59) | (1 << 52) | (7 << 44)
    mapping = ColumnMapping("shop_*", "t_*", "id", "partition id", ("1", "shop", "t", "_"))
    for rules in (Rules(mappings=(mapping,)), replace(ROUTED, mappings=(mapping,))):
        found = rules.changes(BATCH)
        assert found is not None
        sides = [
            [image and image["id"] - base for image in found.rows[side].to_pylist()] for side in ("before", "after")
        ]
        assert sides == [[None, 1, 1], [1, 1, None]]
        assert rules.rows(T, pa.table([[5], ["a"]], schema=T.arrow))["id"].to_pylist() == [base + 5]
    assert Rules(mappings=(mapping,)).target_table(T) is T


def test_the_target_computes_no_column_of_other_values() -> None:
    """A mapped column has other values on the target.

    If a target table has several shards, or the task several sources, each source table may compute the column by
    another expression.
    """
    column = Column("next", ColumnType(Kind.BIGINT), generated=True, computed="(`id` + 1) STORED")
    other = Column("twice", TEXT, generated=True, computed="(concat(`c1`,`c1`)) VIRTUAL")
    table = replace(T, columns=(*T.columns, column, other))
    mapping = ColumnMapping("shop_*", "t_*", "id", "partition id", ("1", "shop", "t", "_"))
    renaming = RouteRule("shop_1", "t_7", "shop", "only")

    def found(rules: Rules) -> list[str]:
        return [one.computed for one in rules.target_table(table).columns[-2:]]

    assert found(Rules()) == [column.computed, other.computed]
    assert found(Rules(several=True)) == ["", ""]
    assert found(Rules(mappings=(mapping,))) == ["", other.computed]
    assert found(Rules(routes=Routes((renaming,), "s"))) == [column.computed, other.computed]
    assert found(Rules(routes=Routes((RouteRule("shop_*", "t_*", "shop", "t"),), "s"))) == ["", ""]


def test_a_clause_has_the_mapped_column_of_the_target() -> None:
    rules = Rules(mappings=(ColumnMapping("shop_*", "", "c1", "add prefix", ("north-",)),))
    assert rules.mapped_column(T.columns[1], NAME) == rules.target_table(T).columns[1] != T.columns[1]
    assert rules.mapped_column(T.columns[1], TableName("crm", "t")) is T.columns[1]


def test_a_mapped_key_is_another_key() -> None:
    assert Rules().keeps_keys(T)
    for column, keeps in (("id", False), ("c1", True)):
        expression = "add prefix" if keeps else "partition id"
        arguments = ("x",) if keeps else ("1", "", "")
        mapping = ColumnMapping("shop_*", "", column, expression, arguments)
        assert Rules(mappings=(mapping,)).keeps_keys(T) is keeps


@pytest.mark.parametrize(
    ("rules", "drops"),
    [
        (Rules(), False),
        (Rules(events=EventFilter((FilterRule("shop_1", "", ("delete",), (), "Ignore"),))), True),
        (Rules(events=EventFilter((FilterRule("shop_1", "", ("all dml",)),))), False),
        (Rules(events=EventFilter((FilterRule("shop_1", "", ("insert",)),))), True),
        (Rules(events=EventFilter((FilterRule("shop_1", "", ("all ddl",), (), "Ignore"),))), False),
        (Rules(events=EventFilter((FilterRule("shop", "", ("delete",), (), "Ignore"),))), False),
        (Rules(expressions=ExpressionFilter((ExpressionRule(schema="shop_1", table="t_7", delete="c1 = 'a'"),))), True),
        (
            Rules(expressions=ExpressionFilter((ExpressionRule(schema="shop_1", table="t_8", delete="c1 = 'a'"),))),
            False,
        ),
    ],
)
def test_the_tables_with_filtered_changes_are_known(rules: Rules, drops: bool) -> None:
    assert rules.drops(NAME) is drops


def by_events(*events: str, action: str = "Ignore") -> Rules:
    return Rules(events=EventFilter((FilterRule("shop_1", "", events, (), action),)))


def by_values(**expressions: str) -> Rules:
    return Rules(expressions=ExpressionFilter((ExpressionRule(schema="shop_1", table="t_7", **expressions),)))


@pytest.mark.parametrize(
    ("rules", "lacks", "keeps"),
    [
        (Rules(), False, False),
        (by_events("drop table", "truncate table"), False, True),
        (by_events("delete"), False, True),
        (by_values(delete="c1 = 'a'"), False, True),
        (by_events("all dml", action="Do"), False, True),
        (by_events("insert"), True, True),
        (by_events("update"), True, True),
        (by_values(insert="c1 = 'a'"), True, True),
        (by_values(update_old="c1 = 'a'"), True, True),
        (by_events("add column"), False, False),
    ],
)
def test_which_rows_may_differ_on_purpose(rules: Rules, lacks: bool, keeps: bool) -> None:
    assert (rules.keeps_away(NAME), rules.keeps_rows(NAME)) == (lacks, keeps)


def test_a_table_is_checked_before_its_rows_come() -> None:
    Rules().check(T)
    with pytest.raises(Halted, match="of_table") as caught:
        ROUTED.check(replace(T, columns=(*T.columns, Column("of_table", ColumnType(Kind.INT)))))
    assert (caught.value.code, caught.value.where.table) == ("extracted-column-exists", "shop_1.t_7")


def test_rules_travel_to_other_processes() -> None:
    rules = replace(ROUTED, events=EventFilter((FilterRule("a", "", ("delete",), (), "Ignore"),)))
    again = pickle.loads(pickle.dumps(rules))
    assert again == rules
    assert images_of(again.changes(BATCH)) == images_of(rules.changes(BATCH))


@dataclass(frozen=True, slots=True)
class Every(ExpressionFilter):
    """A filter that drops rows with an even key.

    If the key is divisible by three, the condition is NULL and drops nothing.
    """

    def concerns(self, name: TableName) -> bool:
        return True

    def dropped(
        self, batch: ChangeBatch, besides: Collection[Op] = (), times: pa.Array | None = None
    ) -> pa.BooleanArray:
        image = pc.if_else(batch.rows["after"].is_valid(), batch.rows["after"], batch.rows["before"])
        ids = pc.struct_field(image, "id")
        none = pa.scalar(None, pa.bool_())
        return pc.if_else(pc.equal(ids, pc.multiply(pc.divide(ids, 3), 3)), none, _even(ids))


def _even(ids: pa.Array) -> pa.Array:
    return pc.equal(pc.bit_wise_and(ids, 1), 0)


@st.composite
def histories(draw: st.DrawFn) -> tuple[Table, list[Change]]:
    """Returns random changes of a table with any number of columns, logged in full or in part.

    Columns that an image lacks are NULL in it.
    """
    table = structure(draw(st.integers(1, 18)))
    names = table.arrow.names
    changes = []
    for number in range(draw(st.integers(0, 12))):
        op = draw(st.sampled_from([N, U, D]))
        sides: list[Row | None] = []
        bitmaps: list[bytes] | None = [] if draw(st.booleans()) else None
        for has in (op is not N, op is not D):
            held = (1 << len(names)) - 1 if bitmaps is None else draw(st.integers(0, (1 << len(names)) - 1)) | 1
            if has and bitmaps is not None:
                bitmaps.append(held.to_bytes((len(names) + 7) // 8, "little"))
            values = [number, *(draw(st.sampled_from(["x", "", None])) for _ in names[1:])]
            row = {
                name: value if held >> at & 1 else None
                for at, (name, value) in enumerate(zip(names, values, strict=True))
            }
            sides.append(row if has else None)
        changes.append((op, *sides, None if bitmaps is None else b"".join(bitmaps)))
    return table, changes


EXTRACTS = st.one_of(st.none(), st.just("_(.*)"))


@settings(max_examples=examples(60), deadline=None)
@given(
    histories(), st.tuples(EXTRACTS, EXTRACTS, EXTRACTS), st.sets(st.sampled_from([N, U, D])), st.booleans(), st.data()
)
def test_a_batch_comes_out_as_each_of_its_changes_would(
    made: tuple[Table, list[Change]],
    extracts: Sequence[str | None],
    skipped: set[Op],
    filtered: bool,
    data: st.DataObject,
) -> None:
    table, changes = made
    rule = RouteRule(
        "shop_*", "t_*", "shop", "t", *(text and Extract(text, f"x{n}") for n, text in enumerate(extracts))
    )
    kinds = tuple(sorted(op.name.lower() for op in skipped))
    rules = Rules(
        events=EventFilter((FilterRule("shop_1", "t_7", kinds, (), "Ignore"),) if kinds else ()),
        expressions=Every() if filtered else ExpressionFilter(),
        routes=Routes((rule,), "my_source"),
    )
    more = {f"x{n}": value for n, value in enumerate(["7", "1", "source"]) if extracts[n]}

    def dropped(op: Op, before: Row | None, after: Row | None) -> bool:
        key = (after or before or {})["id"]
        return op in skipped or (filtered and key % 3 != 0 and key % 2 == 0)

    left = [number for number, (op, before, after, _) in enumerate(changes) if not dropped(op, before, after)]
    whole = batch(table, *changes)
    first = data.draw(st.integers(0, len(changes)))  # The rows of a batch may be a slice of a longer Arrow array.
    cut = [replace(whole, rows=whole.rows.slice(0, first)), replace(whole, rows=whole.rows.slice(first))]
    found = [part for part in map(rules.changes, cut) if part is not None]
    assert [image for part in found for image in images_of(part)] == [
        tuple(row and {**row, **more} for row in changes[number][1:3]) for number in left
    ]
    assert all(part.table == rules.target_table(table) and part.upstream == NAME for part in found)
    before, after = column_presence(whole), [column_presence(part) for part in found]
    for side in ("before", "after"):
        has = getattr(before, f"has_{side}")[left]
        was = getattr(before, side)[left]
        now = [row for part in after for row in getattr(part, side).tolist()]
        assert now == [[*old.tolist(), *[bool(is_there)] * len(more)] for old, is_there in zip(was, has, strict=True)]
    for part, rest in zip(map(rules.changes, map(with_whole_keys, cut)), map(rules.changes, cut), strict=True):
        assert images_of(part) == images_of(rest and with_whole_keys(rest)), (
            "keys may be filled in before or behind the rules"
        )
