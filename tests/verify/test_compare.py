"""A comparison names and counts the rows that differ. A change that the target does not have yet is not a difference, and
hides none.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from pidts.cli.findings import show_report
from pidts.model import Column, ColumnType, Key, Kind, Table, TableName, calendar
from pidts.verify import (
    EXACT,
    POSTGRES,
    Callbacks,
    CompareSpans,
    ComparisonInterrupted,
    ComparisonState,
    DifferenceKind,
    KeySpan,
    Normals,
    Order,
    Report,
    SpanComparison,
    SpanResult,
    TableReport,
    compare,
    joined,
)
from pidts.verify.keys import upto
from pidts.verify.match import Matcher
from pidts.verify.settle import settle

from .compared_table import ComparedTable, Row, Rows, Target, Traffic, arrow, merged

INT = ColumnType(Kind.INT)
TEXT = ColumnType(Kind.VARCHAR, length=20)


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, rows in {"_SPAN_ROWS": 200, "_LEAF_ROWS": 10, "KEY_ROWS": 100}.items():
        monkeypatch.setattr(f"pidts.verify.spans.{name}", rows)
    monkeypatch.setattr("pidts.verify.key_walk.KEY_ROWS", 100)
    monkeypatch.setattr("pidts.verify.settle._LONGEST_PAUSE", 0.0)
    monkeypatch.setattr("pidts.verify.settle._FIRST_PAUSE", 0.0)
    monkeypatch.setattr("pidts.verify.keyless._PAUSE", 0.0)


def table(*types: ColumnType, key: int = 1) -> Table:
    names = "abcdefgh"[: len(types)]
    columns = tuple(Column(name, kind) for name, kind in zip(names, types, strict=True))
    keys = (Key("PRIMARY", tuple(names[:key]), unique=True, primary=True),) if key else ()
    return Table(TableName("d", "t"), columns, keys)


def compared(source: list[Row], target: list[Row], *types: ColumnType, **more: Any) -> ComparedTable:
    kinds = types or (INT, INT)
    return ComparedTable(table(*kinds), {row[0]: row for row in source}, {row[0]: row for row in target}, **more)


def run(compared: ComparedTable, **options: Any) -> Report:
    source, catch_up = merged(compared)
    return compare(source, Target(compared), catch_up, **options)


class Elsewhere:
    """Compares each span like another process, which has no information about the other spans."""

    def __init__(self, compared: ComparedTable) -> None:
        self._compared, self.spans = compared, 0

    def __call__(self, table: TableName, signature: str, look: Callable[[], None]) -> CompareSpans:
        source, _ = merged(self._compared)
        (found,) = source.tables()
        assert (found.name, source.signature(found)) == (table, signature)

        def compare_spans(spans: Iterable[KeySpan]) -> Generator[SpanResult, None, None]:
            for span in spans:
                look()
                self.spans += 1
                with ThreadPoolExecutor(1) as pool:
                    one = SpanComparison(source, Target(self._compared), Matcher(found, EXACT), pool, 16)
                    yield joined(list(one([span])))

        return compare_spans


def names(report: Report) -> set[str]:
    return set(map(str, report.examples))


PLACES = [(order, sums) for order in Order for sums in (True, False)]


@pytest.mark.parametrize(("order", "sums"), PLACES)
def test_missing_extra_and_different_rows_are_named_whatever_the_target_can_show(order: Order, *, sums: bool) -> None:
    rows: list[Row] = [(n, n) for n in range(10, 610)]
    target = [(n, n + (n == 410)) for n, _ in rows if n != 77]
    found = run(compared(rows, [(3, 3), *target, (900, 1)], order=order, sums=sums))
    (numbers,) = found.tables
    assert (numbers.rows, numbers.missing, numbers.extra, numbers.different) == (600, 1, 2, 1)
    assert names(found) == {
        "d.t (a=77): missing",
        "d.t (a=410): different in b",
        "d.t (a=3): extra",
        "d.t (a=900): extra",
    }


@pytest.mark.parametrize("order", Order)
def test_other_processes_find_the_same_in_the_same_order(order: Order, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pidts.verify.spans._PARTS", 1)
    monkeypatch.setattr(sys.modules["pidts.verify.compare"], "_MANY_ROWS", 600)
    rows: list[Row] = [(n, n) for n in range(10, 610)]
    target = [(3, 3), *((n, n + (n == 410)) for n, _ in rows if n not in {77, 500}), (501, 1), (900, 1)]
    found = run(compared(rows, target, order=order, sums=False))
    other = compared(rows, target, order=order, sums=False)
    elsewhere = Elsewhere(other)
    assert run(other, elsewhere=elsewhere) == found
    assert elsewhere.spans == 6
    # With few rows, or if the target computes sums, this process compares.
    for of_this_process in (compared(rows[1:], target, sums=False), compared(rows, target)):
        unused = Elsewhere(of_this_process)
        run(of_this_process, elsewhere=unused)
        assert unused.spans == 0


@pytest.mark.parametrize("runs", [True, False])
def test_locked_rows_that_are_not_equal_are_counted_apart(*, runs: bool) -> None:
    rows: list[Row] = [(n, n) for n in range(10)]
    target: list[Row] = [(0, 0), (1, 7), *rows[3:5], (5, 7), *rows[6:], (11, 1), (12, 1)]
    found = run(compared(rows, target, locked={0, 1, 2, 11}, runs=runs, knows_log=True))
    (numbers,) = found.tables
    assert (numbers.missing, numbers.extra, numbers.different, numbers.locked) == (0, 1, 1, 3)
    assert {"d.t (a=1): locked in b", "d.t (a=2): locked", "d.t (a=11): locked"} < names(found)
    found = run(compared(rows, [(0, 1), *rows[1:]], locked={0}))
    assert not found.equal
    assert found.waits


def test_a_row_after_the_last_one_of_the_source_is_counted_once() -> None:
    rows: list[Row] = [(n, n) for n in range(15)]
    assert run(compared(rows, [*rows, (900, 1)], sums=False)).tables[0].extra == 1


@pytest.mark.parametrize("order", Order)
def test_two_empty_sides_are_equal_and_an_empty_source_shows_all_extra_rows(order: Order) -> None:
    assert run(compared([], [], order=order)).equal
    assert run(compared([], [(1, 1), (2, 2)], order=order)).tables[0].extra == 2


def test_equal_sums_are_enough_and_no_row_is_read() -> None:
    rows: list[Row] = [(n, n) for n in range(500)]
    quiet = compared(rows, rows)
    assert run(quiet).equal
    assert quiet.largest == 0


def test_only_the_rows_of_unequal_sums_are_read_and_few_at_a_time() -> None:
    rows: list[Row] = [(n, n) for n in range(500)]
    quiet = compared(rows, [row for row in rows if row[0] != 300])
    assert run(quiet).tables[0].missing == 1
    assert quiet.questions.count("source.rows") == 1
    assert quiet.largest <= 10


def test_examples_are_capped_and_numbers_are_not() -> None:
    found = run(compared([(n, 0) for n in range(50)], [(n, 1) for n in range(25, 60)]), examples=7)
    (numbers,) = found.tables
    assert (numbers.missing, numbers.different, numbers.extra, len(found.examples)) == (25, 25, 10, 7)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(("order", "knows_log"), [(Order.SAME, True), (Order.OTHER, True), (Order.LIKELY, False)])
def test_no_false_difference_and_no_loss_overlooked_while_rows_toggle(
    seed: int, order: Order, *, knows_log: bool
) -> None:
    rows: list[Row] = [(n, 0) for n in range(400)]
    traffic = Traffic(seed, range(0, 400, 3))
    busy = compared(rows, rows, tick=traffic, order=order, knows_log=knows_log)
    planted = {1: None, 100: (100, 7), 250: (250, 7), 3: (3, 9), 33: None, 500: (500, 1)}
    for key, row in planted.items():
        traffic.plant(busy, key, row)
    found = run(busy)
    reported = {example.key["a"] for example in found.examples if example.kind is not DifferenceKind.UNSETTLED}
    assert reported <= set(planted)
    assert traffic.wrong <= {example.key["a"] for example in found.examples}
    assert {1, 100, 250, 500} <= reported


@pytest.mark.parametrize("knows_log", [True, False])
def test_rows_that_become_what_they_were_again_and_again_are_no_difference(*, knows_log: bool) -> None:
    for seed in range(15):
        rows: list[Row] = [(n, 0) for n in range(6)]
        busy = compared(rows, rows, tick=Traffic(seed, range(6), lag=4, writes=5), knows_log=knows_log)
        assert {example.kind for example in run(busy).examples} <= {DifferenceKind.UNSETTLED}


def test_a_thousand_rows_that_toggle_all_the_time_are_no_difference() -> None:
    """Each reading finds half of the rows changed, and the target at any place of the last changes."""
    keys, dice = range(1000), random.Random(7)
    rows: list[Row] = [(n, 0) for n in keys]

    def tick(busy: ComparedTable) -> None:
        for key in keys:
            if dice.random() < 0.5:
                busy.write(key, (key, 1 - busy.source[key][1]))
        busy.apply(len(busy.log) - dice.randrange(2 * len(keys)))

    busy = compared([*rows, (-1, 0), (-2, 0)], [*rows, (-1, 5)], tick=tick, knows_log=False)
    source, catch_up = merged(busy)
    (table_now,) = source.tables()
    doubtful = pa.table({"a": pa.array([*keys, -1, -2], pa.int32())})
    found = settle(source, Target(busy), catch_up, Matcher(table_now, EXACT), doubtful, len(doubtful), lambda _: False)
    certain = {
        key: kind
        for key, (kind, _) in zip(found.keys.column(0).to_pylist(), found.found, strict=True)
        if kind is not DifferenceKind.UNSETTLED
    }
    assert certain == {-1: DifferenceKind.DIFFERENT, -2: DifferenceKind.MISSING}


def test_a_comparison_waits_for_pending_changes() -> None:
    late = compared([(1, 1)], [(1, 1)])
    late.write(2, (2, 2))
    late.write(1, (1, 5))
    assert run(late).equal
    assert late.applied == 2


def test_a_target_that_does_not_move_leaves_rows_unsettled() -> None:
    late = compared([(1, 1), (3, 3)], [(1, 1), (3, 3)], runs=False)
    late.write(2, (2, 2))
    found = run(late)
    assert (found.equal, found.tables[0].unsettled) == (False, 1)
    assert names(found) == {"d.t (a=2): unsettled"}


def test_no_row_of_a_halted_table_that_is_not_equal_is_reported_as_no_difference(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Row 2 waits for its change. No change of row 3 is pending: another program has changed the row."""
    halted = compared([(1, 1), (3, 3)], [(1, 1), (3, 4)], waits="d.t waits at bin.000001:4: [row-diverged] it differs")
    halted.write(2, (2, 2))
    found = run(halted)
    assert (found.tables[0].waiting, found.differences) == (2, 0)
    assert show_report("task", found, as_json=False) == 5
    shown = capsys.readouterr().out.splitlines()
    assert "  d.t (a=2): not equal, and changes of its table are not applied yet" in shown
    assert "  d.t (a=3): not equal in b, and changes of its table are not applied yet" in shown
    assert shown[-1] == (
        "task: no row is known to differ, but 2 rows are not equal now; their tables have changes that are not "
        "applied yet, which may or may not make the rows equal, 3 rows of 1 table compared"
    )


