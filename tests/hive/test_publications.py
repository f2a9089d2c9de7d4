"""A task from a real MariaDB into Hive: what a separate Spark reads through the metastore."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.hive.conftest import RunSql, World

from pidts.sandbox import Server

pytest.importorskip("pyiceberg")
pytest.importorskip("sqlalchemy")

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture
def world(mariadb: Server, tmp_path: Path, run_sql: RunSql) -> Iterator[World]:
    made = World(mariadb, tmp_path, run_sql)
    yield made
    made.sql(f"DROP DATABASE {made.database}", database=None)


def test_a_state_is_published_and_hive_s_own_reader_reads_it(world: World) -> None:
    world.sql("CREATE TABLE orders (id INT AUTO_INCREMENT PRIMARY KEY, Buyer VARCHAR(40), price DECIMAL(12,2), n INT)")
    world.sql("INSERT INTO orders (Buyer, price, n) VALUES ('Ann', 1.25, 1), ('Bob', 2.5, 2), ('Cy', NULL, 3)")
    world.sql("CREATE TABLE keyless (id INT, v VARCHAR(10))")
    world.sql("INSERT INTO keyless VALUES (1, 'a'), (1, 'a'), (2, NULL)")
    world.sql("CREATE TABLE gone (id INT PRIMARY KEY)")
    world.run()
    assert world.status()["orders"]["lsn"]
    world.sql("UPDATE orders SET price = 9 WHERE id = 1")
    world.sql("DELETE FROM orders WHERE id = 2")
    world.sql("ALTER TABLE orders ADD COLUMN note VARCHAR(20) NOT NULL DEFAULT 'none' AFTER id")
    world.sql("ALTER TABLE orders RENAME COLUMN Buyer TO customer, DROP COLUMN n")
    world.sql("INSERT INTO orders (customer, price, note) VALUES ('Dan', 7, 'new')")
    world.sql("DROP TABLE gone")
    world.sql(
        "CREATE TABLE kinds (id INT PRIMARY KEY, t TIME(3), d DATETIME(6), z TIMESTAMP(6) NULL, b BIT(5), u BIGINT UNSIGNED, "
        "big DECIMAL(65,2), j JSON, y DATE, bin VARBINARY(4), f FLOAT, o DATE)"
    )
    world.sql(
        "INSERT INTO kinds VALUES (1, '-12:30:00.5', '1969-12-31 23:59:59.5', '2026-01-02 03:04:05.000006', b'101', "
        "18446744073709551615, 123456789012345678901234567890123456789012345678901234567890.12, '{\"a\": 1}', "
        "'2026-02-03', x'00ff', 1.5, '0001-01-01')"
    )
    world.run()
    with world.reader() as reader:
        # Spark's own reader of Parquet, then Hive's, which takes days before 1582 for those of another calendar.
        for form, oldest in (("true", "0001-01-01"), ("false", "0001-01-03")):
            reader.ask("set", "spark.sql.hive.convertMetastoreParquet", form)
            rows = reader.rows(
                f"SELECT id, note, customer, CAST(price AS STRING) FROM {world.database}.orders ORDER BY id"
            )
            assert rows == [[1, "none", "Ann", "9.00"], [3, "none", "Cy", None], [4, "new", "Dan", "7.00"]]
            assert reader.rows(f"SELECT * FROM {world.database}.keyless ORDER BY id") == [[1, "a"], [1, "a"], [2, None]]
            (kinds,) = reader.rows(
                f"SELECT t, CAST(d AS STRING), CAST(z AS STRING), b, CAST(u AS STRING), big, j, CAST(y AS STRING), "
                f"HEX(bin), f, CAST(o AS STRING) FROM {world.database}.kinds"
            )
            assert kinds == [
                "-12:30:00.500000", "1969-12-31 23:59:59.5", "2026-01-02 03:04:05.000006", 5, "18446744073709551615",
                "123456789012345678901234567890123456789012345678901234567890.12", '{"a": 1}', "2026-02-03", "00FF", 1.5, oldest,
            ]  # fmt: skip
        tables = {row[1] for row in reader.rows(f"SHOW TABLES IN {world.database}")}
        assert tables == {"orders", "keyless", "kinds"}
        properties = dict(map(tuple, reader.rows(f"SHOW TBLPROPERTIES {world.database}.orders")))
        assert properties["pidts.lsn"] == world.status()["orders"]["lsn"]
