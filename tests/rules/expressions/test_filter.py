import pickle
from dataclasses import replace

import pyarrow as pa
import pytest

from pidts.model import Column, ColumnType, ConfigError, Halted, Kind, Op, Table, TableName
from pidts.rules.expressions import ExpressionFilter, ExpressionRule

from .orders import ROW, TABLE, batch, rule

OTHER = {**ROW, "id": 8, "name": "Bob", "price": None}


def ask(expressions, changes):
    found = expressions.dropped(changes)
    return found if found is None else found.to_pylist()


def test_without_rules_nothing_is_asked():
    changes = batch(Op.INSERT, [None], [ROW])
    assert ExpressionFilter().dropped(changes) is None
    assert ExpressionFilter((rule(delete="1"),)).dropped(changes) is None
    elsewhere = ExpressionRule(schema="shop", table="others", insert="1")
    assert ExpressionFilter((elsewhere,)).dropped(changes) is None


def test_names_are_compared_without_case():
    expressions = ExpressionFilter((ExpressionRule(schema="SHOP", table="Orders", insert="ID = 7 AND orders.Id = 7"),))
    assert ask(expressions, batch(Op.INSERT, [None, None], [ROW, OTHER])) == [True, False]
    assert expressions.concerns(TableName("shop", "orders"))
    assert not expressions.concerns(TableName("shop", "order"))


def test_only_true_drops_and_null_does_not():
    changes = batch(Op.DELETE, [ROW, OTHER], [None, None])
    assert ask(ExpressionFilter((rule(delete="price > 9"),)), changes) == [True, False]
    assert ask(ExpressionFilter((rule(delete="NOT price > 9"),)), changes) == [False, False]
    assert ask(ExpressionFilter((rule(delete="NULL"),)), changes) == [False, False]
    assert ask(ExpressionFilter((rule(delete="1 = 1"),)), changes) == [True, True]


def test_any_rule_may_drop():
    rules = (rule(insert="id = 7"), rule(insert="name = 'bob'"), rule(delete="1"))
    assert ask(ExpressionFilter(rules), batch(Op.INSERT, [None] * 3, [ROW, OTHER, {**ROW, "id": 9}])) == [
        True,
        True,
        False,
    ]


def test_an_update_is_dropped_where_both_expressions_are_true():
    changes = batch(Op.UPDATE, [ROW, OTHER, ROW], [OTHER, ROW, ROW])
    assert ask(ExpressionFilter((rule(update_old="id = 7"),)), changes) == [True, False, True]
    assert ask(ExpressionFilter((rule(update_new="id = 7"),)), changes) == [False, True, True]
    assert ask(ExpressionFilter((rule(update_old="id = 7", update_new="id = 7"),)), changes) == [False, False, True]


def test_ops_besides_each_other():
    changes = batch(Op.INSERT, [None, ROW, ROW], [ROW, None, OTHER])
    ops = changes.rows.set_column(1, changes.rows.schema.field(1), changes.rows["op"].__class__.from_buffers(
        changes.rows["op"].type, 3, [None, __import__("pyarrow").py_buffer(bytes([Op.INSERT, Op.DELETE, Op.UPDATE]))]
    ))  # fmt: skip
    mixed = type(changes)(TABLE, ops)
    assert ask(ExpressionFilter((rule(delete="id = 7"),)), mixed) == [False, True, False]
    assert ask(ExpressionFilter((rule(update_new="id = 8"), rule(insert="1"))), mixed) == [True, False, True]


@pytest.mark.parametrize(
    "text",
    [
        "name = 'ada'",
        "name LIKE 'B%'",
        "price > 9",
        "wide * 2 = 3",
        "day < '2024-03-01' AND id = 8",
        "at > '2024-01-01'",
    ],
)
@pytest.mark.parametrize("ops", ["DIID", "IDI", "DIDI", "UII", "IIU"])
def test_rows_between_others_give_the_same_result(text, ops):
    alone = iter(ask(ExpressionFilter((rule(insert=text),)), batch(Op.INSERT, [None] * 2, [ROW, OTHER])))
    rows = iter([ROW, OTHER])
    kinds = [{"I": Op.INSERT, "U": Op.UPDATE, "D": Op.DELETE}[op] for op in ops]
    befores = [None if kind is Op.INSERT else ROW for kind in kinds]
    afters = [next(rows) if kind is Op.INSERT else OTHER if kind is Op.UPDATE else None for kind in kinds]
    of_one = batch(Op.INSERT, befores, afters)
    changes = replace(of_one, rows=of_one.rows.set_column(1, "op", pa.array(map(int, kinds), pa.int8())))
    expected = [next(alone) if kind is Op.INSERT else False for kind in kinds]
    assert ask(ExpressionFilter((rule(insert=text),)), changes) == expected


def test_rows_of_a_copy_are_never_dropped():
    assert ExpressionFilter((rule(insert="1"),)).dropped(batch(Op.COPY, [None], [ROW])) is None


def test_an_unknown_column_is_false_whatever_is_around_it():
    changes = batch(Op.INSERT, [None], [ROW])
    assert ask(ExpressionFilter((rule(insert="id = 7 OR gone = 1"),)), changes) == [False]
    assert ask(ExpressionFilter((rule(insert="gone IS NULL"), rule(insert="id = 7"))), changes) == [True]
    both = rule(update_old="gone = 1", update_new="1")
    assert ask(ExpressionFilter((both,)), batch(Op.UPDATE, [ROW], [ROW])) == [False]


