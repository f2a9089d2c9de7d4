"""A row of the target whose key equals a change's key in another spelling is compared, and never overwritten."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from tests.target.conformance.locks.test_row_locks import Change, Task, content, locks, logged, put
from tests.target.conformance.samples import INT, create, rows, table, text

from pidts.apply import Target, TargetSession, prepared
from pidts.apply.locks.resolve import ResolveWith, resolve
from pidts.model import ColumnType, Kind, Op, Table, TableName

pytestmark = pytest.mark.repeats("mysql56", "mysql97")
MYSQL = ["mariadb", "mysql97", "mysql56"]
CASE, ACCENTS, SPACES = (
    ("utf8mb4_general_ci", "Ada", "ADA", "aDA"),
    ("utf8mb4_unicode_ci", "été", "ETE", "eté"),
    ("utf8mb4_bin", "a", "a ", "a  "),
)


LOW, HIGH = "0a1b2c3d-0000-4000-8000-00000000abcd", "0A1B2C3D-0000-4000-8000-00000000ABCD"


@pytest.mark.parametrize("kind", ["postgres"])
@pytest.mark.parametrize("change", [(Op.INSERT, None, (HIGH, 5)), (Op.DELETE, (HIGH, 1), None)])
def test_the_target_has_another_type(
    session: TargetSession, target: Target, task: str, name: TableName, change: tuple[Op, object, object]
) -> None:
    structure = table(name, {"id": ColumnType(Kind.CHAR, length=36, charset="ascii", collation="ascii_bin"), "v": INT})
    create(session, structure)
    session.execute(f"ALTER TABLE {name} ALTER COLUMN id TYPE uuid USING id::uuid")
    put(session, structure, (LOW, 99))
    Task(target, task).apply(structure, change)
    assert content(session, structure) == [(LOW, 99)]
    assert len(locks(session, task, structure)) == 1


@pytest.mark.parametrize("kind", ["mariadb", "mysql97"])
@pytest.mark.parametrize("change", [(Op.INSERT, None, ("a", 5)), (Op.DELETE, ("a", 1), None)])
def test_spaces_at_the_end_count_for_nothing(
    session: TargetSession, target: Target, task: str, name: TableName, change: tuple[Op, object, object]
) -> None:
    kind = ColumnType(Kind.VARCHAR, length=10, charset="utf8mb4", collation="utf8mb4_bin")
    structure: Table = table(name, {"id": kind, "v": INT})
    create(session, structure)
    put(session, structure, ("a ", 99))
    Task(target, task).apply(structure, change)
    assert content(session, structure) == [("a ", 99)]
    assert len(locks(session, task, structure)) == 1


@pytest.fixture(params=[CASE, ACCENTS, SPACES], ids=["case", "accents", "spaces"])
def words(request: pytest.FixtureRequest) -> tuple[str, str, str, str]:
    """Returns a collation, and one key in three spellings."""
    return request.param


@pytest.fixture
def structure(session: TargetSession, name: TableName, words: tuple[str, ...]) -> Table:
    made = table(
        name, {"id": ColumnType(Kind.VARCHAR, length=10, charset="utf8mb4", collation=words[0]), "v": INT, "u": INT}
    )
    create(session, made)
    return made


@pytest.mark.parametrize("kind", MYSQL)
def test_a_change_of_words_removes_no_row_that_differs(
    session: TargetSession, target: Target, task: str, structure: Table, words: tuple[str, ...]
) -> None:
    """DELETE Ada, one half of UPDATE Ada -> ADA, would remove the row ADA that another program has written."""
    _, one, two, three = words
    put(session, structure, (two, 99, 1))
    running = Task(target, task)
    running.apply(
        structure,
        (Op.UPDATE, (one, 1, 1), (two, 1, 1)),
        (Op.UPDATE, (two, 1, 1), (three, 1, 1)),
        (Op.INSERT, None, ("b", 2, 2)),
    )
    assert content(session, structure) == [(two, 99, 1), ("b", 2, 2)]
    running.apply(structure, (Op.DELETE, (three, 1, 1), None), (Op.INSERT, None, (one, 5, 5)))
    assert content(session, structure) == [(two, 99, 1), ("b", 2, 2)]
    (lock,) = locks(session, task, structure)
    assert len(resolve(session, task, "s", structure.name, {lock.id}, ResolveWith.SOURCE)) == 1
    assert content(session, structure) == sorted([(one, 5, 5), ("b", 2, 2)])
    running.apply(structure, (Op.UPDATE, (one, 5, 5), (two, 6, 5)))
    assert content(session, structure) == sorted([(two, 6, 5), ("b", 2, 2)])
    assert locks(session, task, structure) == []


@pytest.mark.parametrize("kind", MYSQL)
@pytest.mark.parametrize("take", list(ResolveWith))
def test_a_row_whose_key_another_program_has_respelled_is_resolved(
    session: TargetSession, target: Target, task: str, structure: Table, words: tuple[str, ...], take: ResolveWith
) -> None:
    _, one, two, three = words
    put(session, structure, (two, 1, 1))
    running = Task(target, task)
    running.apply(structure, (Op.UPDATE, (one, 1, 1), (one, 2, 1)))
    running.apply(structure, (Op.UPDATE, (one, 2, 1), (three, 2, 7)))
    (lock,) = locks(session, task, structure)
    assert lock.why == "the target's row has other values in id"
    assert content(session, structure) == [(two, 1, 1)]
    resolve(session, task, "s", structure.name, {lock.id}, take)
    assert content(session, structure) == [(two, 1, 1) if take is ResolveWith.KEEP else (three, 2, 7)]


@pytest.mark.parametrize("kind", MYSQL)
@pytest.mark.parametrize("together", [True, False])
def test_a_locked_row_that_is_gone_comes_back_in_other_words(
    session: TargetSession, target: Target, task: str, structure: Table, words: tuple[str, ...], together: bool
) -> None:
    """The target has no row of either spelling: the held DELETE Ada must not remove the row ADA when the lock is resolved."""
    _, one, two, three = words
    running = Task(target, task)
    changes: list[Change] = [
        (Op.UPDATE, (one, 1, 1), (one, 2, 1)),
        (Op.DELETE, (one, 2, 1), None),
        (Op.INSERT, None, (two, 3, 1)),
        (Op.INSERT, None, ("other", 3, 1)),
    ]
    for part in [changes] if together else [[change] for change in changes]:
        running.apply(structure, *part)
    (lock,) = locks(session, task, structure)
    assert lock.why == "the target does not have the row"
    assert content(session, structure) == [("other", 3, 1)]
    running.apply(structure, (Op.UPDATE, (two, 3, 1), (three, 4, 1)))
    resolve(session, task, "s", structure.name, {lock.id}, ResolveWith.SOURCE)
    assert content(session, structure) == sorted([(three, 4, 1), ("other", 3, 1)])


HELD = [(Op.UPDATE, ("one", 1), ("one", 2)), (Op.UPDATE, ("one", 2), ("two", 3))]
LATER: dict[str, list[tuple[Op, tuple[str, int] | None, tuple[str, int] | None]]] = {
    "deleted": [(Op.DELETE, ("two", 3), None)],
    "changed": [(Op.UPDATE, ("two", 3), ("two", 4))],
    "changed and deleted": [(Op.UPDATE, ("two", 3), ("two", 4)), (Op.DELETE, ("two", 4), None)],
    "in its first words again": [(Op.UPDATE, ("two", 3), ("one", 4)), (Op.UPDATE, ("one", 4), ("one", 5))],
    "in third words": [(Op.UPDATE, ("two", 3), ("three", 4)), (Op.UPDATE, ("three", 4), ("three", 5))],
    "in third words and deleted": [(Op.UPDATE, ("two", 3), ("three", 4)), (Op.DELETE, ("three", 4), None)],
}
IN_TURN = [CASE, SPACES, ACCENTS]
"""Each of the later changes is made with one of the collations in each run, and with all of them in a thorough one."""


@pytest.mark.parametrize("kind", MYSQL)
@pytest.mark.parametrize(
    ("words", "later"),
    [
        pytest.param(
            words,
            later,
            id=f"{name} {words[0]}",
            marks=() if words is IN_TURN[place % len(IN_TURN)] else pytest.mark.long,
        )
        for place, (name, later) in enumerate(LATER.items())
        for words in IN_TURN
    ],
)
@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("removed", [False, True])
def test_later_changes_of_a_missing_row_in_other_words_are_held(
    session: TargetSession,
    target: Target,
    task: str,
    structure: Table,
    words: tuple[str, ...],
    later: list[tuple[Op, tuple[str, int] | None, tuple[str, int] | None]],
    together: bool,
    removed: bool,
) -> None:
    """The UPDATE that changes the key's spelling is held: the next batch knows the key only in the new spelling."""
    spelled = dict(zip(("one", "two", "three"), words[1:], strict=True))
    running = Task(target, task)
    if removed:
        put(session, structure, (words[1], 99, 1))
    changes = [
        (op, *(None if image is None else (spelled[image[0]], image[1], 1) for image in images))
        for op, *images in [*HELD, *later]
    ]
    for part in [changes[:1], changes[1:2], changes[2:]] if together else [[change] for change in changes]:
        running.apply(structure, *part)
        if removed:  # Another program changes the row while it is locked.
            session.execute(f"DELETE FROM {structure.name}")
    (lock,) = locks(session, task, structure)
    assert content(session, structure) == []
    resolve(session, task, "s", structure.name, {lock.id}, ResolveWith.SOURCE)
    last = later[-1][2]
    assert content(session, structure) == ([] if last is None else [(spelled[last[0]], last[1], 1)])


