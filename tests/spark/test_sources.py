"""A task with several sources: each source is copied and followed, and an error of one source stops no other."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest

from pidts import sandbox

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(300)]


def test_two_sources_one_target(make_task, mariadb, target_server, open_session, run_sql, database):
    target = target_server("postgres")
    with sandbox.start_mariadb() as other:
        orders, people = f"{database}_a.orders", f"{database}_b.people"
        for server, table in ((mariadb, orders), (other, people)):
            run_sql(server, f"CREATE DATABASE {table.partition('.')[0]}")
            run_sql(server, f"CREATE TABLE {table} (id INT PRIMARY KEY, word TEXT)")
            run_sql(server, f"INSERT INTO {table} VALUES (1, 'before')")
        task = make_task(mariadb, target, [f"{database}_?"], beside={"two": other})
        cursor = open_session(target).cursor()

        def has(table, number):
            def look():
                cursor.execute("SELECT to_regclass(%s)", (table,))
                if cursor.fetchone() == (None,):
                    return False
                cursor.execute(f"SELECT 1 FROM {table} WHERE id = {number}".encode())
                return cursor.fetchone() is not None

            return look

        run = task.start("--json")
        for table in (orders, people):
            run.wait_until(has(table, 1), f"{table} is copied")
        run_sql(mariadb, f"INSERT INTO {orders} VALUES (2, 'followed')")
        run_sql(other, f"INSERT INTO {people} VALUES (2, 'followed')")
        for table in (orders, people):
            run.wait_until(has(table, 2), f"{table} is followed")

        (killed,) = run.pids("pidts-replicate t two")
        (kept,) = run.pids("pidts-replicate t one")
        os.kill(killed, signal.SIGKILL)
        run_sql(other, f"INSERT INTO {people} VALUES (3, 'while none listens')")
        run_sql(mariadb, f"INSERT INTO {orders} VALUES (3, 'meanwhile')")
        run.wait_until(has(orders, 3), "the other source goes on")
        run.wait_until(has(people, 3), "the replicator is back")
        assert run.replicator().count(kept) == 1, "that of the other source is still the same"

        # The task waits for a source that is down. Rows of the other source arrive as usual.
        other.kill()
        time.sleep(0.5)
        run_sql(mariadb, f"INSERT INTO {orders} VALUES (4, 'alone')")
        run.wait_until(has(orders, 4), "a source that is down keeps no other waiting")

        summary = run.summary()
        said = run.log.read_text()
    assert [json.loads(line)["task"] for line in said.splitlines() if line.startswith("{")] == ["t"]
    assert (summary["rows"]["inserted"], summary["rows"]["copied"]) == (5, 2)
    assert summary["applied"]["lsn"] is None
    assert {(table["source"], table["name"]) for table in summary["tables"]} == {("one", orders), ("two", people)}
    places = {source["source"]: source["applied"]["file"] for source in summary["sources"]}
    assert places.keys() == {"one", "two"}
    assert all(places.values())
