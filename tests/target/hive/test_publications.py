"""Through the metastore, a separate Spark reads what a task from a real MariaDB has published."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.target.hive.conftest import HiveTask, Reader, RunSql

from pidts.sandbox import Server

pytest.importorskip("pyiceberg")
pytest.importorskip("sqlalchemy")

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture
def task(mariadb: Server, tmp_path: Path, run_sql: RunSql) -> Iterator[HiveTask]:
    made = HiveTask(mariadb, tmp_path, run_sql)
    yield made
    made.sql(f"DROP DATABASE {made.database}", database=None)


SALES_CHANGES = [
    ["update_from", 1, "Ann", "1.25", None, None],
    ["update_to", 1, "Ann", "3.00", None, None],
    ["update_from", 1, "Ann", "3.00", None, None],
    ["update_to", 1, "Ann", "4.00", None, None],
    ["update_from", 2, "Bob", "2.50", None, None],
    ["update_to", 7, "Bob", "2.50", None, None],
    ["delete", 7, "Bob", "2.50", None, None],
    ["insert", 8, "Cy", "5.00", None, "new"],
    ["insert", 9, None, None, "6.50", "late"],
    ["truncate", None, None, None, None, None],
    ["insert", 10, None, None, "7.50", "last"],
]
"""The changes of `change_sales`, as the change table has them."""


def change_sales(task: HiveTask) -> None:
    task.sql("UPDATE sales SET price = 3 WHERE id = 1")
    task.sql("UPDATE sales SET price = 4 WHERE id = 1")
    task.sql("UPDATE sales SET id = 7 WHERE id = 2")
    task.sql("DELETE FROM sales WHERE id = 7")
    task.sql("ALTER TABLE sales ADD COLUMN note VARCHAR(20) NOT NULL DEFAULT 'none'")
    task.sql("INSERT INTO sales VALUES (8, 'Cy', 5, 'new')")
    task.sql("ALTER TABLE sales DROP COLUMN buyer, MODIFY price DECIMAL(14,2)")
    task.sql("SET STATEMENT timestamp=1900000000 FOR INSERT INTO sales VALUES (9, 6.5, 'late')")
    task.sql("TRUNCATE TABLE sales")
    task.sql("INSERT INTO sales VALUES (10, 7.5, 'last')")


def look_at_changes(task: HiveTask, reader: Reader) -> None:
    """Checks that the change table has every change once, in log order."""
    name = f"{task.database}.sales_changes"
    rows = reader.rows(
        "SELECT pidts_op, id, buyer, CAST(price AS STRING), CAST(price__decimal_14_2 AS STRING), note "
        f"FROM {name} ORDER BY pidts_lsn, pidts_op"
    )
    assert rows == SALES_CHANGES
    days = reader.rows(f"SELECT CAST(pidts_ts AS STRING), id FROM {name} WHERE pidts_day = '2030-03-17'")
    assert days == [["2030-03-17 17:46:40", 9]]
    assert reader.rows(f"SELECT id, note FROM {task.database}.sales") == [[10, "last"]]
    counts = reader.rows(f"SELECT COUNT(DISTINCT pidts_gtid), COUNT(DISTINCT pidts_table) FROM {name}")
    assert counts == [[7, 1]]
    changes = task.status()["sales"]["changes"]
    assert changes["lsn"]
    assert not changes["problem"]


def test_a_state_is_published_and_hive_s_own_reader_reads_it(task: HiveTask) -> None:
    task.sql("CREATE TABLE orders (id INT AUTO_INCREMENT PRIMARY KEY, Buyer VARCHAR(40), price DECIMAL(12,2), n INT)")
    task.sql("INSERT INTO orders (Buyer, price, n) VALUES ('Ann', 1.25, 1), ('Bob', 2.5, 2), ('Cy', NULL, 3)")
    task.sql("CREATE TABLE keyless (id INT, v VARCHAR(10))")
    task.sql("INSERT INTO keyless VALUES (1, 'a'), (1, 'a'), (2, NULL)")
    task.sql("CREATE TABLE gone (id INT PRIMARY KEY)")
    task.sql("CREATE TABLE sales (id INT PRIMARY KEY, buyer VARCHAR(40), price DECIMAL(12,2))")
    task.sql("INSERT INTO sales VALUES (1, 'Ann', 1.25), (2, 'Bob', 2.5)")
    task.run()
    assert task.status()["orders"]["lsn"]
    change_sales(task)
    task.sql("UPDATE orders SET price = 9 WHERE id = 1")
    task.sql("DELETE FROM orders WHERE id = 2")
    task.sql("ALTER TABLE orders ADD COLUMN note VARCHAR(20) NOT NULL DEFAULT 'none' AFTER id")
    task.sql("ALTER TABLE orders RENAME COLUMN Buyer TO customer, DROP COLUMN n")
    task.sql("INSERT INTO orders (customer, price, note) VALUES ('Dan', 7, 'new')")
    task.sql("DROP TABLE gone")
    task.sql(
        "CREATE TABLE kinds (id INT PRIMARY KEY, t TIME(3), d DATETIME(6), z TIMESTAMP(6) NULL, b BIT(5), u BIGINT UNSIGNED, "
        "big DECIMAL(65,2), j JSON, y DATE, bin VARBINARY(4), f FLOAT, o DATE)"
    )
    task.sql(
        "INSERT INTO kinds VALUES (1, '-12:30:00.5', '1969-12-31 23:59:59.5', '2026-01-02 03:04:05.000006', b'101', "
        "18446744073709551615, 123456789012345678901234567890123456789012345678901234567890.12, '{\"a\": 1}', "
        "'2026-02-03', x'00ff', 1.5, '0001-01-01')"
    )
    task.run()
    with task.reader() as reader:
        # Spark's own reader of Parquet reads first, then Hive's reader, which uses another calendar for days before
        # 1582.
        for form, oldest in (("true", "0001-01-01"), ("false", "0001-01-03")):
            reader.ask("set", "spark.sql.hive.convertMetastoreParquet", form)
            (kinds,) = reader.rows(
                f"SELECT t, CAST(d AS STRING), CAST(z AS STRING), b, CAST(u AS STRING), big, j, CAST(y AS STRING), "
                f"HEX(bin), f, CAST(o AS STRING) FROM {task.database}.kinds"
            )
            assert kinds == [
                "-12:30:00.500000", "1969-12-31 23:59:59.5", "2026-01-02 03:04:05.000006", 5, "18446744073709551615",
                "123456789012345678901234567890123456789012345678901234567890.12", '{"a": 1}', "2026-02-03", "00FF", 1.5, oldest,
            ]  # fmt: skip
        rows = reader.rows(f"SELECT id, note, customer, CAST(price AS STRING) FROM {task.database}.orders ORDER BY id")
        assert rows == [[1, "none", "Ann", "9.00"], [3, "none", "Cy", None], [4, "new", "Dan", "7.00"]]
        assert reader.rows(f"SELECT * FROM {task.database}.keyless ORDER BY id") == [[1, "a"], [1, "a"], [2, None]]
        look_at_changes(task, reader)
        tables = {row[1] for row in reader.rows(f"SHOW TABLES IN {task.database}")}
        assert tables == {"orders", "keyless", "kinds", "sales", "orders_changes", "kinds_changes", "sales_changes"}
        properties = dict(map(tuple, reader.rows(f"SHOW TBLPROPERTIES {task.database}.orders")))
        assert properties["pidts.lsn"] == task.status()["orders"]["lsn"]