@pytest.mark.parametrize("kind", MYSQL)
def test_keys_that_the_target_distinguishes_are_locked_apart(
    session: TargetSession, target: Target, task: str, name: TableName
) -> None:
    kind = ColumnType(Kind.VARCHAR, length=10, charset="utf8mb4", collation="utf8mb4_bin")
    structure = table(name, {"id": kind, "v": INT})
    create(session, structure)
    put(session, structure, ("a", 99), ("A", 1))
    Task(target, task).apply(structure, (Op.UPDATE, ("a", 1), ("a", 2)), (Op.UPDATE, ("A", 1), ("A", 2)))
    assert content(session, structure) == [("A", 2), ("a", 99)]
    assert [lock.shown for lock in locks(session, task, structure)] == ["id='a'"]


@pytest.mark.parametrize("kind", MYSQL)
def test_the_targets_table_overlooks_more_than_the_sources(
    session: TargetSession, target: Target, task: str, name: TableName
) -> None:
    exact = ColumnType(Kind.VARCHAR, length=10, charset="utf8mb4", collation="utf8mb4_bin")
    structure = table(name, {"id": exact, "v": INT})
    create(session, structure)
    session.execute(
        f"ALTER TABLE {name} MODIFY id VARCHAR(10) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci NOT NULL"
    )
    put(session, structure, ("ADA", 99))
    Task(target, task).apply(structure, (Op.UPDATE, ("Ada", 1), ("ADA", 1)))
    assert content(session, structure) == [("ADA", 99)]
    assert len(locks(session, task, structure)) == 1