@pytest.mark.parametrize(
    ("source", "said"),
    [([(1, 1), (2, 2)], "equal, 2 rows"), ([(1, 1)], "1 difference, 1 row"), ([], "2 differences, 0 rows")],
)
def test_the_last_line_counts(source: list[Row], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    show_report("task", run(compared(source, [(1, 1), (2, 2)])), as_json=False)
    assert capsys.readouterr().out.splitlines()[-1] == f"task: {said} of 1 table compared"


def test_the_last_line_counts_tables_with_a_problem_and_leaves_out_those_that_were_not_read(
    capsys: pytest.CaptureFixture[str],
) -> None:
    equal, unread = TableReport(TableName("d", "t"), rows=2), TableReport(TableName("d", "u"), problem="no SELECT")
    show_report("task", Report((equal, unread), ()), as_json=False)
    assert capsys.readouterr().out.splitlines()[-1] == (
        "task: 1 table has a problem (see above), 2 rows of 1 table compared"
    )


def test_equal_rows_need_no_running_task() -> None:
    late = compared([(1, 1)], [(1, 1)], runs=False)
    late.write(9, None)
    assert run(late).equal


def test_a_row_that_changes_all_the_time_is_unsettled_and_named() -> None:
    def tick(compared: ComparedTable) -> None:
        compared.write(1, (1, len(compared.log)))

    restless = compared([(1, -1), (2, 0)], [(1, -2), (2, 0)], tick=tick)
    found = run(restless)
    assert (found.tables[0].unsettled, found.tables[0].differences) == (1, 1)


@dataclass
class Broken:
    """A comparison that is stopped again and again, each time at its first save, and continues from there."""

    memory: ComparisonState = field(default_factory=ComparisonState)
    saves: int = 0
    stop: threading.Event = field(default_factory=threading.Event)

    def save(self, memory: ComparisonState) -> None:
        self.memory = memory
        self.saves += 1
        self.stop.set()

    def run(self, compared: ComparedTable) -> Report:
        while True:
            self.stop.clear()
            try:
                return run(compared, memory=self.memory, callbacks=Callbacks(save=self.save, stop=self.stop))
            except ComparisonInterrupted:
                continue


def test_the_report_of_a_stopped_comparison_has_the_rows_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["pidts.verify.compare"], "_SAVE_SECONDS", -1.0)
    rows: list[Row] = [(n, n) for n in range(700)]
    broken = Broken()
    with pytest.raises(ComparisonInterrupted) as stopped:
        run(compared(rows, rows[1:]), callbacks=Callbacks(save=broken.save, stop=broken.stop))
    (table,) = stopped.value.report.tables
    assert (table.unfinished, table.missing, table.equal) == (True, 1, False)
    assert 0 < table.rows < len(rows)
    assert (stopped.value.report.stopped, stopped.value.report.equal) == (True, False)


