"""If a row of the target differs, its table halts. The commands show both rows, and `pidts verify` says which rows may
differ even after the halt.
"""

from __future__ import annotations

import pytest
from tests.running import Progress
from tests.spark.test_halts import Servers

SETUP = """
CREATE TABLE {0}.a (id INT PRIMARY KEY, v VARCHAR(20) NOT NULL, w INT);
INSERT INTO {0}.a VALUES (1, 'one', 1), (2, 'two', 2), (3, 'three', 3)
"""


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_row_that_differs_halts_its_table_and_both_rows_are_shown(
    mariadb, database, make_task, open_session, eventually, target_server
):
    target = target_server("postgres")
    # Without a copy, nothing here waits for Spark.
    mode = {"task-mode": "incremental"}
    task = make_task(mariadb, target, [database], pidts={"on-divergence": "halt"}, **mode)
    servers = Servers(task, open_session(mariadb), open_session(target), database, eventually)
    servers.source(*SETUP.strip().split(";\n"))
    servers.target("CREATE SCHEMA {0}", *SETUP.strip().split(";\n"))
    progress = Progress(open_session(target))
    run = task.start("--json")
    try:
        run.wait_until(lambda: bool(progress.states()), "the task has begun")
        servers.source("INSERT INTO {0}.a VALUES (4, 'four', 4)")
        servers.arrives("a", (4, "four", 4))
        servers.target("UPDATE {0}.a SET v = 'theirs' WHERE id < 3")
        servers.source("UPDATE {0}.a SET w = 10 WHERE id = 1")
        servers.halts("a", "row-diverged")
        (halt,) = servers.pidts("ddl", "list", str(task.path))["halted"]
        assert halt["values"] == ["before the change, the source had: v='one'", "the target has: v='theirs'"]
        name, path = f"{database}.a", str(task.path)
        for command in (["ddl", "list"], ["status"]):
            shown = task.command(*command, path).stdout.decode()
            assert f"  values     {halt['values'][0]}\n             {halt['values'][1]}\n" in shown
            assert f"             Then run: pidts ddl retry {path} --table {name} --yes\n" in shown
            (line,) = [one for one in shown.splitlines() if f"{name}: halted at " in one]
            assert line.split("halted at ")[1].startswith(halt["position"])
            assert ":" in halt["position"]

        # The change of row 1 waits. Row 2 differs, too, but no change of it waits.
        compared = task.command("verify", path)
        assert compared.returncode == 5, compared.stdout
        assert b"2 rows are not equal now; their tables have changes that are not applied yet" in compared.stdout
        assert (
            f"{name} (id=2): not equal in v, and changes of its table are not applied yet".encode() in compared.stdout
        )

        servers.target("UPDATE {0}.a SET v = 'one' WHERE id = 1")
        assert task.command("ddl", "retry", path, "--table", name, "--yes").returncode == 0
        servers.arrives("a", (1, "one", 10))
        compared = task.command("verify", path)
        assert compared.returncode == 4, compared.stdout
        assert f"{name} (id=2): different in v".encode() in compared.stdout
        run.stop()
        assert "theirs" not in run.log.read_text()
    finally:
        if run.process.poll() is None:
            run.kill()
