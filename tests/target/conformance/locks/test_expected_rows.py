"""If the target compares rows while it writes them, the result is the same as if they are read first."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from tests.target.conformance.locks.test_known_rows import changed
from tests.target.conformance.locks.test_row_locks import Change, Row, Task, content, locks, put
from tests.target.conformance.samples import INT, create, table, text

from pidts.apply import Target, TargetSession
from pidts.apply.locks.resolve import ResolveWith, resolve
from pidts.model import ColumnType, Halted, Kind, OnDivergence, Op, Table, TableName, calendar
from pidts.reduce import NetChange
from pidts.target.postgres import connection

pytestmark = pytest.mark.repeats("values-journaled", "mysql56", "mysql97")

DOUBLE, DATE = ColumnType(Kind.DOUBLE), ColumnType(Kind.DATE)
PRICE, CHAR = ColumnType(Kind.DECIMAL, precision=9, scale=2), ColumnType(Kind.CHAR, length=20)
COLUMNS = {"id": INT, "u": INT, "d": DOUBLE, "n0": text(), **{f"c{number}": INT for number in range(8)}}
"""Columns, some of which have names that the statements use for columns of their own."""
COMPARING = ("postgres", "values", "values-journaled")
REFUSING_KNOWN_KEYS = ("mariadb", "mysql97", "mysql56")
"""Targets that compare nothing, but refuse a new row if its key exists."""


@pytest.fixture
def structure(target: Target, name: TableName) -> Table:
    made = table(name, COLUMNS, unique=["u"])
    with closing(target.connect()) as session:
        create(session, made)
    return made


@pytest.fixture
def reads(target: Target, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Records, for each reading of rows under a lock, the number of keys."""
    found: list[int] = []
    with closing(target.connect()) as session:
        kind = type(session)
    read = kind.read_rows

    def noted(self: Any, of: Table, **how: Any) -> Any:
        if how.get("lock"):
            found.append(how["keys"].num_rows)
        return read(self, of, **how)

    monkeypatch.setattr(kind, "read_rows", noted)
    return found


def row(key: int) -> Row:
    return (key, key, 0.0, f"row {key}", *(key + number for number in range(8)))


@pytest.mark.parametrize("count", [30, 1500])
def test_rows_that_are_as_expected_are_not_read(
    target: Target,
    session: TargetSession,
    task: str,
    structure: Table,
    kind: str,
    reads: list[int],
    count: int,
) -> None:
    rows = {key: row(key) for key in range(count)}
    put(session, structure, *rows.values())
    running, chance = Task(target, task), random.Random(7)
    for _ in range(3):
        running.apply(structure, *changed(rows, chance), (Op.INSERT, None, row(-1)), (Op.DELETE, row(-1), None))
        assert content(session, structure) == [rows[key] for key in sorted(rows)]
    assert locks(session, task, structure) == []
    if kind in COMPARING:
        assert reads == []
    else:
        assert len(reads) >= 3


Plant = Callable[[dict[int, Row]], None]


def other(place: int, value: Any) -> Plant:
    def plant(rows: dict[int, Row]) -> None:
        rows[5] = (*rows[5][:place], value, *rows[5][place + 1 :])

    return plant


PLANTED: dict[str, Plant] = {
    "a number": other(4, -1),
    "NULL": other(4, None),
    "case": other(3, "ROW 5"),
    "a space": other(3, "row 5 "),
    "the last digit": other(2, 5e-324),
    "a unique value": other(1, 5555),
    "no row": lambda rows: rows.pop(5) and None,
    "a row": lambda rows: rows.update({90: (90, 9090, *row(90)[2:])}),
    "a row that comes and goes": lambda rows: rows.update({91: (91, 9191, *row(91)[2:])}),
}