@pytest.mark.parametrize("order", Order)
def test_a_comparison_that_is_interrupted_continues_and_finds_the_same(
    order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["pidts.verify.compare"], "_SAVE_SECONDS", -1.0)
    rows: list[Row] = [(n, n) for n in range(700)]
    target = [(n, n + (n % 200 == 5)) for n, _ in rows if n % 300 != 77]
    quiet = compared(rows, [*target, (-1, 0), (999, 0)], order=order)
    broken = Broken()
    found, whole = broken.run(quiet), run(quiet)
    assert broken.saves > 3
    assert found.tables == whole.tables
    assert names(found) == names(whole)
    assert whole.tables[0].rows == 700


@pytest.mark.parametrize("sums", [True, False])
def test_rows_that_were_read_on_the_source_are_not_looked_up_there_again(*, sums: bool) -> None:
    rows: list[Row] = [(n, n) for n in range(300)]
    target = [(n, n + (n == 40)) for n, _ in rows]
    there = compared(rows, target, sums=sums)
    run(there)
    # Two for the row that differs: in one round, the source's row is read before and after the target's row.
    assert there.questions.count("source.find") == 2


def test_a_table_without_a_key_is_compared_as_a_multiset() -> None:
    bag = table(INT, TEXT, key=0)
    rows = [(1, "x"), (1, "x"), (2, "y")]
    keyless = ComparedTable(bag, dict(enumerate(rows)), dict(enumerate([(1, "x"), (2, "y"), (3, "z")])), sums=False)
    found = run(keyless)
    assert (found.tables[0].rows, found.tables[0].missing, found.tables[0].extra) == (3, 1, 1)