def test_types_are_those_of_the_table_at_that_time():
    expressions = ExpressionFilter((rule(insert="id = '7'"),))
    assert ask(expressions, batch(Op.INSERT, [None], [ROW])) == [True]
    later = Table(TABLE.name, (Column("id", ColumnType(Kind.VARCHAR, charset="utf8mb4", collation="utf8mb4_bin")),))
    assert ask(expressions, batch(Op.INSERT, [None, None], [{"id": "7"}, {"id": "07"}], table=later)) == [True, False]


@pytest.mark.parametrize("texts", [{}, {"insert": "1", "delete": "1"}, {"update_old": "1", "insert": "1"}])
def test_a_rule_is_for_one_kind_of_changes(texts):
    with pytest.raises(ConfigError, match="bad-expression"):
        rule(**texts)


def test_a_bad_expression_is_refused_with_its_place():
    with pytest.raises(ConfigError, match=r"bad-expression.*'id =='.*task.yaml:7") as refused:
        rule(insert="id ==", file="task.yaml", line=7)
    assert refused.value.where.table == "shop.orders"


def test_long_lists_are_no_matter_and_deep_nesting_is_refused():
    changes = batch(Op.INSERT, [None], [ROW])
    assert ask(ExpressionFilter((rule(insert=" OR ".join(f"id = {n}" for n in range(3000))),)), changes) == [True]
    assert ask(ExpressionFilter((rule(insert=f"id IN ({', '.join(map(str, range(3000)))})"),)), changes) == [True]
    for text in ("(" * 3000 + "id" + ")" * 3000, "NOT " * 5000 + "id", "+".join(["id"] * 3000)):
        with pytest.raises(ConfigError, match="nested too deeply"):
            ask(ExpressionFilter((rule(insert=text),)), changes)


def test_columns_of_other_tables_are_refused():
    for name in ("others.id", "crm.orders.id", "shop.others.id"):
        with pytest.raises(ConfigError, match="another table"):
            rule(insert=f"{name} = 1")
    rule(insert="shop.orders.id = 1")


@pytest.mark.parametrize(
    "text", ["SYSDATE() > '2024-01-01'", "RAND() < 0.5", "id REGEXP '1'", "JSON_VALUE(doc, '$') = 1"]
)
def test_functions_that_we_do_not_have_are_refused_at_once(text):
    with pytest.raises(ConfigError, match="expression-not-supported"):
        rule(insert=text)


def test_all_expressions_that_are_refused_are_named_at_once():
    with pytest.raises(ConfigError) as refused:
        rule(update_old="RAND() < 0.5 AND UUID() = 'a'", update_new="SYSDATE() > at")
    assert all(name in refused.value.what for name in ("RAND()", "UUID()", "SYSDATE() is not known"))
    found = ExpressionFilter((rule(insert="doc = 1"), rule(delete="name"), rule(insert="id = 1")))
    with pytest.raises(ConfigError) as refused:
        found.check(TABLE)
    assert all(text in refused.value.what for text in ("'doc = 1'", "'name'"))


def test_a_time_zone_must_be_one():
    ExpressionFilter((rule(insert="1"),), "Asia/Shanghai")
    for zone in ("+99:00", "Nowhere/City", "+x"):
        with pytest.raises(ConfigError, match="time zone"):
            ExpressionFilter((rule(insert="1"),), zone)


def test_a_filter_travels():
    expressions = ExpressionFilter((rule(insert="name LIKE 'a%'"),))
    again = pickle.loads(pickle.dumps(expressions))
    assert again == expressions
    assert ask(again, batch(Op.INSERT, [None, None], [ROW, OTHER])) == [True, False]


COLUMNS = len(TABLE.columns)
WIDTH = (COLUMNS + 7) // 8


def bits(*names):
    places = [TABLE.arrow.get_field_index(name) for name in names]
    return sum(1 << place for place in places).to_bytes(WIDTH, "little")


def test_values_that_an_update_omits_are_in_the_before_image():
    found = bits("id", "big5", "name") + bits("id", "price")
    before, after = {"id": 7, "name": "Ada", "big5": "a"}, {"id": 7, "price": 1}
    changes = batch(Op.UPDATE, [before], [after], [found])
    assert ask(ExpressionFilter((rule(update_new="name = 'ada' AND price = 1 AND big5 IS NOT NULL"),)), changes) == [
        True
    ]
    assert ask(ExpressionFilter((rule(update_old="name = 'ada'"),)), changes) == [True]


def test_a_null_in_the_log_is_not_looked_up():
    changes = batch(Op.UPDATE, [{"id": 7, "name": "Ada"}], [{"name": None}], [bits("id", "name") + bits("name")])
    assert ask(ExpressionFilter((rule(update_new="name IS NULL"),)), changes) == [True]


@pytest.mark.parametrize(
    ("op", "texts", "before", "after", "expected"),
    [
        (Op.UPDATE, {"update_old": "price = 1"}, {"id": 7}, {"price": 1}, bits("id") + bits("price")),
        (Op.UPDATE, {"update_new": "name = 'a'"}, {"id": 7}, {"price": 1}, bits("id") + bits("price")),
        (Op.DELETE, {"delete": "name = 'a'"}, {"id": 7}, None, bits("id")),
        (Op.INSERT, {"insert": "big5 IS NULL"}, None, {"id": 7}, bits("id")),
    ],
)
def test_values_that_no_image_has_halt(op, texts, before, after, expected):
    with pytest.raises(Halted, match="partial-row-image"):
        ExpressionFilter((rule(**texts),)).dropped(batch(op, [before], [after], [expected]))
    ExpressionFilter(
        (rule(**{name: "id = 7" for name in texts if name != "update_new"} or {"update_new": "price = 1"}),)
    ).dropped(batch(op, [before], [after], [expected]))