@pytest.mark.parametrize("kind", MYSQL)
@pytest.mark.parametrize("charset", ["latin1", "utf8mb4", "utf8"])
def test_the_server_says_which_keys_are_equal(session: TargetSession, name: TableName, charset: str) -> None:
    text = ColumnType(Kind.VARCHAR, length=20, charset=charset, collation=f"{charset}_general_ci")
    structure = table(name, {"a": INT, "b": text, "c": ColumnType(Kind.DATE)}, key=("a", "b", "c"))
    create(session, structure)
    pairs = [
        ((1, "Ada", 9), (1, "aDA ", 9)),
        ((1, "ÉTÉ", 9), (1, "été ", 9)),
        ((2, "Ada", 9), (1, "Ada", 9)),
        ((1, "it's \\", 9), (1, "IT'S \\", 9)),
        ((1, "Ada", 8), (1, "Ada", 9)),
        *(((9, str(n), 9), (9, str(n + n % 2), 9)) for n in range(500)),
    ]
    keys, others = (rows(structure, *side) for side in zip(*pairs, strict=True))
    equal = [0, 1, 3, *(5 + n for n in range(0, 500, 2))]
    assert session.equal_keys(structure, keys, others) == equal
    one, other = (session.compared(structure, each).to_pylist() for each in (keys, others))
    assert [place for place in range(len(one)) if one[place] == other[place]] == equal
    assert session.equal_keys(structure, keys.slice(0, 0), others.slice(0, 0)) == []
    assert session.compared(structure, keys.slice(0, 0)).num_rows == 0


