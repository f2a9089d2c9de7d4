"""The demo's shop: its tables, and a thread that writes to them all the time, like an application.

The thread writes only to the database `shop`.
"""

from __future__ import annotations

import random
import threading
import time
from contextlib import closing
from datetime import datetime, timedelta

from pidts.source.connection import Session, SourceConfig, connect, query

_TABLES = (
    """CREATE TABLE shop.customers (
        id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
        name VARCHAR(80) NOT NULL,
        email VARCHAR(120) NOT NULL,
        balance DECIMAL(12,2) NOT NULL DEFAULT 0,
        is_active TINYINT(1) NOT NULL DEFAULT 1,
        born DATE,
        notes TEXT,
        joined TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3),
        UNIQUE KEY email (email)
    )""",
    """CREATE TABLE shop.products (
        id INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
        title VARCHAR(120) NOT NULL,
        price DECIMAL(10,2) NOT NULL,
        weight DOUBLE,
        stock INT NOT NULL,
        sold BIGINT NOT NULL DEFAULT 0,
        picture VARBINARY(64)
    )""",
    """CREATE TABLE shop.orders (
        id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
        customer_id BIGINT UNSIGNED NOT NULL,
        product_id INT UNSIGNED NOT NULL,
        quantity SMALLINT UNSIGNED NOT NULL,
        total DECIMAL(12,2) NOT NULL,
        state ENUM('new','paid','sent','returned') NOT NULL DEFAULT 'new',
        ordered DATETIME(6) NOT NULL,
        KEY customer (customer_id)
    )""",
)
_ALTER = "ALTER TABLE shop.orders ADD COLUMN gift_note VARCHAR(60) NOT NULL DEFAULT ''"

CUSTOMERS, PRODUCTS, ORDERS = 4_000, 500, 20_000
_ROWS_A_STATEMENT = 1_000
_TRANSACTIONS_A_SECOND = 100
_STATES = ("new", "paid", "sent", "returned")
_NAMES = ("Ada", "Bjørn", "Chloé", "Dmitri", "Emre", "Fatima", "Gül", "Hiroshi", "Ines", "小明", "Zoë 🌼")
_FIRST_DAY = datetime(2020, 1, 1)  # noqa: DTZ001 - a DATETIME has no zone


class Workload:
    """The shop's application: fills the tables and writes to them in a thread."""

    def __init__(self, server: SourceConfig) -> None:
        self._server = server
        self._chance = random.Random(20_240_601)  # noqa: S311 - the same shop each time, and no secret
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="workload", daemon=True)
        self._alter = threading.Event()
        self._altered = False
        self._error: Exception | None = None

    def fill(self) -> None:
        """Creates the tables and the rows that exist before the sync begins."""
        with closing(connect(self._server)) as connection:
            query(connection, "CREATE DATABASE shop")
            for statement in _TABLES:
                query(connection, statement)
            customers = [self._customer(number) for number in range(CUSTOMERS)]
            _insert(connection, "customers (name, email, balance, born, notes)", customers)
            _insert(
                connection,
                "products (title, price, weight, stock, picture)",
                [self._product() for _ in range(PRODUCTS)],
            )
            _insert(connection, _ORDER_COLUMNS, [self._order() for _ in range(ORDERS)])

    def start(self) -> None:
        """Starts to write."""
        self._thread.start()

    def alter(self) -> None:
        """Lets the thread add a column to the orders, and write to it from then on."""
        self._alter.set()

    def stop(self) -> None:
        """Stops after the current transaction. If an error has ended the thread, raises it."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            with closing(connect(self._server)) as connection:
                self._write(connection)
        except Exception as error:  # noqa: BLE001 - raised again by `stop`
            self._error = error

    def _write(self, connection: Session) -> None:
        began = time.monotonic()
        for number in range(10**9):
            if self._alter.is_set() and not self._altered:
                query(connection, _ALTER)
                self._altered = True
            query(connection, "BEGIN")
            self._trade(connection, number)
            query(connection, "COMMIT")
            if self._stop.wait(max(0.0, began + number / _TRANSACTIONS_A_SECOND - time.monotonic())):
                return

    def _trade(self, connection: Session, number: int) -> None:
        """Writes one transaction: a new order, its product's stock, and now and then something else."""
        order = self._order()
        columns, values = _ORDER_COLUMNS, order
        if self._altered:
            columns, values = f"{columns[:-1]}, gift_note)", (*order, f"Greetings no. {number}")
        _insert(connection, columns, [values])
        query(connection, "UPDATE shop.products SET stock = stock - 1, sold = sold + 1 WHERE id = %s", (order[1],))
        if number % 3 == 0:
            state, some = self._chance.choice(_STATES), self._chance.randrange(1, ORDERS)
            query(connection, "UPDATE shop.orders SET state = %s WHERE id BETWEEN %s AND %s", (state, some, some + 4))
        if number % 5 == 0:
            query(connection, "DELETE FROM shop.orders WHERE id = %s", (self._chance.randrange(1, ORDERS + number),))
        if number % 20 == 0:
            _insert(connection, "customers (name, email, balance, born, notes)", [self._customer(CUSTOMERS + number)])
        if number % 50 == 0:
            some = self._chance.randrange(1, CUSTOMERS)
            query(
                connection,
                "UPDATE shop.customers SET balance = balance + 1.25 WHERE id BETWEEN %s AND %s",
                (some, some + 50),
            )

    def _customer(self, number: int) -> tuple[object, ...]:
        name = self._chance.choice(_NAMES)
        born = (_FIRST_DAY - timedelta(days=self._chance.randrange(7_000, 30_000))).date()
        notes = None if number % 4 else f"'{name}' said:\n\"it's 100 % \\ fine\""
        return (
            f"{name} {number}",
            f"c{number}@shop.example",
            self._chance.randrange(-50_000, 500_000) / 100,
            born,
            notes,
        )

    def _product(self) -> tuple[object, ...]:
        chance = self._chance
        return (
            f"Thing {chance.randrange(10**6)}",
            chance.randrange(100, 99_999) / 100,
            chance.random() * 20,
            1_000,
            chance.randbytes(16),
        )

    def _order(self) -> tuple[object, ...]:
        chance = self._chance
        ordered = _FIRST_DAY + timedelta(microseconds=chance.randrange(10**14))
        quantity = chance.randrange(1, 9)
        return (
            chance.randrange(1, CUSTOMERS),
            chance.randrange(1, PRODUCTS),
            quantity,
            quantity * chance.randrange(1_000) / 100,
            ordered,
        )


_ORDER_COLUMNS = "orders (customer_id, product_id, quantity, total, ordered)"


def _insert(connection: Session, columns: str, rows: list[tuple[object, ...]]) -> None:
    placeholders = f"({', '.join(['%s'] * len(rows[0]))})"
    for at in range(0, len(rows), _ROWS_A_STATEMENT):
        some = rows[at : at + _ROWS_A_STATEMENT]
        values = [value for row in some for value in row]
        query(connection, f"INSERT INTO shop.{columns} VALUES {', '.join([placeholders] * len(some))}", values)
