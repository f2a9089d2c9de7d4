"""An online schema change is one ALTER TABLE of the real table. If this is not certain, the task halts."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest

from pidts.model import ConfigError, Halted, LoggedStatement, Shadow, Table, TableName
from pidts.schema import AlterTable, CreateTable, Dialect, Statement, classify, differences, render_statement
from pidts.schema.evolve.apply_statement import apply
from pidts.schema.online.names import SHADOW, TRASH, OnlineDdl, Role, checked, net
from pidts.schema.online.swap import translate

ONLINE = OnlineDdl(SHADOW, TRASH)
DIALECT = Dialect.of("8.4.0")
T = TableName("a", "t")
ORDERS = (
    "CREATE TABLE t (id int NOT NULL AUTO_INCREMENT, name varchar(20), note text, PRIMARY KEY (id), KEY by_name (name))"
)
PT_OSC = (
    (
        "CREATE TABLE `a`.`_t_new` (`id` int NOT NULL AUTO_INCREMENT, `name` varchar(20), `note` text, "
        "PRIMARY KEY (`id`), KEY `by_name` (`name`)) ENGINE=InnoDB"
    ),
    "ALTER TABLE `a`.`_t_new` ADD COLUMN price decimal(10,2) NOT NULL DEFAULT 0 AFTER name, DROP COLUMN note",
    (
        "CREATE DEFINER=`root`@`localhost` TRIGGER `pt_osc_a_t_del` AFTER DELETE ON `a`.`t` FOR EACH ROW "
        "DELETE IGNORE FROM `a`.`_t_new` WHERE `a`.`_t_new`.`id` <=> OLD.`id`"
    ),
    "ANALYZE TABLE `a`.`_t_new` /* pt-online-schema-change */",
    "RENAME TABLE `a`.`t` TO `a`.`_t_old`, `a`.`_t_new` TO `a`.`t`",
    "DROP TABLE IF EXISTS `a`.`_t_old`",
    "DROP TRIGGER IF EXISTS `a`.`pt_osc_a_t_del`",
)
GH_OST = (
    "drop /* gh-ost */ table if exists `a`.`_t_gho`",
    "drop /* gh-ost */ table if exists `a`.`_t_del`",
    "drop /* gh-ost */ table if exists `a`.`_t_ghc`",
    (
        "create /* gh-ost */ table `a`.`_t_ghc` (id bigint unsigned auto_increment, "
        "last_update timestamp not null DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, "
        "hint varchar(64) charset ascii not null, value varchar(4096) charset ascii not null, primary key(id), "
        "unique key hint_uidx(hint)) auto_increment=256 comment='gh-ost'"
    ),
    "create /* gh-ost */ table `a`.`_t_gho` like `a`.`t`",
    (
        "alter /* gh-ost */ table `a`.`_t_gho` add column price decimal(10,2) not null default 0 after name, "
        "drop column note"
    ),
    "alter /* gh-ost */ table `a`.`_t_gho` AUTO_INCREMENT=7",
    (
        "create /* gh-ost */ table `a`.`_t_del` (id int auto_increment primary key) engine=InnoDB "
        "comment='ghost-cut-over-sentry'"
    ),
    "drop /* gh-ost */ table if exists `a`.`_t_del`",
    "rename /* gh-ost */ table `a`.`t` to `a`.`_t_del`, `a`.`_t_gho` to `a`.`t`",
    "drop /* gh-ost */ table if exists `a`.`_t_ghc`",
    "drop /* gh-ost */ table if exists `a`.`_t_del`",
)
GH_OST_TWO_STEP = (*GH_OST[:9], "alter table `a`.`t` rename `a`.`_t_del`", "alter table `a`.`_t_gho` rename `a`.`t`")


def made(*texts: str) -> dict[TableName, Table]:
    known: dict[TableName, Table] = {}
    for text in texts:
        changed = apply(classify(text, "a", dialect=DIALECT), known, {}, dialect=DIALECT)
        known = {name: table for name, table in {**known, **changed}.items() if table is not None}
    return known


@dataclass
class Task:
    """Handles the statements of a log one after the other, as a task does."""

    online: OnlineDdl = ONLINE
    structures: dict[TableName, Table] = field(default_factory=lambda: made(ORDERS))
    shadows: dict[TableName, Shadow] = field(default_factory=dict)
    ran: list[Statement] = field(default_factory=list)
    utf8_literals: bool = False

    def hear(self, text: str) -> Statement | None:
        logged = LoggedStatement(text, "a", 0, utf8_literals=self.utf8_literals)
        statement = classify(text, "a", dialect=DIALECT.of_session(logged))
        known = {"shadows": self.shadows, "structures": self.structures, "charsets": {}, "dialect": DIALECT}
        translation = translate(self.online, statement, logged, **known)
        # A crash before the commit: the same statement is translated again.
        assert translate(self.online, statement, logged, **known) == translation
        self.shadows = {name: one for name, one in {**self.shadows, **translation.shadows}.items() if one is not None}
        self.shadows = {
            name: Shadow.from_json(json.loads(json.dumps(one.to_json()))) for name, one in self.shadows.items()
        }
        if translation.statement is not None:
            changed = translation.structures
            if changed is None:
                changed = apply(translation.statement, self.structures, {}, dialect=DIALECT)
            self.structures = {n: one for n, one in {**self.structures, **changed}.items() if one is not None}
            if render_statement(translation.statement):
                self.ran.append(translation.statement)
        return translation.statement

    def hear_all(self, *texts: str) -> Task:
        for text in texts:
            self.hear(text)
        return self

    @property
    def sql(self) -> list[str]:
        return [render_statement(statement) for statement in self.ran]


ALTERED = [
    "ALTER TABLE `a`.`t` ADD COLUMN `price` decimal(10,2) DEFAULT 0 NOT NULL AFTER `name`, DROP COLUMN `note`",
]


def words(sql: str) -> set[str]:
    return set(sql.replace(",", " , ").split())


@pytest.mark.parametrize("log", [PT_OSC, GH_OST, GH_OST_TWO_STEP], ids=["pt-osc", "gh-ost", "gh-ost in two steps"])
def test_each_tool_alters_the_real_table_once_and_leaves_nothing_behind(log):
    task = Task().hear_all(*log)
    assert [words(sql) for sql in task.sql] == [words(sql) for sql in ALTERED]
    assert task.shadows == {}
    assert [column.name for column in task.structures[T].columns] == ["id", "name", "price"]
    assert set(task.structures) == {T}


def test_a_column_that_was_renamed_keeps_its_values():
    task = Task().hear_all("CREATE TABLE _t_gho LIKE t", "ALTER TABLE _t_gho CHANGE name title varchar(40)")
    statement = task.hear("RENAME TABLE t TO _t_del, _t_gho TO t")
    assert isinstance(statement, AlterTable)
    assert "CHANGE COLUMN `name` `title` varchar(40)" in render_statement(statement)


@pytest.mark.parametrize(("in_utf8", "default"), [(True, "x'C3A9'"), (False, "'é'")])
def test_bytes_are_those_of_the_session_that_altered_the_shadow(in_utf8, default):
    """The statement that swaps the tables comes from another session."""
    task = Task(utf8_literals=in_utf8)
    task.hear_all("CREATE TABLE _t_gho LIKE t", "ALTER TABLE _t_gho ADD v varbinary(9) DEFAULT 'é'")
    task.utf8_literals = not in_utf8
    task.hear("RENAME TABLE t TO _t_del, _t_gho TO t")
    assert f"DEFAULT {default}" in task.sql[0]
    assert task.structures[T].column("v").default == default


def test_several_alterations_are_one():
    task = Task().hear_all("CREATE TABLE _t_gho LIKE t", "ALTER TABLE _t_gho ADD a int", "ALTER TABLE _t_gho ADD b int")
    task.hear("RENAME TABLE t TO _t_del, _t_gho TO t")
    assert len(task.ran) == 1
    assert [column.name for column in task.structures[T].columns][-2:] == ["a", "b"]


def test_alterations_that_one_statement_cannot_make_are_made_by_their_outcome():
    """Servers refuse `ADD a, MODIFY a`: the second clause looks for the column in the old table."""
    task = Task().hear_all(
        "CREATE TABLE _t_gho LIKE t", "ALTER TABLE _t_gho ADD a int", "ALTER TABLE _t_gho MODIFY a bigint NOT NULL"
    )
    task.hear("RENAME TABLE t TO _t_del, _t_gho TO t")
    assert len(task.ran) == 1
    assert "ADD COLUMN `a` bigint" in task.sql[0]


def test_a_real_table_altered_beside_the_tool_becomes_what_the_shadow_is():
    task = Task().hear_all("CREATE TABLE _t_new LIKE t", "ALTER TABLE _t_new ADD a int", "ALTER TABLE t ADD b int")
    with pytest.raises(Halted) as caught:
        task.hear("RENAME TABLE t TO _t_old, _t_new TO t")
    assert caught.value.code == "online-ddl-differs"  # b is missing and a is new, so b may have been renamed to a
    assert "column a is missing" in caught.value.what


def test_a_tool_that_gives_up_leaves_nothing():
    task = Task().hear_all(*PT_OSC[:2], "DROP TABLE IF EXISTS `a`.`_t_new`")
    assert (task.shadows, task.ran) == ({}, [])
    assert [column.name for column in task.structures[T].columns] == ["id", "name", "note"]


def test_a_second_attempt_forgets_the_first():
    task = Task().hear_all(
        *PT_OSC[:2], "CREATE TABLE IF NOT EXISTS _t_new (id int)", "CREATE OR REPLACE TABLE _x (i int)"
    )
    assert len(task.shadows[TableName("a", "_t_new")].statements) == 1  # The table existed.
    task.hear_all("DROP TABLE _t_new", "CREATE TABLE _t_new LIKE t", "ALTER TABLE _t_new ADD a int", PT_OSC[4])
    assert len(task.ran) == 2  # one of the two statements creates _x, which is not a shadow table
    assert "ADD COLUMN `a`" in task.sql[1]
    assert "price" not in task.sql[1]


def test_a_shadow_may_be_renamed_before_the_swap():
    task = Task().hear_all(
        "CREATE TABLE _t_new LIKE t", "ALTER TABLE _t_new ADD a int", "RENAME TABLE _t_new TO __t_new"
    )
    task.hear("RENAME TABLE t TO _t_old, __t_new TO t")
    assert "ADD COLUMN `a`" in task.sql[0]


def test_a_swap_over_a_third_name():
    task = Task().hear_all("CREATE TABLE _t_new LIKE t", "ALTER TABLE _t_new ADD a int")
    task.hear("RENAME TABLE t TO tmp, _t_new TO t, tmp TO _t_old")
    assert "ALTER TABLE `a`.`t` ADD COLUMN `a`" in task.sql[0]


def test_rows_of_shadows_and_statements_about_trash_are_nothing():
    task = Task()
    for text in (
        "INSERT INTO _t_new SELECT * FROM t",
        "TRUNCATE TABLE _t_new",
        "CREATE TABLE _t_ghc (id int)",
        "ALTER TABLE _t_ghc ADD a int",
        "DROP TABLE _t_old, _t_ghc",
        "RENAME TABLE _t_old TO __t_old",
        "ALTER TABLE _t_old FROBNICATE",
    ):
        assert task.hear(text) is None, text
    assert task.shadows == {}


def test_real_tables_named_beside_shadows_are_dropped():
    task = Task(structures=made(ORDERS, "CREATE TABLE u (id int)"))
    statement = task.hear("DROP TABLE u, _t_old, _t_new")
    assert statement is not None
    assert statement.tables == (TableName("a", "u"),)


def test_a_table_made_like_a_shadow_has_its_structure():
    task = Task().hear_all("CREATE TABLE _t_new LIKE t", "ALTER TABLE _t_new ADD a int")
    statement = task.hear("CREATE TABLE copy LIKE _t_new")
    assert isinstance(statement, CreateTable)
    assert [column.name for column in statement.structure.columns][-1] == "a"


def test_a_database_takes_its_shadows_along():
    task = Task().hear_all("CREATE TABLE _t_new LIKE t", "ALTER TABLE _t_new ADD a int", "DROP DATABASE a")
    assert (task.shadows, task.structures) == ({}, {})


BEGAN = "_t_new"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("ADD price int NOT NULL DEFAULT 0 AFTER id", True),
        ("DROP COLUMN note", True),
        ("MODIFY name varchar(80) NOT NULL", True),
        ("MODIFY note text FIRST", True),
        ("ADD UNIQUE KEY only_once (name), DROP KEY by_name", True),
        ("DROP COLUMN name", True),
        ("MODIFY id bigint NOT NULL AUTO_INCREMENT", True),
        ("DEFAULT CHARSET latin1, COMMENT 'x'", True),
        ("ENGINE=InnoDB", True),
        ("CHANGE note remark text", False),
        ("ADD remark text, DROP COLUMN note", False),
        ("ADD KEY by_note (note(10))", False),
        ("ADD twice int AS (id * 2) STORED", False),
    ],
)
def test_a_task_that_begins_in_the_middle_goes_by_the_difference_where_it_is_clear(change, expected):
    shadow = made(ORDERS, f"ALTER TABLE t {change}")[T].renamed(TableName("a", BEGAN))
    task = Task(shadows={shadow.name: Shadow(shadow, complete=False)})
    if not expected:
        with pytest.raises(Halted) as caught:
            task.hear(PT_OSC[4])
        assert caught.value.code == "online-ddl-differs"
        assert caught.value.where.table == "a.t"
        return
    task.hear(PT_OSC[4])
    assert differences(shadow, task.structures[T].renamed(shadow.name)) == []
    assert task.shadows == {}


def test_shadow_tables_are_followed_from_the_beginning():
    shadow = made(ORDERS)[T].renamed(TableName("a", BEGAN))
    task = Task(shadows={shadow.name: Shadow(shadow, complete=False)})
    task.hear_all("ALTER TABLE _t_new ADD a int", PT_OSC[4])
    assert "ADD COLUMN `a`" in task.sql[0]


HALTS = [
    (["RENAME TABLE t TO _t_old, _t_new TO t"], "online-ddl-unknown"),
    (["ALTER TABLE _t_new ADD a int", "RENAME TABLE t TO _t_old, _t_new TO t"], "online-ddl-unknown"),
    (["CREATE TABLE _t_new LIKE t", "ALTER TABLE _t_new FROBNICATE", PT_OSC[4]], "online-ddl-unknown"),
    (["CREATE TABLE IF NOT EXISTS _t_new LIKE t", "ALTER TABLE _t_new ADD a int", PT_OSC[4]], "online-ddl-unknown"),
    # These statements could also come from a program that creates a report anew each night.
    (["CREATE TABLE _t_new LIKE t", "RENAME TABLE t TO _t_old, _t_new TO t"], "online-ddl-rows"),
    (["RENAME TABLE t TO _t_del, _t_old TO t"], "online-ddl-rows"),
    (["RENAME TABLE _t_old TO t"], "online-ddl-rows"),
    (["RENAME TABLE t TO _t_new"], "online-ddl-rows"),
    (["CREATE TABLE _u_new LIKE t", "ALTER TABLE _u_new ADD a int", "RENAME TABLE _u_new TO u"], "online-ddl-rows"),
    (
        ["CREATE TABLE _t_new LIKE t", "ALTER TABLE _t_new DROP id, ADD n int AUTO_INCREMENT PRIMARY KEY", PT_OSC[4]],
        "online-ddl-rows",
    ),
    (["CREATE TABLE _t_new LIKE t", "ALTER TABLE _t_new ADD a int", "DROP TABLE IF EXISTS t"], "online-ddl-dropped"),
    (["CREATE TABLE n LIKE t", "RENAME TABLE t TO _t_old, n TO t"], "online-ddl-mixed"),
    (
        [
            "CREATE TABLE n LIKE t",
            "CREATE TABLE _t_new LIKE t",
            "ALTER TABLE _t_new ADD a int",
            "RENAME TABLE t TO _t_old, _t_new TO t, n TO o",
        ],
        "online-ddl-mixed",
    ),
]


@pytest.mark.parametrize(("log", "code"), HALTS, ids=[f"{code}: {log[-1]}" for log, code in HALTS])
def test_an_online_schema_change_that_is_not_known_completely_halts(log, code):
    task = Task().hear_all(*log[:-1])
    with pytest.raises(Halted) as caught:
        task.hear(log[-1])
    assert caught.value.code == code
    assert caught.value.where.table
    assert caught.value.todo


@pytest.mark.parametrize(
    "column",
    ["at timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP", "at datetime(6) DEFAULT now(6)", "u char(36) DEFAULT (uuid())"],
)
def test_values_that_the_tool_made_up_are_not_made_up_again(column):
    task = Task().hear_all("CREATE TABLE _t_new LIKE t", f"ALTER TABLE _t_new ADD {column}")
    with pytest.raises(Halted, match="online-ddl-rows"):
        task.hear(PT_OSC[4])
    assert Task().hear_all("CREATE TABLE _t_new LIKE t", "ALTER TABLE _t_new ADD at int DEFAULT 1", PT_OSC[4]).sql


def test_without_rules_all_tables_are_treated_the_same():
    task = Task(online=OnlineDdl()).hear_all(
        "CREATE TABLE _t_new LIKE t", "ALTER TABLE _t_new ADD a int", PT_OSC[4], PT_OSC[5]
    )
    assert len(task.ran) == 4
    assert [column.name for column in task.structures[T].columns][-1] == "a"
    assert task.shadows == {}


def test_roles_by_name():
    roles = {
        "t": Role.REAL, "_t_new": Role.SHADOW, "__t_new": Role.SHADOW, "_t_gho": Role.SHADOW, "_T_GHO": Role.SHADOW,
        "_t_old": Role.TRASH, "_t_del": Role.TRASH, "_t_20260101120000_del": Role.TRASH, "_t_ghc": Role.TRASH,
        "t_new": Role.REAL, "_t_newer": Role.REAL, "__new": Role.REAL, "_new": Role.REAL,
    }  # fmt: skip
    assert {name: ONLINE.role(TableName("a", name)) for name in roles} == roles
    assert OnlineDdl(SHADOW, TRASH, case_sensitive=True).role(TableName("a", "_T_GHO")) is Role.REAL


def test_the_real_name_may_have_lost_underscores_and_letters():
    names = ONLINE.reals(TableName("a", "___t_new"))
    assert names == (TableName("a", "__t"), TableName("a", "_t"), TableName("a", "t"))
    assert ONLINE.reals(TableName("a", "_" + "t" * 59 + "_gho")) is None


def test_rules_of_a_task_file():
    assert checked(["_(.+)_new", "^(.+)_shadow$", "^_(.+)_new$"], "shadow-table-rules") == (
        "^_(.+)_new$",
        "^(.+)_shadow$",
    )
    own = OnlineDdl(checked([r"(.+)_shadow"], "x"), checked([r"(.+)_bin"], "x"))
    assert own.reals(TableName("a", "t_shadow")) == (T,)
    task = Task(online=own).hear_all("CREATE TABLE t_shadow LIKE t", "ALTER TABLE t_shadow ADD a int")
    task.hear("RENAME TABLE t TO t_bin, t_shadow TO t")
    assert "ADD COLUMN `a`" in task.sql[0]


@pytest.mark.parametrize("rule", ["_.+_new", "_(.+)_(new|gho)", "_(.+_new", "_([[:alpha:]]+)_new"])
def test_a_rule_without_exactly_one_group_is_an_error(rule):
    with pytest.raises(ConfigError) as caught:
        checked([rule], "shadow-table-rules")
    assert caught.value.code == "bad-pattern"


def test_renames_by_their_outcome():
    a, b, c = (TableName("a", name) for name in "abc")
    assert set(net([(a, c), (b, a), (c, b)])) == {(a, b), (b, a)}