@pytest.mark.parametrize("kind", [*COMPARING, *REFUSING_KNOWN_KEYS])
@pytest.mark.parametrize(
    ("planted", "policy"),
    [
        *((planted, OnDivergence.LOCK) for planted in PLANTED),
        *product(["a number", "a unique value", "no row"], [OnDivergence.WARN, OnDivergence.HALT]),
    ],
)
def test_differences_are_treated_as_if_rows_were_read(
    target: Target, session: TargetSession, task: str, structure: Table, planted: str, policy: OnDivergence
) -> None:
    ours = [
        *((Op.UPDATE, row(key), (key, key, 1.5, "ours", *row(key)[4:])) for key in range(8)),
        (Op.UPDATE, row(8), (8, None, *row(8)[2:])),
        (Op.DELETE, row(9), None),
        (Op.INSERT, None, row(90)),
        (Op.INSERT, None, row(91)),
        (Op.DELETE, row(91), None),
    ]
    outcomes = []
    for expects in (True, False):
        there = {key: row(key) for key in range(12)}
        PLANTED[planted](there)
        put(session, structure, *there.values(), deletes=[(key,) for key in (*range(12), 90, 91)])
        running = Task(target, f"{task}{expects}", expects=expects)
        running.rules = replace(running.rules, on_divergence=policy)
        code = ""
        try:
            running.apply(structure, *ours)
        except Halted as error:
            code = f"{error.code} {error.what} {error.where.key}"
        found = [(one.shown, one.why) for one in locks(session, running.task, structure)]
        outcomes.append((content(session, structure), found, code))
    assert outcomes[0] == outcomes[1]


def test_where_a_row_comes_and_goes_the_target_has_none(
    target: Target, session: TargetSession, task: str, name: TableName
) -> None:
    """The table has no further unique key, so its few changes are reduced one by one."""
    structure = table(name, COLUMNS)
    create(session, structure)
    outcomes = []
    for expects in (True, False):
        put(session, structure, row(5), (91, 9191, *row(91)[2:]), deletes=[(5,), (91,)])
        running = Task(target, f"{task}{expects}", expects=expects)
        running.rules = replace(running.rules, on_divergence=OnDivergence.LOCK)
        changes = [(Op.DELETE, row(5), None), (Op.INSERT, None, row(91)), (Op.DELETE, row(91), None)]
        running.apply(structure, *changes)
        outcomes.append((content(session, structure), [one.shown for one in locks(session, running.task, structure)]))
    assert outcomes[0] == outcomes[1]
    assert len(outcomes[0][1]) == 1


PLANTED_BEFORE_INSERTS: dict[str, list[Row]] = {
    "nothing": [],
    "the same row": [row(5)],
    "another row": [(*row(5)[:3], "theirs", *row(5)[4:])],
    "a unique value": [(99, 5, *row(99)[2:])],
}


@pytest.mark.parametrize(
    ("planted", "policy"),
    [
        *((planted, OnDivergence.LOCK) for planted in PLANTED_BEFORE_INSERTS),
        ("another row", OnDivergence.WARN),
        ("another row", OnDivergence.HALT),
    ],
)
def test_new_rows_are_treated_as_by_reading(
    target: Target, session: TargetSession, task: str, structure: Table, planted: str, policy: OnDivergence
) -> None:
    outcomes = []
    for expects in (True, False):
        put(session, structure, *PLANTED_BEFORE_INSERTS[planted], deletes=[(key,) for key in (*range(12), 99)])
        running = Task(target, f"{task}{expects}", expects=expects)
        running.rules = replace(running.rules, on_divergence=policy)
        code = ""
        try:
            running.apply(structure, *((Op.INSERT, None, row(key)) for key in range(8)))
        except Halted as error:
            code = f"{error.code} {error.what} {error.where.key}"
        found = [(one.shown, one.why) for one in locks(session, running.task, structure)]
        outcomes.append((content(session, structure), found, code))
    assert outcomes[0] == outcomes[1]


def test_new_rows_are_not_read(
    target: Target, session: TargetSession, task: str, structure: Table, kind: str, reads: list[int]
) -> None:
    running = Task(target, task)
    running.apply(structure, *((Op.INSERT, None, row(key)) for key in range(8)))
    assert content(session, structure) == list(map(row, range(8)))
    assert bool(reads) == (kind not in (*COMPARING, *REFUSING_KNOWN_KEYS))