@pytest.mark.parametrize("sums", [True, False])
def test_equal_tables_without_a_key_are_compared_in_bounded_memory(
    monkeypatch: pytest.MonkeyPatch, *, sums: bool
) -> None:
    monkeypatch.delattr("pidts.verify.keyless._counted")
    rows = {n: (n % 5, 0) for n in range(50)}
    found = run(ComparedTable(table(INT, INT, key=0), rows, {n + 7: row for n, row in rows.items()}, sums=sums))
    assert (found.equal, found.tables[0].rows) == (True, 50)


@pytest.mark.parametrize("seed", range(5))
def test_a_table_without_a_key_is_equal_to_what_is_pending(seed: int) -> None:
    bag = table(INT, INT, key=0)
    rows = {n: (n % 5, 0) for n in range(50)}
    traffic = Traffic(seed, range(50))
    busy = ComparedTable(bag, dict(rows), dict(rows), tick=traffic, sums=False)
    found = run(busy)
    assert (found.tables[0].missing, found.tables[0].extra) == (0, 0)


def test_rows_of_a_table_without_a_key_that_toggle_all_the_time_are_no_difference() -> None:
    dice, bag = random.Random(3), table(INT, INT, key=0)
    rows: Rows = {key: (key, 0) for key in range(200)}

    def tick(busy: ComparedTable) -> None:
        for key in rows:
            if dice.random() < 0.5:
                busy.write(key, (key, 1 - busy.source[key][1]))
        busy.apply(len(busy.log) - dice.randrange(2 * len(rows)))

    busy = ComparedTable(bag, {**rows, -1: (-1, 0)}, dict(rows), tick=tick, sums=False, knows_log=False)
    (found,) = run(busy).tables
    assert (found.missing, found.extra) == (1, 0)