@pytest.mark.parametrize("kind", ["postgres", "values"])
def test_keys_that_are_compared_by_their_bytes_are_equal_to_themselves(session: TargetSession, name: TableName) -> None:
    text = ColumnType(Kind.VARCHAR, length=20, charset="utf8mb4", collation="utf8mb4_general_ci")
    structure = table(name, {"a": INT, "b": text}, key=("a", "b"))
    create(session, structure)
    keys = rows(structure, (1, "Ada"), (1, "it's \\"), (2, "Ada"))
    assert session.equal_keys(structure, keys, rows(structure, (1, "ADA"), (1, "it's \\"), (3, "Ada"))) == [1]
    assert len(set(map(str, session.compared(structure, keys).to_pylist()))) == 3


LETTERS = (
    "ä ae æ Æ aé ß s ss SS ø o Ø œ oe ñ n ch CH c h ll dž i I İ \u0131 fi þ th \u03b1 \u0391 ά \u03c3 ς я Я ё か カ が ー "
    "中 国 😀 🍣 한 ก \u0e33 \u0e4d\u0e32 \u0e01\u0e33 \u0e01\u0e4d\u0e32 \u0e40\u0e01 \u0e01\u0e40"
)
SPELLINGS = [
    "",
    " ",
    "a",
    "A",
    "a ",
    "á",
    "a\u0301",
    "a\u00a0",
    "a\t",
    "a \x01",
    "\u0e40\u0e01 ",
    "1",
    "\uff11",
    "½",
    "-",
    *LETTERS.split(),
]
COLLATIONS = {
    "mariadb": [
        *("utf8mb4_general_ci", "utf8mb4_unicode_ci", "utf8mb4_bin", "utf8mb4_nopad_bin", "utf8mb4_unicode_nopad_ci"),
        *("utf8mb4_uca1400_ai_ci", "utf8mb4_uca1400_as_cs", "utf8mb4_uca1400_nopad_ai_cs", "utf8mb4_uca1400_as_ci"),
        *("latin1_german2_ci", "latin1_swedish_ci", "utf8mb4_thai_520_w2", "cp1250_czech_cs", "big5_chinese_ci"),
    ],
    "mysql97": [
        *("utf8mb4_general_ci", "utf8mb4_unicode_ci", "utf8mb4_bin", "utf8mb4_0900_ai_ci", "utf8mb4_0900_as_cs"),
        *("utf8mb4_0900_bin", "utf8mb4_ja_0900_as_cs_ks", "latin1_german2_ci", "utf8mb4_de_pb_0900_ai_ci"),
    ],
    "mysql56": [
        *("utf8mb4_general_ci", "utf8mb4_unicode_ci", "utf8mb4_bin", "latin1_german2_ci", "latin1_swedish_ci"),
        *("cp1250_czech_cs", "big5_chinese_ci", "utf8_czech_ci"),
    ],
}


