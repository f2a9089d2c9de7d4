"""The process is killed at each step of a schema change of shards: the next run ends as if there had been no kill.

The steps: some shards have arrived at the change; all have, and the target is about to run it; the change has run, and
is not recorded; the shards that waited are catching up. Nobody gives the task a command meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from itertools import count

import pytest
from tests.running import Progress, connect
from tests.spark.commands import Run
from tests.spark.merged_task import Shards

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.server, pytest.mark.timeout(500)]

PLACES = tuple(
    (source, place) for source in ("one", "two") for place in ("{1}.orders_1", "{1}.orders_2", "{2}.orders_3")
)
TABLE_AWAITED = {
    "postgres": "SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event = 'relation'",
    "mariadb": "SELECT COUNT(*) FROM information_schema.processlist WHERE state LIKE 'Waiting for table metadata lock'",
}
ROW_AWAITED = {
    "postgres": "SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event IN ('transactionid', 'tuple')",
    "mariadb": "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'",
}
GATE = {
    "postgres": (
        """CREATE FUNCTION {0}.wait_at_gate() RETURNS trigger LANGUAGE plpgsql
        AS $$ BEGIN PERFORM 1 FROM {0}.gate FOR UPDATE; RETURN NEW; END $$""",
        """CREATE TRIGGER gate BEFORE INSERT ON {0}.orders FOR EACH ROW WHEN (NEW.v = 'gate')
        EXECUTE FUNCTION {0}.wait_at_gate()""",
        "ALTER TABLE {0}.orders ENABLE ALWAYS TRIGGER gate",
    ),
    "mariadb": (
        """CREATE TRIGGER {0}.gate BEFORE INSERT ON {0}.orders FOR EACH ROW
        IF NEW.v = 'gate' THEN SET @passed = (SELECT id FROM {0}.gate FOR UPDATE); END IF""",
    ),
}
"""A trigger with which an INSERT of a row whose `v` is 'gate' waits while a session has locked the only row of `gate`.
"""


class Sources:
    """What is done on the shards, and the rows that the target has at the end."""

    def __init__(self, shards: Shards) -> None:
        self.shards = shards
        self.numbers = count(1)
        for source, place in PLACES:
            self.insert(source, place, rows=2)

    def insert(self, source: str, place: str, *, rows: int = 1) -> None:
        values = ", ".join(f"({next(self.numbers)}, '{source}')" for _ in range(rows))
        self.shards.on(source, f"INSERT INTO {place} (id, v) VALUES {values}")

    def change(self, statement: str, places: tuple[tuple[str, str], ...]) -> None:
        """Makes the change, with rows before it and after it."""
        for source, place in places:
            self.insert(source, place)
            self.shards.on(source, f"ALTER TABLE {place} {statement}", f"UPDATE {place} SET n = COALESCE(n, 0) + 1")
            self.insert(source, place)

    def all_rows(self, columns: str) -> list[tuple[object, ...]]:
        found: list[tuple[object, ...]] = []
        for source, place in PLACES:
            cursor = self.shards.sessions[source].cursor()
            cursor.execute(
                f"SELECT {columns} FROM {place}".format("", f"{self.shards.schema}_1", f"{self.shards.schema}_2")
            )
            found += cursor.fetchall()
        return sorted(found, key=repr)


@contextmanager
def transaction(shards: Shards, query: str) -> Iterator[None]:
    """Opens a transaction on the target that stays open meanwhile."""
    with closing(connect(shards.target_server)) as session, session.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute(query.format(shards.target_schema))
        yield
        cursor.execute("ROLLBACK")


def table_in_use(shards: Shards) -> AbstractContextManager[None]:
    """Keeps a reader's transaction open, so that no session can alter the table."""
    return transaction(shards, "SELECT COUNT(*) FROM {0}.orders")