@pytest.mark.parametrize("kind", REFUSING_KNOWN_KEYS)
@pytest.mark.parametrize("count", [5, 500])
def test_only_rows_that_changes_find_are_read(
    target: Target, session: TargetSession, task: str, structure: Table, reads: list[int], count: int
) -> None:
    put(session, structure, *map(row, range(count)))
    changes: list[Change] = []
    for key in range(count):
        changes += [
            (Op.UPDATE, row(key), (*row(key)[:3], "ours", *row(key)[4:])),
            (Op.INSERT, None, row(1000 + key)),
            (Op.UPDATE, row(1000 + key), (*row(1000 + key)[:3], "ours", *row(key)[4:])),
        ]
    Task(target, task).apply(structure, *changes)
    assert reads == [count]
    assert [found[:4] for found in content(session, structure)] == [
        (key, key, 0.0, "ours") for key in (*range(count), *range(1000, 1000 + count))
    ]
    Task(target, task).apply(structure, (Op.INSERT, None, row(7000)), (Op.DELETE, row(7000), None))
    assert reads == [count, 1], "a key that comes and goes is read: the target may have a row there"


@pytest.fixture
def rival(target: Target, monkeypatch: pytest.MonkeyPatch) -> list[Row]:
    """Returns a list, to which a test adds rows.

    In each attempt, between reading and writing, another program commits the next of these rows.
    """
    coming: list[Row] = []
    with closing(target.connect()) as session:
        kind = type(session)
    write, others = kind.write, []

    def late(self: Any, change: NetChange) -> None:
        if coming and self not in others:
            with closing(target.connect()) as other:
                others.append(other)
                put(other, change.table, coming.pop(0))
        write(self, change)

    monkeypatch.setattr(kind, "write", late)
    return coming


@pytest.mark.parametrize("kind", [*REFUSING_KNOWN_KEYS, "postgres"])
@pytest.mark.parametrize("is_read", [True, False])
@pytest.mark.parametrize("count", [4, 400])
def test_a_row_that_a_program_inserts_after_rows_were_read_is_not_overwritten(
    target: Target, session: TargetSession, task: str, structure: Table, rival: list[Row], *, is_read: bool, count: int
) -> None:
    differs = (*row(1)[:3], "theirs", *row(1)[4:])
    put(session, structure, row(0), differs if is_read else row(1))
    theirs = (*row(101)[:3], "theirs", *row(101)[4:])
    changes: list[Change] = [
        (Op.UPDATE, row(0), (*row(0)[:3], "ours", *row(0)[4:])),
        (Op.UPDATE, row(1), (*row(1)[:3], "ours", *row(1)[4:])),
        *((Op.INSERT, None, row(key)) for key in range(100, 100 + count)),
    ]
    rival.append(theirs)
    Task(target, task, expects=not is_read).apply(structure, *changes)
    there = {one[0]: one for one in content(session, structure)}
    found = {one.shown for one in locks(session, task, structure)}
    assert not rival
    assert there[101] == theirs
    assert there[102] == row(102)
    assert found == {"id=101", *(["id=1"] if is_read else [])}


@pytest.mark.parametrize("kind", [*REFUSING_KNOWN_KEYS, "postgres"])
@pytest.mark.parametrize("is_read", [True, False])
@pytest.mark.parametrize("count", [4, 400])
def test_a_row_that_a_program_inserts_at_a_key_that_comes_and_goes_stays(
    target: Target, session: TargetSession, task: str, structure: Table, rival: list[Row], *, is_read: bool, count: int
) -> None:
    put(session, structure, row(0))
    theirs = (*row(50)[:3], "theirs", *row(50)[4:])
    changes: list[Change] = [
        (Op.UPDATE, row(0), (*row(0)[:3], "ours", *row(0)[4:])),
        (Op.INSERT, None, row(50)),
        (Op.DELETE, row(50), None),
        *((Op.INSERT, None, row(key)) for key in range(100, 100 + count)),
    ]
    rival.append(theirs)
    Task(target, task, expects=not is_read).apply(structure, *changes)
    there = {one[0]: one for one in content(session, structure)}
    assert len(there) == count + 2
    assert there[0][3] == "ours"
    assert there[50] == theirs


@pytest.mark.parametrize("kind", [*REFUSING_KNOWN_KEYS, "postgres"])
def test_while_rows_are_locked_a_row_that_a_program_inserts_is_not_overwritten(
    target: Target, session: TargetSession, task: str, structure: Table, rival: list[Row]
) -> None:
    put(session, structure, (*row(1)[:3], "theirs", *row(1)[4:]))
    running = Task(target, task)
    running.apply(structure, (Op.UPDATE, row(1), (*row(1)[:3], "ours", *row(1)[4:])))
    theirs = (*row(5)[:3], "theirs", *row(5)[4:])
    rival.append(theirs)
    running.apply(structure, (Op.INSERT, None, row(5)), (Op.INSERT, None, row(6)))
    assert {one.shown for one in locks(session, task, structure)} == {"id=1", "id=5"}
    assert [one[3] for one in content(session, structure)] == ["theirs", "theirs", "row 6"]