@pytest.mark.parametrize(
    ("kind", "collation"), [(kind, each) for kind, collations in COLLATIONS.items() for each in collations]
)
def test_texts_that_a_collation_holds_equal_have_one_form(
    session: TargetSession, name: TableName, collation: str
) -> None:
    """The server's own join decides which keys are equal. With another form, a change of a locked row would be written."""
    charset = collation.split("_", maxsplit=1)[0]
    structure = table(name, {"id": INT, "a": text(20)}, key=("a",))
    create(session, structure)
    session.execute(f"ALTER TABLE {name} MODIFY a VARCHAR(20) CHARACTER SET {charset} COLLATE {collation} NOT NULL")
    session.execute(f"ALTER TABLE {name} DROP PRIMARY KEY, ADD PRIMARY KEY (id)")
    run: Any = session
    words = []
    for word in SPELLINGS:
        (((known,),),) = (
            run.rows(f"SELECT CONVERT(CONVERT(%s USING {charset}) USING utf8mb4) = BINARY %s", (word, word)),
        )
        words += [word] if known else []
    put(session, table(name, {"id": INT, "a": text(20)}, key=("id",)), *enumerate(words))
    pairs = run.rows(f"SELECT x.id, y.id FROM {name} x JOIN {name} y ON x.a = y.a AND x.id < y.id")
    equal = {(int(one), int(other)) for one, other in pairs}
    keys = pa.table({"a": words})
    forms = session.compared(structure, keys)["a"].to_pylist()
    assert {pair for pair in equal if forms[pair[0]] != forms[pair[1]]} == set()
    every = [(one, other) for one in range(len(words)) for other in range(one + 1, len(words))]
    one, other = (keys.take(pa.array(side)) for side in zip(*every, strict=True))
    assert {every[place] for place in session.equal_keys(structure, one, other)} == equal


@pytest.mark.parametrize("kind", MYSQL)
@pytest.mark.parametrize(
    ("collation", "theirs", "ours"),
    [
        ("utf8mb4_general_ci", "ß", "s"),
        ("utf8mb4_general_ci", "😀", "🍣"),
        ("utf8mb4_unicode_ci", "ø", "Ø"),
        ("latin1_german2_ci", "ä", "ae"),
        ("utf8mb4_bin", "a ", "a"),
    ],
)
def test_a_unique_value_that_only_the_collation_holds_equal_is_waited_for(
    session: TargetSession, target: Target, task: str, name: TableName, collation: str, theirs: str, ours: str
) -> None:
    """Without the lock of row 2 the server would refuse the value, and the table would halt."""
    kind = ColumnType(Kind.VARCHAR, length=10, charset=collation.split("_", maxsplit=1)[0], collation=collation)
    structure = table(name, {"id": INT, "v": INT, "u": kind}, unique=["u"])
    create(session, structure)
    put(session, structure, (1, 99, theirs), (2, 2, "zz"))
    running = Task(target, task)
    running.apply(structure, (Op.UPDATE, (1, 1, "yy"), (1, 2, "yy")))
    running.apply(
        structure,
        (Op.UPDATE, (2, 2, "zz"), (2, 3, ours)),
        (Op.INSERT, None, (3, 3, "zz")),
        (Op.INSERT, None, (4, 4, "d")),
    )
    assert content(session, structure) == [(1, 99, theirs), (2, 2, "zz"), (4, 4, "d")]
    first, second, third = locks(session, task, structure)
    assert (first.needs, second.needs, third.needs) == ("", first.id, second.id)
    resolve(session, task, "s", structure.name, {first.id}, ResolveWith.SOURCE)
    assert content(session, structure) == [(1, 2, "yy"), (2, 3, ours), (3, 3, "zz"), (4, 4, "d")]