@pytest.mark.parametrize("kind", ["mariadb", "postgres"])
def test_whenever_it_is_killed_the_end_is_the_same(kind: str, make_shards: Callable[..., Shards]) -> None:
    shards = make_shards(kind, syncers={"global": {"worker-count": 1, "batch": 1}})
    sources = Sources(shards)
    run = shards.task.start()
    run.wait_until(shards.are_copied, "all is copied")

    def is_waiting(awaited: dict[str, str]) -> bool:
        return bool(shards.at_target(awaited[kind])[0][0])

    def waits(run: Run, places: tuple[tuple[str, str], ...]) -> None:
        wanted = {(source, place.replace("{", "").replace("}", "")) for source, place in places}
        run.wait_until(lambda: shards.waiting() == wanted, f"{wanted} wait")

    # Some shards have arrived, on both sources. The others arrive while no run exists.
    sources.change("ADD COLUMN a INT NOT NULL DEFAULT 1", PLACES[:4])
    waits(run, PLACES[:4])
    assert "a" not in shards.columns()
    run.kill()
    sources.change("ADD COLUMN a INT NOT NULL DEFAULT 1", PLACES[4:])
    run = shards.task.start()
    shards.has_all(run)
    assert shards.rows(columns="id, v, n, a") == sources.all_rows("id, v, n, a")

    # All have arrived, and the target waits to run the change. A session of the dead run may still wait there, and run
    # it late.
    with table_in_use(shards):
        sources.change("ADD COLUMN b INT", PLACES)
        run.wait_until(lambda: is_waiting(TABLE_AWAITED), "the change waits on the target")
        run.kill()
        sources.insert(*PLACES[0])
        run = shards.task.start()
        run.wait_until(lambda: len(run.replicator()) == 2, "it has begun again")
    shards.has_all(run)
    assert shards.rows(columns="id, v, n, a, b") == sources.all_rows("id, v, n, a, b")

    # The change has run, and the record of one source cannot be written. On PostgreSQL, both are one transaction.
    sources.change("DROP COLUMN a", PLACES[:3])
    waits(run, PLACES[:3])
    with ExitStack() as held:
        with table_in_use(shards):
            sources.change("DROP COLUMN a", PLACES[3:])
            run.wait_until(lambda: is_waiting(TABLE_AWAITED), "the change waits on the target")
            session = held.enter_context(closing(connect(shards.target_server)))
            held.enter_context(Progress(session, "one", "t").held_back())
        run.wait_until(lambda: is_waiting(ROW_AWAITED), "its record waits")
        if kind == "mariadb":
            run.wait_until(lambda: "a" not in shards.columns(), "it has run")
        run.kill()
    assert ("a" in shards.columns()) is (kind == "postgres")
    run = shards.task.start()
    shards.has_all(run)
    assert shards.rows(columns="id, v, n, b") == sources.all_rows("id, v, n, b")

    # The shards that waited are catching up.
    shards.on_target("CREATE TABLE {0}.gate (id INT PRIMARY KEY)", "INSERT INTO {0}.gate VALUES (1)", *GATE[kind])
    sources.change("ADD COLUMN c INT", PLACES[:5])
    for _ in range(300):
        sources.insert(*PLACES[0], rows=20)
    sources.shards.on("one", "INSERT INTO {1}.orders_1 (id, v) VALUES (0, 'gate')")
    waits(run, PLACES[:5])
    with transaction(shards, "SELECT * FROM {0}.gate FOR UPDATE"):
        sources.change("ADD COLUMN c INT", PLACES[5:])
        run.wait_until(lambda: is_waiting(ROW_AWAITED), "it is at the last row")
        run.kill()
    assert "c" in shards.columns()
    assert shards.rows(columns="id, v, n, b, c") != sources.all_rows("id, v, n, b, c")
    run = shards.task.start()
    shards.has_all(run)
    assert shards.rows(columns="id, v, n, b, c") == sources.all_rows("id, v, n, b, c")
    assert shards.at_target("SELECT COUNT(*) FROM pidts_meta.halt") == [(0,)]
    shards.equal(run)
    assert run.stop() == 0