def test_a_row_of_a_table_without_a_key_that_is_lost_between_two_readings_is_found_once_the_log_does_not_grow() -> None:
    bag = table(INT, INT, key=0)
    rows = {n: (n, 0) for n in range(5)}

    def meanwhile(compared: ComparedTable) -> None:
        reading = compared.questions.count("target.all")
        if reading in {1, 2} and compared.questions[-1] == "target.all":
            compared.write(8 + reading, (9, 0))  # The source was read before, and the target is read now.
            compared.apply(reading)
        if compared.questions.count("source.all") == 3:
            compared.target.pop(3, None)

    found = run(ComparedTable(bag, dict(rows), dict(rows), tick=meanwhile, sums=False))
    assert (found.tables[0].missing, found.tables[0].extra, found.equal) == (1, 0, False)


def test_keys_up_to_an_end_are_those_that_come_before_it_column_by_column() -> None:
    pair = table(INT, ColumnType(Kind.DATE), key=2)
    keys = arrow(pair, [(a, date(2024, 1, b)) for a in (1, 2, 3) for b in (1, 2, 3)])
    assert upto(pair, keys, [2, "2024-01-02"]).to_pylist() == keys.slice(0, 5).to_pylist()


def verdict(kind: ColumnType, one: Any, two: Any, normals: Normals) -> set[str]:
    """Returns the columns in which two rows differ."""
    three = table(INT, kind, INT)
    keys = arrow(three, [(1, one, 0)]).select(["a"])
    found = Matcher(three, normals).verdicts(keys, arrow(three, [(1, one, 0)]), arrow(three, [(1, two, 0)]))
    return {column for _, columns, _ in found.values() for column in columns}


@pytest.mark.parametrize(
    ("kind", "one", "two"),
    [
        (ColumnType(Kind.DOUBLE), 0.1, 0.1 + 2**-55),
        (ColumnType(Kind.DECIMAL, precision=65, scale=30), Decimal("1e-30"), Decimal("2e-30")),
        (ColumnType(Kind.BIT, length=64), 2**64 - 1, 2**64 - 2),
        (ColumnType(Kind.VARBINARY, length=3), b"a", b"a\x00"),
        (TEXT, "a", "a "),
        (TEXT, "", None),
        (ColumnType(Kind.JSON), '{"a":1}', '{"a":2}'),
        (ColumnType(Kind.JSON), "1", "true"),
        (ColumnType(Kind.JSON), '"1"', "1"),
        (ColumnType(Kind.JSON), "[1,2]", "[2,1]"),
        (
            ColumnType(Kind.JSON),
            "12345678901234567890123456789012345678901",
            "12345678901234567890123456789012345678902",
        ),
        (ColumnType(Kind.CHAR, length=3), "a", " a"),
        (ColumnType(Kind.DATE), date(1, 1, 1), None),
    ],
)
def test_values_that_differ_are_different_under_every_policy(kind: ColumnType, one: Any, two: Any) -> None:
    for normals in (EXACT, POSTGRES):
        assert verdict(kind, one, two, normals) == verdict(kind, two, one, normals) == {"b"}
        assert verdict(kind, one, one, normals) == set()