@pytest.mark.parametrize("kind", [*MYSQL, "postgres"])
def test_a_lock_that_an_earlier_version_made_is_found_in_other_words(
    session: TargetSession, target: Target, task: str, name: TableName, kind: str
) -> None:
    """The lock has no text that is equal for all spellings of its key. The first batch adds this text, the form."""
    key = ColumnType(Kind.CHAR, length=36, charset="ascii", collation="ascii_general_ci")
    structure = table(name, {"id": key, "v": INT})
    create(session, structure)
    if kind == "postgres":
        session.execute(f"ALTER TABLE {name} ALTER COLUMN id TYPE uuid USING id::uuid")
    running = Task(target, task)
    running.apply(structure, (Op.UPDATE, (LOW, 1), (LOW, 2)))
    (lock,) = locks(session, task, structure)
    assert lock.form
    run: Any = session
    run.run("DELETE FROM pidts_meta.locked_form WHERE task = %s", (task,))
    session.begin()
    session.meta.row_locks.change(task, "s", [replace(lock, form="")])
    session.commit()
    running.apply(structure, (Op.DELETE, (HIGH, 2), None), (Op.INSERT, None, (LOW[:-1] + "e", 1)))
    running.apply(structure, (Op.INSERT, None, (HIGH, 3)))
    assert locks(session, task, structure) == [lock]
    assert [row[1] for row in content(session, structure)] == [1]
    assert len(session.meta.row_locks.held(task, "s", name, {lock.id})) == 3
    resolve(session, task, "s", name, {lock.id}, ResolveWith.SOURCE)
    assert sorted(row[1] for row in content(session, structure)) == [1, 3]
    assert run.run("SELECT COUNT(*) FROM pidts_meta.locked_form WHERE task = %s", (task,))[0][0][0] == 0


@pytest.mark.parametrize("kind", MYSQL)
def test_the_collation_of_a_key_is_altered_while_rows_are_locked(
    session: TargetSession, target: Target, task: str, name: TableName
) -> None:
    """Ada and ADA are one row from then on: ADA would be written, and then removed by the held changes of Ada."""
    exact = ColumnType(Kind.VARCHAR, length=10, charset="utf8mb4", collation="utf8mb4_bin")
    structure = table(name, {"id": exact, "v": INT})
    create(session, structure)
    running = Task(target, task)
    running.apply(structure, (Op.UPDATE, ("Ada", 1), ("Ada", 2)))
    for collation in ("utf8mb4_general_ci", "utf8mb4_bin", "utf8mb4_unicode_ci"):
        session.execute(f"ALTER TABLE {name} MODIFY id VARCHAR(10) CHARACTER SET utf8mb4 COLLATE {collation} NOT NULL")
        running.apply(structure, (Op.UPDATE, ("Ada", 2), ("Ada", 2)))
    running.apply(structure, (Op.UPDATE, ("Ada", 2), ("ADA", 3)))
    running.apply(structure, (Op.UPDATE, ("ADA", 3), ("ADA", 4)))
    assert content(session, structure) == []
    (lock,) = locks(session, task, structure)
    run: Any = session
    assert run.run("SELECT form FROM pidts_meta.locked_form WHERE task = %s", (task,))[0] == [(lock.form,)]
    resolve(session, task, "s", name, {lock.id}, ResolveWith.SOURCE)
    assert content(session, structure) == [("ADA", 4)]


@pytest.mark.parametrize("kind", [*MYSQL, "postgres"])
def test_a_batchs_queries_do_not_grow_with_the_locks(
    session: TargetSession, target: Target, task: str, name: TableName
) -> None:
    kind = ColumnType(Kind.VARCHAR, length=20, charset="utf8mb4", collation="utf8mb4_bin")
    structure = table(name, {"id": kind, "v": INT, "u": kind}, unique=["u"])
    create(session, structure)
    running = Task(target, task, limit=10_000)
    trips = []
    for round_, count in enumerate((1, 500)):
        gone = [f"gone {round_} {number}" for number in range(count)]
        running.apply(structure, *((Op.UPDATE, (one, 1, one), (one, 2, one)) for one in gone))
        new = [f"new {round_} {number}" for number in range(100)]
        batch = logged(structure, running.at + 1, *((Op.INSERT, None, (one, 1, one)) for one in new))
        with closing(target.connect()) as own:
            own.begin()
            before = own.trips
            assert len(prepared(own, [batch], running.rules)) == 1
            trips.append(own.trips - before)
            own.rollback()
    assert session.meta.row_locks.count(task, "s", name) == 501
    assert trips[1] <= trips[0] + 1
    assert trips[0] < 40