@pytest.mark.parametrize("kind", [*REFUSING_KNOWN_KEYS, "postgres"])
def test_a_row_that_is_there_each_time_it_is_written_is_overwritten_in_the_end(
    target: Target, session: TargetSession, task: str, structure: Table, rival: list[Row], reads: list[int]
) -> None:
    """The row appears each time, as if a trigger inserted it, so no reading finds it. The task does not halt."""
    running = Task(target, task, expects=False)
    theirs = [(*row(key)[:3], "theirs", *row(key)[4:]) for key in (5, 6, 7)]
    rival += theirs
    running.apply(structure, *((Op.INSERT, None, row(key)) for key in (5, 6, 7)))
    assert {one.shown for one in locks(session, task, structure)} == {"id=5", "id=6"}
    assert content(session, structure) == [*theirs[:2], row(7)]
    assert len(reads) == 3


@pytest.mark.parametrize(
    ("kind", "is_text"),
    [*((kind, False) for kind in ("postgres", "values")), *product(("mariadb", "mysql97"), (False, True))],
)
def test_random_changes_are_treated_as_by_reading(
    target: Target, session: TargetSession, task: str, name: TableName, *, is_text: bool
) -> None:
    """The keys are texts: on the target, unlike on the source, a key in upper case equals a key in lower case."""
    structure = table(name, {"id": text(9) if is_text else INT, "u": INT, "v": INT}, unique=["u"])
    folded = replace(structure.columns[0].type, collation="utf8mb4_general_ci")
    there = replace(structure, columns=(replace(structure.columns[0], type=folded), *structure.columns[1:]))
    create(session, there if is_text else structure)
    keys: list[Any] = [letter for pair in ("aA", "bB", "cC") for letter in pair] if is_text else list(range(6))
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    for number in range(10):
        source: dict[Any, Row] = {}
        before = _any_changes(keys, source, chance, 4)
        theirs = {str(key).lower(): (key, 10_000 + place, 7) for place, key in enumerate(keys)}
        rows = [one for one in theirs.values() if chance.random() < 0.2]
        if chance.random() < 0.7:
            rows = [*{str(one[0]).lower(): one for one in (*rows, *source.values())}.values()]
        changes = _any_changes(keys, source, chance, 8)
        outcomes = []
        for expects in (True, False):
            put(session, structure, *rows, deletes=[(key,) for key in keys])
            running = Task(target, f"{task}{number}{expects}", expects=expects)
            code = ""
            try:
                running.apply(structure, *changes)
            except Halted as error:
                code = f"{error.code} {error.what} {error.where.key}"
            found = sorted((one.shown, one.why) for one in locks(session, running.task, structure))
            outcomes.append((content(session, structure), found, code))
        assert outcomes[0] == outcomes[1], (seed, number, before, rows, changes)


def _any_changes(keys: list[Any], rows: dict[Any, Row], chance: random.Random, most: int) -> list[Change]:
    """Returns changes of some rows that a source can make: no two rows have the same `u`."""
    made: list[Change] = []
    for _ in range(chance.randint(1, most)):
        key, taken = chance.choice(keys), {one[1] for one in rows.values()}
        old = rows.pop(key, None)
        unique = chance.choice([number for number in range(12) if number not in taken or (old and number == old[1])])
        if old is None:
            rows[key] = (key, unique, chance.randrange(3))
            made.append((Op.INSERT, None, rows[key]))
        elif chance.random() < 0.4:
            made.append((Op.DELETE, old, None))
        else:
            new = chance.choice([one for one in keys if one not in rows])
            rows[new] = (new, unique, chance.randrange(3))
            made.append((Op.UPDATE, old, rows[new]))
    return made


