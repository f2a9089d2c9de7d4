"""The real pt-online-schema-change alters shards of a task that follows them from given places of their logs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import yaml
from tests.spark.altering import Altering
from tests.spark.conftest import Background
from tests.spark.merged_task import Shards

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.server, pytest.mark.timeout(300)]

CHANGE = "ADD COLUMN price DECIMAL(10,2) NOT NULL DEFAULT 1.50 AFTER v"
PLACES = tuple(
    (source, place) for source in ("one", "two") for place in ("{1}.orders_1", "{1}.orders_2", "{2}.orders_3")
)


def test_shards_are_altered_by_a_tool_and_by_hand_and_the_target_once(
    make_shards: Callable[..., Shards], altering: Altering, background: type[Background]
) -> None:
    shards = make_shards("mariadb", extract=True, **{"task-mode": "incremental"})
    values = ", ".join(f"({number}, 'same keys', {number})" for number in range(400))
    for source, place in PLACES:
        shards.on(source, f"INSERT INTO {place} VALUES {values}", f"ANALYZE TABLE {place}")
    from_there(shards)
    load_by_hand(shards)
    for source, place in PLACES:  # These changes are after the place where the task begins.
        shards.on(source, f"UPDATE {place} SET v = '{source}' WHERE id < 10", f"DELETE FROM {place} WHERE id = 399")

    writing = shards.session(shards.sources["one"]).cursor()

    def write() -> None:
        for table in ("orders_1", "orders_2"):
            writing.execute(f"UPDATE {shards.schema}_1.{table} SET n = n + 1 WHERE id % 7 = 0")
            writing.execute(
                f"REPLACE INTO {shards.schema}_1.{table} (id, v, n) SELECT MAX(id) + 1, 'new', 0 FROM {shards.schema}_1.{table}"
            )
            writing.execute(f"DELETE FROM {shards.schema}_1.{table} WHERE id % 50 = 3 AND n < 100")

    run = shards.task.start("--json")
    with background(write, 0.02):
        run.wait_until(lambda: ("one",) in shards.rows(columns="v"), "the task is at work")
        for table in ("orders_1", "orders_2"):
            altering.finish(altering.start((shards.sources["one"], f"{shards.schema}_1", table), CHANGE))
        shards.on("two", f"ALTER TABLE {{1}}.orders_1 {CHANGE}", "UPDATE {1}.orders_1 SET price = 3 WHERE id < 5")
        run.wait_until(
            lambda: shards.waiting() == {("one", "1.orders_1"), ("one", "1.orders_2"), ("two", "1.orders_1")},
            "three wait, whoever altered them",
        )
        assert "price" not in shards.columns()
        for source, place in (PLACES[2], *PLACES[4:]):
            shards.on(source, f"ALTER TABLE {place} {CHANGE}")
        run.wait_until(lambda: "price" in shards.columns(), "the target is altered")
    shards.has_all(run)
    shards.equal(run)
    expected = []
    for source, place in PLACES:
        cursor = shards.sessions[source].cursor()
        cursor.execute("SELECT id, v, price, n FROM " + place.format("", f"{shards.schema}_1", f"{shards.schema}_2"))
        expected += [(*row, place[-1], place[1], source) for row in cursor.fetchall()]
    assert shards.rows(columns="id, v, price, n, part, db, origin") == sorted(expected, key=repr)
    assert set(shards.tables()) == {"orders", "items"}
    assert run.stop() == 0


def from_there(shards: Shards) -> None:
    """Lets the task begin, for each source, where its log ends now."""
    about = yaml.safe_load(shards.task.path.read_text())
    for instance in about["mysql-instances"]:
        cursor = shards.sessions[instance["source-id"]].cursor()
        cursor.execute("SHOW MASTER STATUS" if instance["source-id"] == "one" else "SHOW BINARY LOG STATUS")
        name, position = cursor.fetchone()[:2]
        instance["meta"] = {"binlog-name": name, "binlog-pos": position}
    shards.task.path.write_text(yaml.safe_dump(about))


def load_by_hand(shards: Shards) -> None:
    """Loads the rows as an operator would have done before: with columns, even those of the key, in a different order
    than on the sources.
    """
    extracted = "origin VARCHAR(10), db VARCHAR(10), part VARCHAR(10)"
    shards.at_target("CREATE DATABASE {0}")
    shards.at_target(
        f"CREATE TABLE {{0}}.orders (n INT, v VARCHAR(20) NOT NULL, {extracted}, id BIGINT, PRIMARY KEY (id, origin, db, part))"
    )
    shards.at_target(f"CREATE TABLE {{0}}.items (id BIGINT, {extracted}, PRIMARY KEY (id, part, db, origin))")
    for source, place in PLACES:
        rows = ", ".join(
            f"({number}, 'same keys', '{source}', '{place[1]}', '{place[-1]}', {number})" for number in range(400)
        )
        shards.at_target(f"INSERT INTO {{0}}.orders VALUES {rows}")