@pytest.mark.parametrize("kind", MYSQL)
@pytest.mark.parametrize("together", [True, False], ids=["one batch", "two batches"])
def test_a_row_that_waits_for_a_value_is_one_row_in_whatever_words(
    session: TargetSession, target: Target, task: str, name: TableName, *, together: bool
) -> None:
    """Bob needs a unique value of a locked row. As BOB it does not need the value any more, but it is still the row of Bob."""
    text = ColumnType(Kind.VARCHAR, length=10, charset="utf8mb4", collation="utf8mb4_general_ci")
    structure = table(name, {"id": text, "v": INT, "u": INT}, unique=["u"])
    create(session, structure)
    put(session, structure, ("a", 99, 5))
    running = Task(target, task)
    running.apply(structure, (Op.UPDATE, ("a", 1, 1), ("a", 2, 1)))
    changes: list[Change] = [(Op.INSERT, None, ("Bob", 1, 5)), (Op.UPDATE, ("Bob", 1, 5), ("BOB", 1, 6))]
    for part in [changes] if together else [[change] for change in changes]:
        running.apply(structure, *part)
    first, second = locks(session, task, structure)
    assert second.needs == first.id
    resolve(session, task, "s", structure.name, {first.id}, ResolveWith.SOURCE)
    if waiting := {one.id for one in locks(session, task, structure)}:
        resolve(session, task, "s", structure.name, waiting, ResolveWith.SOURCE)
    assert content(session, structure) == [("BOB", 1, 6), ("a", 2, 1)]


@pytest.mark.parametrize("kind", MYSQL)
@pytest.mark.parametrize("last_first", [True, False])
@pytest.mark.parametrize(
    "changes",
    [
        [(Op.INSERT, None, ("Bob", 1, 5)), (Op.UPDATE, ("Bob", 1, 5), ("BOB", 2, 5))],
        [(Op.UPDATE, ("Bob", 1, 7), ("Bob", 2, 7)), (Op.UPDATE, ("Bob", 2, 7), ("BOB", 2, 5))],
        [(Op.UPDATE, ("Bob", 0, 7), ("BOB", 1, 5)), (Op.UPDATE, ("BOB", 1, 5), ("Bob", 2, 5))],
    ],
    ids=["both wait", "one differs", "there and back"],
)
def test_several_words_of_a_row_that_waits_are_one_lock(
    session: TargetSession,
    target: Target,
    task: str,
    name: TableName,
    changes: list[Change],
    *,
    last_first: bool,
) -> None:
    """Row a has a unique value that Bob needs; whichever lock is resolved first, the source's row of Bob is there."""
    text = ColumnType(Kind.VARCHAR, length=10, charset="utf8mb4", collation="utf8mb4_general_ci")
    structure = table(name, {"id": text, "v": INT, "u": INT}, unique=["u"])
    create(session, structure)
    put(session, structure, ("a", 99, 5))
    running = Task(target, task)
    running.apply(structure, (Op.UPDATE, ("a", 1, 5), ("a", 2, 1)))
    running.apply(structure, *changes)
    first, second = locks(session, task, structure)
    resolve(session, task, "s", structure.name, {first.id}, ResolveWith.SOURCE)
    for one in sorted(locks(session, task, structure), key=lambda lock: lock.lsn, reverse=last_first):
        resolve(session, task, "s", structure.name, {one.id}, ResolveWith.SOURCE)
    last = changes[-1][2]
    assert second.id != first.id
    assert content(session, structure) == sorted([last, ("a", 2, 1)])