@pytest.mark.parametrize("kind", ["postgres", *REFUSING_KNOWN_KEYS])
def test_new_rows_are_compared_without_a_further_round_trip(target: Target, task: str, structure: Table) -> None:
    trips = []
    for policy in (OnDivergence.OVERWRITE, OnDivergence.LOCK):
        running = Task(target, f"{task}{policy}")
        running.rules = replace(running.rules, on_divergence=policy)
        with running.committer() as committer:
            for first in range(3):
                key = len(trips) * 10 + first
                running.commit(committer, structure, (Op.INSERT, None, row(key)))
                if first == 1:  # The committer knows the table's structure now.
                    before = committer.times.reading().trips
            trips.append(committer.times.reading().trips - before)
    assert trips == [1, 2]  # With LOCK, the target is asked first which of the rows are locked.


@pytest.mark.parametrize("kind", ["postgres"])
def test_a_row_that_differs_in_the_last_of_several_statements_is_set_aside(
    target: Target, session: TargetSession, task: str, name: TableName, kind: str, reads: list[int]
) -> None:
    """One statement writes ten thousand rows: the rows of the statements before it are rolled back, and then written once."""
    structure = table(name, {"id": INT, "v": INT})
    create(session, structure)
    rows = 10_500
    put(session, structure, *((key, 1) for key in range(rows - 1)), (rows - 1, 7))
    changes: list[Change] = [(Op.UPDATE, (key, 1), (key, 2)) for key in range(rows)]
    Task(target, task).apply(structure, *changes)
    assert [one.shown for one in locks(session, task, structure)] == [f"id={rows - 1}"]
    assert [row[1] for row in content(session, structure)] == [*[2] * (rows - 1), 7]
    assert reads == [rows]


def test_a_row_that_another_writer_changes_meanwhile_is_set_aside(
    target: Target, session: TargetSession, task: str, structure: Table, kind: str
) -> None:
    if kind != "postgres":
        pytest.skip("reads under locks, or has none")
    put(session, structure, *map(row, range(10)))
    theirs = (*row(5)[:4], -1, *row(5)[5:])
    running = Task(target, task)
    changes: list[Change] = [(Op.UPDATE, row(key), (*row(key)[:3], "ours", *row(key)[4:])) for key in range(10)]
    with closing(target.connect()) as program:
        program.begin()
        program.write(_written(structure, theirs))
        program.read_rows(structure)  # The session has not sent the write yet. A read sends it first.
        applying = threading.Thread(target=running.apply, args=(structure, *changes))
        applying.start()
        applying.join(2)
        assert applying.is_alive(), "it waits for the program"
        program.commit()
    applying.join(60)
    assert content(session, structure)[5] == theirs
    assert [one.shown for one in locks(session, task, structure)] == ["id=5"]


def _written(structure: Table, upsert: Row) -> Any:
    from tests.target.conformance.samples import change

    return change(structure, upserts=[upsert])


@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_values_are_equal_as_the_target_has_them(
    target: Target, session: TargetSession, task: str, name: TableName, kind: str, reads: list[int]
) -> None:
    """On PostgreSQL, a zero date is NULL, and a CHAR has no spaces at its end."""
    structure = table(name, {"id": INT, "d": DATE, "p": PRICE, "c": CHAR, "s": text()})
    create(session, structure)
    zero = calendar.days(0, 0, 0)
    before = [(1, zero, None, "x", "a"), (2, 5, None, "", "")]
    put(session, structure, *before)
    running = Task(target, task)
    running.apply(structure, *((Op.UPDATE, one, (*one[:4], "z")) for one in before))
    assert locks(session, task, structure) == []
    assert session.read_rows(structure)["s"].to_pylist() == ["z", "z"]
    assert bool(reads) == (kind == "mariadb")


@pytest.mark.parametrize("kind", ["postgres"])
def test_documents_and_texts_with_a_loose_collation_are_read(
    target: Target, session: TargetSession, task: str, name: TableName, reads: list[int]
) -> None:
    """Values of these types may be equal for the server without being the same."""
    structure = table(name, {"id": INT, "s": text(), "j": ColumnType(Kind.JSON)})
    create(session, structure)
    before = (1, "a", '{"a": 1}')
    put(session, structure, before)
    Task(target, task).apply(structure, (Op.UPDATE, before, (1, "b", '{"a": 1}')))
    assert reads == [1]
    loose = table(TableName(name.schema, f"{name.name[:40]}_l"), {"id": INT, "s": text()})
    create(session, loose)
    place = f'"{name.schema}"'
    collation = f'{place}."loose_{name.name[-8:]}"'
    session.execute(f"CREATE COLLATION {collation} (provider = icu, locale = 'und-u-ks-level1', deterministic = false)")
    session.execute(f'ALTER TABLE {place}."{loose.name.name}" ALTER s TYPE varchar(40) COLLATE {collation}')
    put(session, loose, (1, "THEIRS"))
    Task(target, task).apply(loose, (Op.UPDATE, (1, "theirs"), (1, "ours")))
    assert [one.why for one in locks(session, task, loose)] == ["the target's row has other values in s"]


