"""A process ends well right after it has read rows of PostgreSQL, although threads of Arrow may not have ended yet."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.examples import EXAMPLES

PROGRAM = """
import gc, json, os, sys
from pidts.hidden_modules import hide_modules

hide_modules()
from pidts.model import Column, ColumnType, Kind, Table, TableName
from pidts.target.postgres import reader
from pidts.target.postgres.shape import PgColumn, PgTable

name = TableName("s", "t")
table = Table(name, (Column("id", ColumnType(Kind.INT)),))
column = PgColumn("id", "integer", "integer", False, False, False, False, True)
shape = PgTable(name, "r", True, (column,), (), ())
gc.freeze()
sys.setswitchinterval(10)  # a thread that needs the interpreter's lock waits until this process ends
codes = []
for _ in range(int(sys.argv[1])):
    if os.fork() == 0:
        assert reader._parsed(b"1\\n2\\n", table, shape).num_rows == 2
        sys.exit(0)
    codes.append(os.waitstatus_to_exitcode(os.wait()[1]))
print(json.dumps(codes))
"""


def test_no_process_is_aborted_that_ends_right_after_it_has_read_rows():
    number = 100 if EXAMPLES else 20
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(number)], capture_output=True, text=True, check=True, timeout=200
    )
    assert json.loads(done.stdout) == [0] * number, done.stderr