ZERO_DATE = calendar.days(0, 0, 0)
SPELLED = [
    (ColumnType(Kind.JSON), '{"b": [1, 2.50], "a": "\\u00e9"}', '{"a":"é","b":[1.0,2.5]}'),
    (ColumnType(Kind.JSON), "1e20", "100000000000000000000"),
    (ColumnType(Kind.JSON), "-0.0", "0"),
]


@pytest.mark.parametrize(("kind", "one", "two"), SPELLED)
def test_json_is_equal_however_a_server_spells_it(kind: ColumnType, one: Any, two: Any) -> None:
    assert verdict(kind, one, two, EXACT) == verdict(kind, one, two, POSTGRES) == set()


@pytest.mark.parametrize("key", [0, 1])
@pytest.mark.parametrize(
    ("one", "two", "is_same"),
    [
        *((one, two, True) for _, one, two in SPELLED),
        ('{"a":1}', '{"a": 2}', False),
        ("{'a':1}", '{"a": 1}', False),
        ("", "null", False),
        ("null", None, False),
        ("NaN", "nan", False),
        ("[" * 100_000, "[" * 99_999, False),
        ("1e99999999999999999999", "1e99999999999999999998", False),
    ],
)
def test_a_text_that_is_json_on_the_target_is_compared_by_its_value(
    key: int, one: str, two: str | None, *, is_same: bool
) -> None:
    for documents in ((), ("b",)):
        both = ComparedTable(table(INT, TEXT, key=key), {1: (1, one)}, {1: (1, two)}, sums=False, documents=documents)
        assert run(both).equal == (is_same and documents == ("b",))


@pytest.mark.parametrize(
    ("kind", "one", "two"),
    [
        (ColumnType(Kind.CHAR, length=5), "a", "a    "),
        (ColumnType(Kind.DATE), ZERO_DATE, None),
        (ColumnType(Kind.DATE), calendar.days(2023, 2, 31), None),
        (ColumnType(Kind.DATETIME), calendar.microseconds(ZERO_DATE, 5), None),
        (ColumnType(Kind.TIMESTAMP), calendar.microseconds(ZERO_DATE, 0), None),
    ],
)
def test_values_that_postgresql_stores_differently_by_design_are_equal_only_there(
    kind: ColumnType, one: Any, two: Any
) -> None:
    assert verdict(kind, one, two, POSTGRES) == set()
    assert verdict(kind, one, two, EXACT) == {"b"}


def test_padded_keys_find_their_rows_and_zero_has_no_sign_in_a_key() -> None:
    for kind, one, two, normals in (
        (ColumnType(Kind.CHAR, length=5), "a", "a    ", POSTGRES),
        (ColumnType(Kind.DOUBLE), -0.0, 0.0, EXACT),
    ):
        keyed = table(kind, INT)
        assert not len(Matcher(keyed, normals).doubtful(arrow(keyed, [(one, 1)]), arrow(keyed, [(two, 1)])))


def test_a_row_that_a_target_without_constraint_holds_twice_is_extra() -> None:
    two = table(INT, INT)
    source, target = arrow(two, [(1, 1), (2, 2)]), arrow(two, [(1, 1), (2, 2), (2, 2)])
    matcher = Matcher(two, EXACT)
    assert matcher.doubtful(source, target).to_pydict() == {"a": [2]}
    assert matcher.verdicts(source.select(["a"]), source, target)[1][0] is DifferenceKind.EXTRA


def test_keys_that_are_no_dates_can_be_named() -> None:
    keyed = table(ColumnType(Kind.DATE), ColumnType(Kind.DATETIME), INT, key=2)
    rows: pa.Table = arrow(keyed, [(ZERO_DATE, calendar.microseconds(ZERO_DATE, 3_723_000_004), 1)])
    assert Matcher(keyed, EXACT).readable(rows, 0) == {"a": "0000-00-00", "b": "0000-00-00 01:02:03.000004"}