@pytest.mark.parametrize("kind", ["postgres"])
def test_where_triggers_fire_rows_are_read(
    target: Target, session: TargetSession, task: str, structure: Table, reads: list[int], monkeypatch: Any
) -> None:
    put(session, structure, *map(row, range(3)))
    settings = [one for one in connection._SETTINGS if "session_replication_role" not in one]
    monkeypatch.setattr(connection, "_SETTINGS", settings)
    Task(target, task).apply(structure, (Op.UPDATE, row(1), (*row(1)[:3], "ours", *row(1)[4:])))
    assert reads == [1]
    assert content(session, structure)[1][3] == "ours"


ALREADY: dict[str, tuple[list[Row], list[Change], OnDivergence]] = {
    "an insert was applied before": (
        [(6, 1)],
        [(Op.INSERT, None, (6, 1)), (Op.UPDATE, (6, 1), (6, 2)), (Op.INSERT, None, (5, 1))],
        OnDivergence.LOCK,
    ),
    "an update was applied before": (
        [(6, 3)],
        [(Op.UPDATE, (6, 1), (6, 3)), (Op.UPDATE, (6, 3), (6, 1)), (Op.INSERT, None, (5, 3))],
        OnDivergence.LOCK,
    ),
    "a row that differs is overwritten": (
        [(6, 9)],
        [(Op.UPDATE, (6, 1), (6, 2)), (Op.UPDATE, (6, 2), (6, 1)), (Op.INSERT, None, (5, 9))],
        OnDivergence.WARN,
    ),
}


@pytest.mark.parametrize("kind", ["values", "postgres", "mariadb"])
@pytest.mark.parametrize("already", list(ALREADY))
@pytest.mark.parametrize("expects", [True, False])
def test_a_row_that_is_ahead_gives_up_its_unique_value(
    target: Target, session: TargetSession, task: str, name: TableName, already: str, *, expects: bool
) -> None:
    """Rows are written in the order of their keys: row 5 is written before row 6 changes."""
    structure = table(name, {"id": INT, "u": INT}, unique=["u"])
    create(session, structure)
    there, changes, policy = ALREADY[already]
    put(session, structure, *there)
    running = Task(target, task, expects=expects)
    running.rules = replace(running.rules, on_divergence=policy)
    running.apply(structure, *changes)
    assert content(session, structure) == [changes[-1][2], changes[-2][2]]
    assert locks(session, task, structure) == []


@pytest.mark.parametrize("kind", REFUSING_KNOWN_KEYS)
@pytest.mark.parametrize("policy", [OnDivergence.OVERWRITE, OnDivergence.LOCK])
@pytest.mark.parametrize("key", [("id",), ("id", "v")])
def test_a_key_that_comes_and_goes_removes_no_row_of_an_equal_key(
    target: Target, session: TargetSession, task: str, name: TableName, policy: OnDivergence, key: tuple[str, ...]
) -> None:
    """The source distinguishes a and A, and the target does not."""
    structure = table(name, {"id": text(9), "v": INT}, key=key)
    folded = replace(structure.columns[0], type=replace(structure.columns[0].type, collation="utf8mb4_general_ci"))
    create(session, replace(structure, columns=(folded, structure.columns[1])))
    put(session, structure, ("a", 1), ("Z", 1))
    running = Task(target, task)
    running.rules = replace(running.rules, on_divergence=policy)
    running.apply(structure, (Op.INSERT, None, ("A", 1)), (Op.DELETE, ("A", 1), None), (Op.DELETE, ("Z", 1), None))
    assert content(session, structure) == [("a", 1)]
    if found := locks(session, task, structure):
        resolve(session, task, "s", structure.name, [one.id for one in found], ResolveWith.SOURCE)
        assert content(session, structure) == [("a", 1)]
